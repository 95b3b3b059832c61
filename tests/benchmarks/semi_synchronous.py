"""Unequal workers: rounds with the ESync rule against lock step, staleness bounds and no bound.

``python -m tests.benchmarks.semi_synchronous [--quick]`` trains digits on 4 real workers, of which
each is twice as slow as the one before (`Slow`: they sleep, so that they do not fight for cores),
and exits 1 where a must is missed. Every strategy starts from the same model and goes on for as
many samples. Utilisation is the share of a step's time in which a worker computes or sleeps as if
it did, over the time of all steps; bytes are what ranks have sent when the test accuracy first
reaches the target. Momentum makes stale gradients costly, which is why the last rows are there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import dtoolkit as dt
from dtoolkit.faults import Slow
from dtoolkit.training import Run, Task, tasks
from tests.benchmarks.common import Check, machine, options, table, verdict

WORKERS = 4
UNIT = 0.01  # seconds that a micro-batch of the fastest worker takes, beside its computation
TARGET = 0.94
EVERY = 4  # steps between evaluations
SLOW = [Slow(rank=rank, seconds=UNIT * 2**rank) for rank in range(WORKERS)]
LOCK_STEP, ROUNDS, FREE = "data-parallel", "oscars", "parameter-server-async"
NAMES = (LOCK_STEP, "parameter-server", ROUNDS, "bounded-staleness", FREE)


def task() -> Task:
    """Digits with momentum."""
    return tasks.digits(optimizer=partial(torch.optim.SGD, lr=0.2, momentum=0.9))


@dataclass(frozen=True)
class Row:
    """What one strategy did."""

    run: Run

    @property
    def utilisation(self) -> float:
        """Share of the steps' time in which workers computed."""
        done = self.run.by_worker()
        return float(done["compute"].sum() / done["seconds"].sum())

    @property
    def reached(self) -> int | None:
        """Steps after which the target was first reached."""
        scores = self.run.history["test_accuracy"].dropna()
        good = scores[scores >= TARGET]
        return None if good.empty else int(good.index[0]) + 1

    @property
    def megabytes(self) -> float:
        """Sent until then: bytes a step are constant."""
        if self.reached is None:
            return float("inf")
        return float(self.run.trace.total) * self.reached / self.run.state.step / 1e6

    @property
    def accuracy(self) -> float:
        """At the end."""
        return float(self.run.history["test_accuracy"].dropna().iloc[-1])

    def words(self, name: str) -> tuple[str, ...]:
        """The table's row."""
        done = self.run.by_worker()
        counts = done.groupby("worker")["local_steps"].sum().astype(int).tolist()
        return (
            name,
            str(int(done["samples"].sum())),
            "/".join(map(str, counts)),
            f"{self.utilisation:.2f}",
            "never" if self.reached is None else f"{self.reached}",
            f"{self.megabytes:.2f}",
            f"{self.accuracy:.3f}",
            f"{int(done['staleness'].max())}",
            f"{self.run.seconds:.1f}",
        )


def trained(cluster: dt.Cluster, strategy: str, steps: int) -> Row:
    """Train with a strategy on the unequal workers."""
    # A round uses about three times the samples of a step: 7 + 3 + 1 + 1 shares where a step has 4.
    count = max(EVERY, steps // 3) if strategy == ROUNDS else steps
    run = dt.train(
        cluster, task(), strategy, steps=count, seed=0, faults=SLOW, evaluate_every=EVERY
    )
    return Row(run)


def study(steps: int) -> list[Check]:
    """Train with all, print, and say what must hold."""
    with dt.Cluster(workers=WORKERS, device="cpu") as cluster:
        rows: dict[str, Any] = {name: trained(cluster, name, steps) for name in NAMES}
    head = (
        "strategy", "samples", "local steps", "utilisation", f"steps to {TARGET}", "MB to it",
        "accuracy at the end", "staleness", "seconds",
    )  # fmt: skip
    print(table([row.words(name) for name, row in rows.items()], head))
    return [
        Check(
            "utilisation, lock step over rounds",
            rows[LOCK_STEP].utilisation / rows[ROUNDS].utilisation,
            0.9,
        ),
        Check(
            f"MB until {TARGET}, rounds over lock step",
            rows[ROUNDS].megabytes / rows[LOCK_STEP].megabytes,
            0.9,
        ),
        Check(
            "accuracy, no bound over rounds",
            rows[FREE].accuracy / rows[ROUNDS].accuracy,
            1.0,
        ),
    ]


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    print(machine())
    return verdict(study(36 if chosen.quick else 72))


if __name__ == "__main__":
    sys.exit(main())
