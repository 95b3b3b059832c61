"""The conformance table: every method x distribution x structure x optimizer, after 50 steps.

``python -m tests.sparsity.conformance`` writes it (two minutes). The tests run a quarter of it, in
which each method x distribution x structure comes once, and every two with each optimizer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from dtoolkit.sparsity import Constant, Cosine, Cubic, NofM, Sparsifier, TileWise
from dtoolkit.sparsity.optimizer_state import state_tensors
from tests.sparsity.models import OPTIMIZERS, VARIANTS, small_network, train_step, variants

STEPS = 50
METHODS = {
    "static": Constant(),
    "snip": Constant(),
    "magnitude": Cubic(every=5, stop=40),
    "set": Constant(every=10),
    "rigl": Cosine(every=10, stop=45),
    "growth": Constant(every=10),
}
EXPLICIT = {"0": 1.0, "3": 0.5, "4": 0.25, "7": 0.25, "9": 0.5}
DISTRIBUTIONS = ("uniform", "er", "erk", "erk+", "uniform+", "explicit")
STRUCTURES = (
    *("unstructured", "2:4", ":4", "4x4", "channel"),
    *("tw1-4", "tw2-4", "tew-4", "vw-8"),
)


@dataclass(frozen=True)
class Row:
    """One combination."""

    method: str
    distribution: str
    structure: str
    optimizer: str
    variant: str


def rows() -> Iterator[Row]:
    """All combinations; the optimizer's variant changes from one to the next."""
    pairs = itertools.product(METHODS, STRUCTURES, DISTRIBUTIONS, OPTIMIZERS)
    for number, (method, structure, distribution, optimizer) in enumerate(pairs):
        there = variants(optimizer)
        variant = there[number // len(OPTIMIZERS) % len(there)]
        yield Row(method, distribution, structure, optimizer, variant)


def quarter() -> Iterator[Row]:
    """One optimizer for each method x distribution x structure."""
    places = [{n: i for i, n in enumerate(k)} for k in (METHODS, STRUCTURES, DISTRIBUTIONS)]
    optimizers = list(OPTIMIZERS)
    for row in rows():
        place = sum(
            at[name]
            for at, name in zip(places, (row.method, row.structure, row.distribution), strict=True)
        )
        if optimizers[place % len(optimizers)] == row.optimizer:
            yield row


def run(row: Row) -> dict[str, float]:
    """Train 50 steps, and say how far the invariants are from holding (0 each where they do)."""
    torch.manual_seed(0)
    model = small_network()
    optimizer = OPTIMIZERS[row.optimizer](model.parameters(), **VARIANTS[row.variant])
    sparsifier = Sparsifier(
        model,
        optimizer,
        method=row.method,
        density=0.3,
        distribution=EXPLICIT if row.distribution == "explicit" else row.distribution,
        structure=row.structure,
        schedule=METHODS[row.method],
        seed=3,
    )
    weights = dict(model.named_parameters())
    worst = {"revived": 0, "unclean": 0}
    updates = 0
    for step in range(STEPS):
        before = {name: mask.clone() for name, mask in sparsifier.masks.items()}
        train_step(model, optimizer, step)
        updates += sparsifier.step()
        for name, mask in sparsifier.masks.items():
            kept = [
                weights[name].detach(),
                *(v for _, v in state_tensors(optimizer, weights[name])),
            ]
            grown = mask & ~before[name]
            worst["revived"] += sum(int(tensor[~mask].count_nonzero()) for tensor in kept)
            worst["unclean"] += sum(int(tensor[grown].count_nonzero()) for tensor in kept)
    structure = sparsifier.structure
    off, empty, broken = 0, 0, 0
    for name, mask in sparsifier.masks.items():
        shape, asked = tuple(mask.shape), sparsifier.densities[name]
        units = structure.gather(mask)
        missed = abs(int(units.sum()) - structure.count(shape, asked))
        off += max(0, missed - structure.slack(shape))
        empty += not mask.any()
        broken += int((structure.spread(units, shape) != mask).sum())
        if isinstance(structure, NofM) and asked < 1:
            most = structure.n or -(-asked * structure.m // 1)
            broken += int((units.sum(1) > most).sum())
        moved = isinstance(structure, TileWise) and structure.columns and row.method == "magnitude"
        if isinstance(structure, TileWise) and not moved:
            broken += split_segments(structure, mask)
    finite = all(bool(weight.isfinite().all()) for weight in weights.values())
    wrong = {"off_count": off, "empty": empty, "broken_units": broken, "not_finite": not finite}
    return {**wrong, **worst, "updates": updates}


def split_segments(structure: TileWise, mask: torch.Tensor) -> int:
    """Weights that are live in segments that are not whole; the ones kept singly are allowed.

    (Where gradual pruning has moved tiles, segments keep holes: those masks are not looked at.)
    """
    live = mask.flatten(1)
    if structure.restore:
        return 0
    tiles = (live[live.any(1)] if structure.columns else live).split(structure.width)
    return sum(int((tile != tile[:1]).sum()) for tile in tiles)


def table(chosen: Iterator[Row]) -> pd.DataFrame:
    """Run rows, one line each."""
    return pd.DataFrame([{**vars(row), **run(row)} for row in chosen])


if __name__ == "__main__":
    torch.set_num_threads(1)
    frame = table(rows())
    print(frame.to_string(index=False))
    wrong = frame[["off_count", "empty", "broken_units", "not_finite", "revived", "unclean"]]
    print(f"{len(frame)} combinations of {STEPS} steps; {int((wrong.sum(axis=1) > 0).sum())} wrong")
