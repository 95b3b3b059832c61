"""Predicted against measured time of products, on this machine as it is and as it emulates.

``python -m tests.benchmarks.predictions [--quick]`` calibrates 4 workers, predicts products that
move from 1 to 64 MB, and measures them: what a person waits for ``A @ B``, launch included. In
every round the cluster is calibrated anew and each product runs, since a shared machine is faster
in one minute than in the next. A product's error is the median over rounds of predicted over
measured in the same round. Then the same on 2 emulated nodes of 2 ranks, whose network is given and
not measured: of the calibration only the rate of the ranks' kernels and the time of a launch are
put in. Exits 1 where the median error over the products is too large.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

import dtoolkit as dt
from tests.benchmarks.common import Check, machine, options, table, verdict

ROWS, DEGREE, WORKERS = 50_000, 16, 4
MEGABYTES = (1, 2, 4, 8, 16, 32, 64)
SMALL = (100_000, 1_000_000)  # bytes that all send at once, where the network is known
REPEATS = 3  # of one product in one round, of which the median counts
NETWORK = dt.comm.Network.two_tier(
    nodes=2,
    ranks_per_node=2,
    inter="40MB/s",
    intra="200MB/s",
    inter_latency="2ms",
    intra_latency="500us",
    node="60MB/s",
)


@dataclass(frozen=True)
class Found:
    """A product's predicted and measured seconds by round."""

    case: Case
    predicted: list[float]
    measured: list[float]

    @property
    def error(self) -> float:
        """Median over rounds of predicted over measured, less 1."""
        pairs = zip(self.predicted, self.measured, strict=True)
        return statistics.median(p / m for p, m in pairs) - 1


@dataclass(frozen=True)
class Case:
    """One product."""

    plan: dt.spmm.Plan
    columns: int
    label: str
    run: Callable[[], object]

    @property
    def moved(self) -> float:
        return self.plan.bytes(self.columns, "float32") / 1e6


def matrices() -> dict[str, sp.csr_array]:
    return {
        name: dt.data.power_law(ROWS, DEGREE, seed=0, local=local, values="normal")
        for name, local in (("scattered", None), ("local", 2_000))
    }


def cases(
    cluster: dt.Cluster, strategies: Sequence[str], sizes: Sequence[int], **where: Any
) -> list[Case]:
    """Products that move so many megabytes: the columns are chosen for it."""
    made = []
    for name, A in matrices().items():
        for strategy in strategies:
            plan = dt.plan(A, parts=WORKERS, strategy=strategy, **where)
            dA = dt.distribute(cluster, A.astype("float32"), plan)
            columns = [max(1, round(size * 1e6 / plan.bytes(1, "float32"))) for size in sizes]
            for k in sorted({k for k in columns if k <= 256}):
                dB = dt.distribute(cluster, np.ones((ROWS, k), np.float32), plan)
                label = f"{name}, {strategy}, {k} columns"
                made.append(Case(plan, k, label, lambda dA=dA, dB=dB: dA @ dB))
    return made


def compare(
    products: Sequence[Case], rounds: int, network_of: Callable[[int], dt.comm.Network]
) -> list[Found]:
    """Predict and measure each product once a round, starting with another one each round."""
    found = [Found(case, [], []) for case in products]
    for case in products:
        case.run()  # compiles, and finds its buffers
    for turn in range(rounds):
        network = network_of(turn)
        start = turn * len(found) // rounds
        for one in found[start:] + found[:start]:
            case = one.case
            one.predicted.append(case.plan.predict(network, k=case.columns).seconds)
            one.measured.append(statistics.median(clock(case.run) for _ in range(REPEATS)))
    return found


def clock(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def report(title: str, found: Sequence[Found]) -> float:
    """Print a table; give the median error."""
    print(f"\n{title}")
    lines = [
        (
            one.case.label,
            f"{one.case.moved:.2f}",
            f"{1e3 * statistics.median(one.predicted):.1f}",
            f"{1e3 * statistics.median(one.measured):.1f}",
            f"{one.error:+.0%}",
        )
        for one in found
    ]
    print(table(lines, ("", "MB moved", "predicted ms", "measured ms", "error")))
    median = statistics.median(abs(one.error) for one in found)
    print(f"median error {median:.1%}")
    return median


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    rounds = chosen.rounds or (3 if chosen.quick else 7)
    sizes = MEGABYTES[::3] if chosen.quick else MEGABYTES
    print(machine())

    with dt.Cluster(workers=WORKERS, device="cpu") as cluster:

        def measured(turn: int) -> dt.comm.Network:
            return dt.cluster.calibrate(cluster, seconds=2.0, seed=turn)

        products = cases(cluster, ("oblivious", "column", "joint"), sizes)
        own = report("as it is", compare(products, rounds, measured))

    with dt.Cluster(workers=WORKERS, device="cpu", emulate=NETWORK) as cluster:

        def given(turn: int) -> dt.comm.Network:
            found = dt.cluster.calibrate(cluster, seconds=2.0, sizes=SMALL, seed=turn)
            return replace(NETWORK, rate=found.rate, overhead=found.overhead)

        strategies = ("column", "joint", "hier-joint", "node-pair")
        products = cases(cluster, strategies, sizes, ranks_per_node=2)
        title = f"emulated: {NETWORK.name}"
        emulated = report(title, compare(products, rounds, given))
    return verdict(
        [
            Check("median error, as it is", own, 0.25),
            Check("median error, emulated", emulated, 0.15),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
