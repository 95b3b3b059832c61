"""DropCompute on 4 real workers with heavy-tailed delays, against synchronous data parallel.

``python -m tests.benchmarks.dropcompute [--quick]`` prints what was measured beside the simulation
of the same rule on the same delays, and exits 1 where a must is missed. A micro-batch takes 25 ms
and a delay of 12.5 ms in the mean (`Slow`: workers sleep, so that they do not fight for cores), 12
micro-batches a step: in units of 25 ms the heavy-tailed times of the reference figures. The
threshold is chosen by the strategy in a run of its own. Then synchronous data parallel and
DropCompute train from the same start through the same steps with the same delays, 10 steps each in
turn; samples *really used* count, over the time from the first step to the end of the last. In the
end DropCompute goes on until it has used as many samples as the synchronous run, and their test
losses are compared: it has made more, smaller steps by then.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import dtoolkit as dt
from dtoolkit.faults import Slow
from dtoolkit.faults.delays import HeavyTail
from dtoolkit.training import Run, Task, train
from dtoolkit.training.dropcompute import best_threshold
from dtoolkit.training.dropsimulation import Simulated, best_simulated, simulate
from dtoolkit.training.strategies import DropCompute
from dtoolkit.training.tasks import sparse_logistic
from tests.benchmarks.common import Check, machine, options, table, verdict

WORKERS, PIECES = 4, 12
WARMUP, STEPS = 30, 10  # steps to choose the threshold, and of a round
SEED = 0
UNIT = 0.025  # seconds; long, so that what else the machine does weighs little
DELAY = HeavyTail(UNIT / 2)
FAULTS = [Slow(seconds=UNIT), Slow(delay=DELAY)]
LARGE = (8, 64, 200)
GAIN, NEAR, LOSS = 1.03, 0.05, 0.02


def task() -> Task:
    """10 batches an epoch, and in each 10 samples a micro-batch and worker."""
    return sparse_logistic(samples=6000, batch=PIECES * WORKERS * 10, lr=0.5)


@dataclass(frozen=True)
class Round:
    """The same steps, synchronous and with dropping."""

    threshold: float
    plain: Run
    drop: Run

    @cached_property
    def simulated(self) -> Simulated:
        """The same rule on the same delays, with the rest as measured in the synchronous steps.

        What a worker's step takes beyond its delays is spread over its micro-batches, and what a
        step takes beyond its slowest worker is the overhead.
        """
        steps = self.plain.history["step"]
        drawn = DELAY.table(
            SEED,
            workers=WORKERS,
            steps=len(steps),
            micro_batches=PIECES,
            first_step=int(steps.iloc[0]),
        )
        took = self.plain.history[[f"compute_{rank}" for rank in range(WORKERS)]].to_numpy().T
        times = drawn + (took - drawn.sum(axis=2))[:, :, None] / PIECES
        overhead = seconds(self.plain) / len(steps) - took.max(axis=0).mean()
        return simulate(times, self.threshold, rule="after", overhead=max(overhead, 0.0))

    @property
    def gain(self) -> float:
        """Samples used a second, over synchronous."""
        return rate(self.drop) / rate(self.plain)

    @property
    def dropped(self) -> float:
        """Share of the samples."""
        return 1 - used(self.drop) / used(self.plain)


def used(run: Run) -> int:
    """Samples that a run used."""
    return int(run.history["samples"].sum())


def seconds(run: Run) -> float:
    """From the first step to the end of the last one, on the last worker."""
    return float(run.history[[f"end_{rank}" for rank in range(WORKERS)]].iloc[-1].max())


def rate(run: Run) -> float:
    """Samples used a second."""
    return used(run) / seconds(run)


def race(cluster: dt.Cluster, threshold: float, rounds: int) -> tuple[list[Round], float]:
    """Train both ways in turn; and the loss with dropping over that without."""
    done: list[Round] = []
    runs: dict[str, Run | None] = {"plain": None, "drop": None}
    for turn in range(rounds):
        for name in ("plain", "drop") if turn % 2 else ("drop", "plain"):
            runs[name] = go_on(cluster, name, runs[name], STEPS, threshold)
        done.append(Round(threshold, runs["plain"], runs["drop"]))
    missing = sum(used(one.plain) - used(one.drop) for one in done)
    a_step = used(done[-1].drop) / STEPS
    longer = go_on(
        cluster, "drop", runs["drop"], 3 + int(missing / a_step), threshold, evaluate_every=1
    )
    counts = [0, *longer.history["samples"].cumsum()]
    losses = [done[-1].drop.history["test_loss"].iloc[-1], *longer.history["test_loss"]]
    loss = np.interp(missing, counts, losses)
    return done, float(loss / runs["plain"].history["test_loss"].iloc[-1])


def go_on(
    cluster: dt.Cluster, name: str, run: Run | None, steps: int, threshold: float, **more: Any
) -> Run:
    """Train some steps more."""
    return train(
        cluster,
        task(),
        "data-parallel" if name == "plain" else DropCompute(threshold),
        steps=steps + (0 if run is None else run.state.step),
        resume=run,
        seed=SEED,
        accumulate=PIECES,
        faults=FAULTS,
        timeout=300,
        **more,
    )


def choose(cluster: dt.Cluster) -> Run:
    """The run in which the strategy chooses the threshold."""
    return train(
        cluster,
        task(),
        DropCompute(warmup=WARMUP),
        steps=WARMUP + 2,
        seed=SEED + 1,
        accumulate=PIECES,
        faults=FAULTS,
        timeout=300,
    )


def drop_compute(rounds: int) -> list[Check]:
    """Measure, print, and say what must hold."""
    with dt.Cluster(workers=WORKERS, device="cpu") as cluster:
        summary = choose(cluster).summary
        done, loss = race(cluster, summary["threshold"], rounds)
    print(
        f"threshold {1e3 * summary['threshold']:.0f} ms, chosen in {WARMUP} steps, in which it "
        f"would have gained {summary['expected_gain']:.1%}"
    )
    rows = [
        (
            f"{STEPS * turn} to {STEPS * (turn + 1)}",
            f"{rate(one.plain):.0f}",
            f"{rate(one.drop):.0f}",
            f"{one.gain:.3f}",
            f"{one.simulated.speedup:.3f}",
            f"{one.dropped:.1%}",
            f"{one.simulated.dropped:.1%}",
        )
        for turn, one in enumerate(done)
    ]
    header = (
        "4 workers, steps",
        "synchronous",
        "DropCompute, samples/s",
        "gain",
        "simulated",
        "dropped",
        "simulated",
    )
    print(table(rows, header))
    print(table(simulations(), ("simulated", "cut at", "looking after", "dropped")))
    gain = statistics.median(one.gain for one in done)
    simulated = statistics.median(one.simulated.speedup for one in done)
    apart = statistics.median(one.gain / one.simulated.speedup for one in done)
    print(f"medians: gain {gain:.3f}, simulated {simulated:.3f}; loss over synchronous {loss:.3f}")
    return [
        Check("used samples a second, synchronous over DropCompute", 1 / gain, 1 / GAIN),
        Check("gain apart from the simulation's, %", 100 * abs(apart - 1), 100 * NEAR),
        Check("loss apart after as many used samples, %", 100 * abs(loss - 1), 100 * LOSS),
    ]


def simulations() -> list[tuple[str, ...]]:
    """Gains of more workers: 400 steps, all-reduce and update of half a unit, the rule's threshold.

    "looking after" is the best threshold of workers that look after each micro-batch.
    """
    rows = []
    for workers in (WORKERS, *LARGE):
        times = 1 + HeavyTail(0.5).table(0, workers=workers, steps=400, micro_batches=PIECES)
        cut = simulate(times, best_threshold(times, overhead=0.5), overhead=0.5)
        after = best_simulated(times, rule="after", overhead=0.5)
        rows.append(
            (
                f"{workers} workers",
                f"{cut.speedup:.3f}",
                f"{after.speedup:.3f}",
                f"{cut.dropped:.1%}, {after.dropped:.1%}",
            )
        )
    return rows


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    print(machine())
    return verdict(drop_compute(chosen.rounds or (4 if chosen.quick else 12)))


if __name__ == "__main__":
    sys.exit(main())
