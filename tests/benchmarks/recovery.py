"""Recovery: what stacks endure and cost, policies under simulated failures, and real ones.

``python -m tests.benchmarks.recovery [--quick]`` prints the closed forms of stacked parallelism
beside simulation, and the time to train of three policies for 200, 600 and 1,000 groups beside the
paper's table (SPARe, arXiv 2603.00357), with the rules that were assumed; it exits 1 where a must
is missed. Simulated means of 4 seeds (``--rounds``), 10,000 steps each; quick: one seed. None of
that is measured on a clock, so that every machine prints the same figures. What is measured comes
last (:mod:`tests.benchmarks.recovery_times`): how soon training on four workers notices a lost or
hung one, and goes on.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass

import numpy as np

from dtoolkit.training import stacked
from dtoolkit.training.stacked.conditions import Patch
from dtoolkit.training.stacked.settling import settle
from tests.benchmarks.common import Check, machine, options, table, verdict
from tests.benchmarks.recovery_times import measured

GROUPS = (200, 600, 1000)
MARKS = {200: 11, 600: 18, 1000: 22}
BEST = {200: 8, 600: 10, 1000: 10}
ENDURED = {(600, 9): 280.8, (600, 15): 378.0, (600, 20): 427.0, (200, 9): 106.0}
PAPER = {200: (6.07, 2.92), 600: (4.27, 2.49), 1000: (3.88, 2.34)}  # replication, stacked
KNOWN_CUTS = {"free": (0.48, 0.39, 0.35), "always": (0.34, 0.22, 0.17)}
PATCHES: tuple[Patch, ...] = ("needed", "free", "always")


def closed_forms() -> list[Check]:
    """Rulers, losses endured, best redundancy, and how often S is above what is left."""
    rows, far = [], 0.0
    for (n, r), known in ENDURED.items():
        formula = stacked.endurable(n, r)
        found = stacked.endurable(n, r, method="simulated", trials=4000)
        far = max(far, abs(found / formula - 1))
        rows.append((f"{n} groups, r = {r}", f"{formula:.1f}", f"{found:.1f}", f"{known:.1f}"))
    print(table(rows, ("losses endured", "formula", "simulated", "known")))
    best = {n: stacked.best_redundancy(n) for n in GROUPS}
    marks = {n: len(stacked.greedy_ruler(n)) for n in GROUPS}
    print(f"best redundancy {best}; marks of the greedy ruler {marks}")
    ruled, consecutive = (above(offsets) for offsets in (None, range(9)))
    print(f"S above ceil(N / (N - k)), N = 200, r = 9: ruler {ruled:.1%}, else {consecutive:.1%}")
    return [
        Check("losses endured apart from the formula, %", 100 * far, 2.0),
        Check("numbers of groups with another best redundancy", _other(best, BEST), 0),
        Check("numbers of groups with another greedy ruler", _other(marks, MARKS), 0),
        Check("steps in which a ruler needs more than is left, %", 100 * ruled, 0.0),
        Check("consecutive offsets: % of steps apart from 22", abs(100 * consecutive - 22), 3.0),
    ]


def above(offsets: range | None) -> float:
    """Share of the losses after which S is above ceil(N / (N - k)); 60 random orders of losses."""
    n, r = 200, 9
    stacks, more, steps = stacked.placement(n, r, offsets=offsets), 0, 0
    for seed in range(60):
        alive, order, S = np.ones(n, np.bool_), stacks.table, 1
        for lost, group in enumerate(np.random.default_rng(seed).permutation(n), 1):
            alive[group] = False
            settled = settle(order, alive, S)
            if settled is None:
                break
            order, S, _ = settled
            more, steps = more + (stacked.fewest_computed(n, lost) < S), steps + 1
    return more / steps


@dataclass(frozen=True)
class Row:
    """Means over seeds: time over the ideal by policy, and what stacks save against replication."""

    groups: int
    patch: Patch
    checkpoint: float
    replication: float
    stacked: float
    cut: float


def policies(seeds: int) -> list[Check]:
    """Simulate the paper's table under each rule for patches."""
    rows = [row(n, patch, seeds) for patch in PATCHES for n in GROUPS]
    print("assumed, with patches needed:")
    for rule in stacked.simulate(200, steps=1).assumptions:
        print(f"  {rule}")
    lines = []
    for one in rows:
        paper = PAPER[one.groups]
        lines.append(
            (
                f"{one.groups}, patches {one.patch}",
                f"{one.checkpoint:.2f}",
                f"{one.replication:.2f}",
                f"{one.stacked:.2f}",
                f"{one.cut:.1%}",
                f"{paper[0]:.2f}",
                f"{paper[1]:.2f}",
                f"{1 - paper[1] / paper[0]:.1%}",
            )
        )
    head = ("groups", "checkpoints", "replication", "stacked", "cut", "paper's", "stacked", "cut")
    print(table(lines, head))
    checks = [
        Check(
            "policies in another order",
            sum(not one.stacked < one.replication < one.checkpoint for one in rows),
            0,
        ),
        Check(
            "stacked over replication at most, with patches needed",
            max(1 - one.cut for one in rows if one.patch == "needed"),
            0.85,
        ),
    ]
    for patch, known in KNOWN_CUTS.items():
        own = [one.cut for one in rows if one.patch == patch]
        far = max(abs(a - b) for a, b in zip(own, known, strict=True))
        checks.append(Check(f"cuts with patches {patch}, points apart", 100 * far, 4.0))
    return checks


def row(n: int, patch: Patch, seeds: int) -> Row:
    """One line of the table."""
    runs = [stacked.simulate(n, patch=patch, seed=seed) for seed in range(seeds)]
    ratios = (
        statistics.mean(run[policy].ratio for run in runs)
        for policy in ("checkpoint", "replication", "stacked")
    )
    return Row(n, patch, *ratios, statistics.mean(run.cut for run in runs))


def _other(found: dict[int, int], known: dict[int, int]) -> int:
    return sum(found[n] != known[n] for n in known)


def main() -> int:
    """Simulate, print, judge."""
    chosen = options(__doc__)
    print(machine())
    simulated = [*closed_forms(), *policies(chosen.rounds or (1 if chosen.quick else 4))]
    return verdict([*simulated, *measured(quick=chosen.quick)])


if __name__ == "__main__":
    sys.exit(main())
