"""AsyncMesh, 2 stages x 2 replicas, against fully synchronous over a slow emulated network.

``python -m tests.benchmarks.asyncmesh [--quick]`` trains the byte-level language model on 4 real
workers, whose messages are held back as by a network of 50 Mb/s and 10 ms, and exits 1 where a must
is missed. All begin with the same weights, draw the same batches, and are scored by the test loss
of the mean of their replicas. What is compared is the time of steps until the target is reached
(evaluations are left out), and the bytes sent in them. Besides the two: averages that are waited
for (SPARTA) and rounds (DiLoCo), on a synchronous pipeline. ``--figure FILE.html`` writes
:func:`dtoolkit.figures.time_to_loss`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import dtoolkit as dt
from dtoolkit import figures
from dtoolkit.comm import Network
from dtoolkit.training import Run, Task, tasks
from dtoolkit.training.strategies import AsyncMesh
from tests.benchmarks.common import Check, machine, table, verdict

WORKERS, STAGES = 4, 2
EVERY = 20  # steps between evaluations
TARGET = {True: 2.6, False: 2.3}  # nats a byte, quick or not


@dataclass(frozen=True)
class Rival:
    """How workers learn, and in how many micro-batches."""

    mesh: AsyncMesh
    accumulate: int
    steps: int


def task() -> Task:
    """A transformer of 237,000 numbers in two stages."""
    return tasks.text(
        width=64, layers=4, heads=4, context=64, test_bytes=16_384, tied=False, batch=16
    )


def rivals(*, quick: bool) -> dict[str, Rival]:
    """Fully synchronous first; then what waits less."""
    steps = 80 if quick else 240
    waits: dict[str, Any] = {"pipeline": "sync", "optimizer": "adamw"}
    chosen = {
        "fully synchronous": Rival(AsyncMesh(STAGES, averaging="gradients", **waits), 2, steps),
        "AsyncMesh": Rival(AsyncMesh(STAGES, optimizer="nadam"), 1, steps * 4 // 3),
    }
    if not quick:
        chosen["SPARTA"] = Rival(AsyncMesh(STAGES, averaging="plain", delay=0, **waits), 2, steps)
        chosen["DiLoCo, 20 steps"] = Rival(AsyncMesh(STAGES, averaging="rounds", **waits), 2, steps)
    return chosen


def trained(cluster: dt.Cluster, rival: Rival) -> Run:
    """One run."""
    return dt.train(
        cluster,
        task(),
        rival.mesh,
        steps=rival.steps,
        seed=0,
        accumulate=rival.accumulate,
        evaluate_every=EVERY,
        timeout=200,
    )


def words(name: str, run: Run, target: float) -> tuple[str, ...]:
    """The table's row."""
    costs = figures.loss_costs(run)
    there = costs[costs["test_loss"] <= target]
    step, seconds, nbytes = ("never",) * 3
    if len(there):
        first = there.iloc[0]
        step, seconds = str(int(first["step"])), f"{first['seconds']:.1f}"
        nbytes = f"{first['bytes'] / 1e6:.0f}"
    history = run.history
    return (
        name,
        f"{1e3 * history['seconds'].median():.0f}",
        f"{1e3 * history['idle'].median():.0f}",
        f"{history['bytes'].sum() / len(history) / 1e6:.2f}",
        step,
        seconds,
        nbytes,
        f"{costs['test_loss'].iloc[-1]:.3f}",
    )


def spent(run: Run, target: float, what: str) -> float:
    """Seconds or bytes until a run reached the target; infinite where it did not."""
    costs = figures.loss_costs(run)
    there = costs[costs["test_loss"] <= target]
    return float(there[what].iloc[0]) if len(there) else float("inf")


def compare(*, quick: bool, figure: str | None) -> list[Check]:
    """Train with all, print, and say what must hold."""
    network, target = Network.flat(WORKERS, bandwidth="50Mb/s", latency="10ms"), TARGET[quick]
    with dt.Cluster(workers=WORKERS, device="cpu", emulate=network) as cluster:
        runs = {name: trained(cluster, one) for name, one in rivals(quick=quick).items()}
    head = (
        "50 Mb/s, 10 ms (emulated)", "ms a step", "waiting", "MB a step", f"steps to {target}",
        "s to it", "MB to it", "test loss at the end",
    )  # fmt: skip
    print(table([words(name, run, target) for name, run in runs.items()], head))
    if figure is not None:
        figures.time_to_loss(runs, target).write_html(figure, include_plotlyjs=True)
    slow, fast = runs["fully synchronous"], runs["AsyncMesh"]
    return [
        Check(f"{what} to {target} nats a byte, AsyncMesh over synchronous", ratio, must, goal)
        for what, ratio, must, goal in (
            ("seconds", spent(fast, target, "seconds") / spent(slow, target, "seconds"), 0.6, 0.35),
            ("bytes", spent(fast, target, "bytes") / spent(slow, target, "bytes"), 0.5, 0.35),
        )
    ]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two runs to a nearer target")
    parser.add_argument("--figure", help="write the figure there, as HTML")
    chosen = parser.parse_args()
    print(machine())
    return verdict(compare(quick=chosen.quick, figure=chosen.figure))


if __name__ == "__main__":
    sys.exit(main())
