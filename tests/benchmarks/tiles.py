"""Tile-wise products and layers at 75% sparsity against dense ones, CSR, and heads that are gone.

``python -m tests.benchmarks.tiles [--quick]`` runs on two threads, for weights of 1024 x 1024,
768 x 3072 and 3072 x 768 (inputs x outputs) and batches of 128, 512 and 1,024 rows in float32. A
round goes over all of them, each warmed up by a run that is not counted, so that a disturbance
falls on no line alone. In every round run the dense product, the tiled ones of TW1, TW2 and TEW
(masks by magnitude of random weights, tiles of 128 outputs), and a CSR product of an unstructured
mask; then linear layers as a user has them, forward, and forward with backward. Figures are dense
over sparse: above 1 the sparse one is faster. Exits 1 if a tile-wise product is not 1.8 times as
fast as the dense one, a layer not 1.3 times (TEW 1.1 times each). Last, attention of 12 heads
against the 3 that are left.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional

from dtoolkit.sparsity import compile_sparse, fold_heads, prune
from dtoolkit.sparsity.tiles import TileLayout, tile_layout
from dtoolkit.sparsity.tiles.product import multiply_packed
from tests.benchmarks.common import Check, interleave, machine, options, ratios, verdict

SHAPES = ((1024, 1024), (768, 3072), (3072, 768))
BATCHES = (128, 512, 1024)
STRUCTURES = ("tw1", "tw2", "tew")
DENSITY = 0.25
Runs = dict[str, Callable[[], object]]


def models(inputs: int, outputs: int) -> dict[str, nn.Linear]:
    """A dense layer, and the same pruned and compiled; for CSR pruned alone."""
    made = {"dense": nn.Linear(inputs, outputs)}
    for name in (*STRUCTURES, "csr"):
        made[name] = copy.deepcopy(made["dense"])
        prune(made[name], density=DENSITY, structure="unstructured" if name == "csr" else name)
        if name != "csr":
            compile_sparse(made[name], kernel="sparse")
    return made


def products(made: dict[str, nn.Linear], batch: int) -> Runs:
    """The product alone: weights packed already, no bias."""
    dense = made["dense"].weight.detach()
    rows = torch.randn(batch, dense.shape[1])
    runs: Runs = {"dense": lambda: functional.linear(rows, dense)}
    for name in STRUCTURES:
        layout = tile_layout(made[name].get_buffer("weight_mask"))
        packed = layout.pack(made[name].weight)

        def tiled(packed: torch.Tensor = packed, layout: TileLayout = layout) -> None:
            multiply_packed(rows, packed, None, layout)

        runs[name] = tiled
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        matrix, turned = made["csr"].weight.detach().to_sparse_csr(), rows.t().contiguous()
    runs["csr"] = lambda: matrix @ turned
    return runs


def layers(made: dict[str, nn.Linear], batch: int) -> tuple[Runs, Runs]:
    """Linear layers with bias, compiled: forward, and forward with backward."""
    rows = torch.randn(batch, made["dense"].in_features)
    grown = rows.clone().requires_grad_()
    gradient = torch.randn(batch, made["dense"].out_features)
    forward: Runs = {}
    both: Runs = {}
    for name in ("dense", *STRUCTURES):

        def run(layer: nn.Module = made[name]) -> None:
            with torch.no_grad():
                layer(rows)

        def train(layer: nn.Module = made[name]) -> None:
            torch.autograd.grad(layer(grown), [grown, *layer.parameters()], gradient)

        forward[name], both[name] = run, train
    return forward, both


def heads(length: int = 128, images: int = 8) -> Runs:
    """Attention of 768 inputs with 12 heads, and with the 3 that stand for the others."""
    dense = nn.MultiheadAttention(768, 12, batch_first=True).eval()
    with torch.no_grad():
        groups = dense.in_proj_weight.view(3, 3, 4, 64, 768)
        groups.copy_(torch.randn(3, 3, 1, 64, 768).expand_as(groups) * 0.04)
    fewer = copy.deepcopy(dense)
    assert fold_heads(fewer, theta=0.0).removed == 9
    rows = torch.randn(images, length, 768)

    def run(attention: nn.Module) -> Callable[[], object]:
        def once() -> None:
            with torch.no_grad():
                attention(rows, rows, rows, need_weights=False)

        return once

    return {"dense": run(dense), "3 heads": run(fewer)}


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    rounds = chosen.rounds or (5 if chosen.quick else 15)
    torch.set_num_threads(min(2, torch.get_num_threads()))
    torch.manual_seed(0)
    print(machine())
    lines: dict[tuple[str, str], Runs] = {}
    for inputs, outputs in SHAPES:
        made = models(inputs, outputs)
        for batch in BATCHES[:: 2 if chosen.quick else 1]:
            place = f"{inputs} x {outputs}, {batch} rows"
            lines[place, "product"] = products(made, batch)
            lines[place, "layer"], lines[place, "with backward"] = layers(made, batch)
    print(f"{'weight and batch':24}{'what':20}{'dense ms':>9}", end="")
    print("".join(f"{name:>7}" for name in (*STRUCTURES, "csr")), flush=True)
    worst: dict[str, float] = {}
    for (place, kind), times in in_turn(lines, rounds).items():
        gains = line(place, kind, times)
        for name in STRUCTURES:
            key = f"{name}, {kind}"
            worst[key] = min(worst.get(key, gains[name]), gains[name])
    found = ratios(interleave(heads(), rounds=rounds, warmup=2), to="dense")
    print(f"attention, 3 of 12 heads left: {1 / found['3 heads'].median:.2f} times as fast")
    print(f"{rounds} rounds; medians over rounds of dense over sparse in the same round")
    musts = {"product": 1.8, "layer": 1.3}
    return verdict(
        [
            Check(f"{key}: share of the dense time", 1 / gain, 1 / _must(key, musts))
            for key, gain in worst.items()
            if key.partition(", ")[2] in musts
        ]
        + [Check("3 of 12 heads: share of the time", found["3 heads"].median, 0.9)]
    )


def in_turn(
    lines: Mapping[tuple[str, str], Runs], rounds: int
) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Seconds of all runs: every round goes over all lines, so that no disturbance is one's own."""
    found = {key: {name: [] for name in runs} for key, runs in lines.items()}
    for turn in range(rounds):
        for key, runs in lines.items():
            start, names = turn % len(runs), list(runs)
            turned = {name: runs[name] for name in names[start:] + names[:start]}
            for name, seconds in interleave(turned, rounds=1).items():
                found[key][name] += seconds
    return found


def line(place: str, kind: str, times: dict[str, list[float]]) -> dict[str, float]:
    """Print one line, and give dense over sparse by name."""
    found = ratios(times, to="dense")
    gains = {name: 1 / ratio.median for name, ratio in found.items()}
    print(f"{place:24}{kind:20}{1e3 * found['dense'].seconds:9.2f}", end="")
    cells = [f"{gains[n]:7.2f}" if n in gains else "" for n in (*STRUCTURES, "csr")]
    print("".join(cells), flush=True)
    return gains


def _must(key: str, musts: dict[str, float]) -> float:
    name, _, kind = key.partition(", ")
    return 1.1 if name == "tew" else musts[kind]


if __name__ == "__main__":
    sys.exit(main())
