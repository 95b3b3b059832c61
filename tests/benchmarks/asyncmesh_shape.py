"""What delays do to learning: the shapes that AsyncMesh (arXiv 2601.22442) is about.

``python -m tests.benchmarks.asyncmesh_shape [--quick]`` needs no workers: meshes are simulated in
this process, with exact delays. It exits 1 where a shape is missed. Over three seeds (one with
``--quick``): the byte-level language model in pipelines of 1, 2, 4 and 8 stages without flush, by
NAdam with its look-ahead and by AdamW; the three rules of merging late averages under a constant
drift; and, as it is, the noisy quadratic, on which the moving average gains with long delays alone.
"""

from __future__ import annotations

import statistics
import sys
from itertools import product

import torch

from dtoolkit.training import Task, mesh, tasks
from dtoolkit.training.mesh import Rule
from dtoolkit.training.strategies import AsyncMesh
from tests.benchmarks.common import Check, machine, options, table, verdict

STAGES = (1, 2, 4, 8)
STEPS = 300
LAST = 50  # steps whose mean loss counts
DELAYS = (5, 10, 15, 19)


def task() -> Task:
    """A transformer that can be cut into eight stages."""
    return tasks.text(
        width=32, layers=6, heads=2, context=32, train_bytes=300_000, tied=False, batch=16
    )


def pipelines(seeds: range) -> list[Check]:
    """Loss by stages: near synchronous with NAdam, worse and worse with AdamW."""
    found = {
        (name, stages): [
            statistics.fmean(
                mesh.simulate(
                    task(), AsyncMesh(stages, optimizer=name), steps=STEPS, seed=seed
                ).losses[-LAST:]
            )
            for seed in seeds
        ]
        for name, stages in product(("nadam", "adamw"), STAGES)
    }
    loss = {key: statistics.fmean(values) for key, values in found.items()}
    rows = []
    for name in ("nadam", "adamw"):
        more = [loss[name, stages] - loss[name, 1] for stages in STAGES]
        cells = [f"{loss[name, s]:.3f} (+{m:.3f})" for s, m in zip(STAGES, more, strict=True)]
        rows.append((name, *cells))
    head = (
        f"nats a byte after {STEPS} steps",
        "1 stage",
        *(f"{stages} stages" for stages in STAGES[1:]),
    )
    print(table(rows, head))
    late = {name: [loss[name, s] - loss[name, 1] for s in STAGES[1:]] for name, _ in loss}
    return [
        *(
            Check(
                f"{stages} stages: what NAdam loses over what AdamW loses",
                late["nadam"][place] / late["adamw"][place],
                0.75,
            )
            for place, stages in enumerate(STAGES[1:])
        ),
        *(
            Check(
                f"AdamW: what {a} stages lose over what {b} lose",
                late["adamw"][place] / late["adamw"][place + 1],
                0.9,
            )
            for place, (a, b) in enumerate(((2, 4), (4, 8)))
        ),
    ]


def drift() -> list[Check]:
    """Speed under a constant drift of one a step."""
    rows, checks = [], []
    for fixed in (True, False):
        for kind in ("plain", "update", "ema"):
            speeds = [mesh.drift_speed(Rule(kind, 0.05, delay, fixed=fixed)) for delay in DELAYS]
            order = "kept" if fixed else "drawn anew"
            rows.append((f"{kind}, order {order}", *(f"{speed:.3f}" for speed in speeds)))
            if fixed or kind != "plain":
                wanted = [1 - 0.05 * d if kind == "plain" else 1.0 for d in DELAYS]
                off = max(abs(a - b) for a, b in zip(speeds, wanted, strict=True))
                checks.append(Check(f"{kind}, order {order}: off by", off, 1e-9))
    print(table(rows, ("speed under drift, share 0.05", *(f"delay {delay}" for delay in DELAYS))))
    return checks


def quadratic(seeds: range) -> list[Check]:
    """Loss of the mean model on the noisy quadratic."""
    loss = {
        (kind, delay): statistics.fmean(
            mesh.noisy_quadratic(Rule(kind, 0.05, delay), seed=seed) for seed in seeds
        )
        for kind, delay in product(("plain", "ema", "update"), (10, 50))
    }
    rows = [
        (kind, f"{loss[kind, 10]:.2f}", f"{loss[kind, 50]:.2f}")
        for kind in ("plain", "ema", "update")
    ]
    print(table(rows, ("noisy quadratic, loss", "delay 10", "delay 50")))
    return [
        Check("delay 10: plain over the moving average", loss["plain", 10] / loss["ema", 10], 0.97),
        Check("delay 50: the moving average over plain", loss["ema", 50] / loss["plain", 50], 0.97),
    ]


def main() -> int:
    """Simulate, print, judge."""
    chosen = options(__doc__)
    torch.set_num_threads(1)
    seeds = range(1 if chosen.quick else 3)
    print(machine())
    return verdict([*drift(), *quadratic(seeds), *pipelines(seeds)])


if __name__ == "__main__":
    sys.exit(main())
