"""STREAM on workers against one process: ``python -m tests.benchmarks.stream [--quick]``.

Copy, scale, add and triad on vectors of 2**22 float64 elements a worker, with 1, 2 and 4 workers,
on block and cyclic maps, beside torch and NumPy in this process with one thread, all in every
round. NumPy has no kernel for triad in one pass: it takes two. GB/s are nominal, of the best trial
of a round, medians over rounds; for several workers together from the first one's start to the
last one's end. Ends with 1 if a result is not exact, if anything was sent while kernels were timed,
or if a worker alone needs more than 1.25 times torch's time in this process.
"""

from __future__ import annotations

import math
import statistics
import sys
import time

import numpy as np
import torch

import dtoolkit as dt
from dtoolkit.arrays.stream import KERNELS, PASSES, StreamResult, run_kernel, stream
from tests.benchmarks.common import Check, machine, options, table, verdict

LG, TRIALS = 22, 10
MUST, GOAL = 1.25, 1.05
Q = math.sqrt(2) - 1


def main() -> int:
    chosen = options(__doc__)
    rounds = chosen.rounds or (2 if chosen.quick else 10)
    torch.set_num_threads(1)
    print(f"{machine()}\n2**{LG} float64 a worker, medians of {rounds} rounds of {TRIALS} trials")
    rates: dict[str, dict[str, list[float]]] = {}
    ratios: dict[str, list[float]] = {name: [] for name in KERNELS}
    errors: list[float] = []
    sent = 0
    for workers in (1, 2, 4):
        with dt.Cluster(workers=workers, device="cpu") as cluster:
            for _ in range(rounds):
                alone = in_torch()
                note(rates, "torch, this process", alone)
                note(rates, "NumPy, this process", in_numpy())
                for layout in ("block", "cyclic"):
                    result = stream(cluster, lg=LG, trials=TRIALS, layout=layout)
                    errors.append(result.error / result.tolerance)
                    sent += result.bytes_sent
                    note(rates, f"{workers} workers, {layout}", together(result))
                    if workers == 1 and layout == "block":
                        for name, rate in together(result).items():
                            ratios[name].append(alone[name] / rate)
    lines = [
        (case, *(f"{statistics.median(found[name]):.1f}" for name in KERNELS))
        for case, found in rates.items()
    ]
    print(table(lines, ("GB/s", *KERNELS)))
    checks = [
        Check(f"{name}, one worker over torch here", statistics.median(found), MUST, GOAL)
        for name, found in ratios.items()
    ]
    checks.append(Check("largest error over the allowed", max(errors), 1.0))
    checks.append(Check("bytes sent while timed", sent, 0.0))
    return verdict(checks)


def note(rates: dict[str, dict[str, list[float]]], case: str, found: dict[str, float]) -> None:
    """Add a round's rates to those of a case."""
    for name, rate in found.items():
        rates.setdefault(case, {}).setdefault(name, []).append(rate)


def together(result: StreamResult) -> dict[str, float]:
    """Rates of all workers at once."""
    return {name: float(rate) for name, rate in result.bandwidth("cluster").loc["all"].items()}


def in_torch() -> dict[str, float]:
    """Rates of the same calls in this process."""
    A, B, C = torch.ones(1 << LG, dtype=torch.float64), *torch.zeros(2, 1 << LG).double()
    return {name: best(lambda name=name: run_kernel(name, A, B, C, Q), name) for name in KERNELS}


def in_numpy() -> dict[str, float]:
    """Rates of NumPy in this process, in place."""
    A, B, C = np.ones(1 << LG), np.zeros(1 << LG), np.zeros(1 << LG)

    def triad() -> None:
        np.multiply(C, Q, out=A)
        np.add(A, B, out=A)

    kernels = {
        "copy": lambda: np.copyto(C, A),
        "scale": lambda: np.multiply(C, Q, out=B),
        "add": lambda: np.add(A, B, out=C),
        "triad": triad,
    }
    return {name: best(kernels[name], name) for name in KERNELS}


def best(kernel, name: str) -> float:
    """Nominal GB/s of the best of the trials."""
    seconds = []
    for _ in range(TRIALS):
        began = time.perf_counter()
        kernel()
        seconds.append(time.perf_counter() - began)
    return PASSES[name] * 8 * (1 << LG) / min(seconds) / 1e9


if __name__ == "__main__":
    sys.exit(main())
