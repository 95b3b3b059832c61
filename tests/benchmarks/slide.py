"""SLIDE against the full softmax, in one process and over workers behind a slow network.

``python -m tests.benchmarks.slide [--quick]`` trains a network of sparse features, 128 hidden units
and 100,000 or 1,000,000 classes on planted samples, batch 256, in one process on two threads. The
output layer is hashed (DWTA, as many hash functions as give about 1,000 active neurons a sample),
with the row-sparse Adam, or full, by torch's products and torch's fused Adam; the hidden layer is
the same in both. In every round runs a period of 50 steps of SLIDE, hashing and the making of new
tables included, and a few steps of the full softmax; figures are medians over rounds of ratios
within a round. Exits 1 if SLIDE has not 4 times the samples a second at 100,000 classes and 15
times at 1,000,000, or if its step takes 3 times as long there. Then come D-SLIDE and dense data
parallel (:mod:`tests.benchmarks.dslide`, which runs by itself too).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from dtoolkit.data import extreme
from dtoolkit.training.slide import FullLinear, RowSparseAdam, SlideLinear
from dtoolkit.training.slide.model import SlideModel
from dtoolkit.training.sparse_examples import SparseExamples
from tests.benchmarks import dslide
from tests.benchmarks.common import Check, machine, options, table, verdict

FEATURES, HIDDEN, BATCH, SAMPLES, RATE = 20_000, 128, 256, 12_800, 0.001
PERIOD = 50  # steps from one making of the tables to the next: SLIDE's first and shortest


@dataclass(frozen=True)
class Size:
    """So many classes, and what gives about 1,000 active neurons there."""

    classes: int
    tables: int
    hashes: int
    full_steps: int
    must: float


SIZES = (Size(100_000, 47, 4, 3, 1 / 4), Size(1_000_000, 36, 5, 1, 1 / 15))


class Training:
    """A network, its optimizers and its batches."""

    def __init__(self, size: Size, batches: list, *, full: bool) -> None:
        torch.manual_seed(0)
        refresh = (PERIOD, 0.0)
        slide = partial(SlideLinear, tables=size.tables, hashes=size.hashes, refresh=refresh)
        self.model = SlideModel(FEATURES, HIDDEN, size.classes, FullLinear if full else slide)
        output = self.model.output.parameters()
        adam = partial(torch.optim.Adam, fused=True) if full else RowSparseAdam
        self.optimizers = [
            RowSparseAdam(self.model.hidden.parameters(), lr=RATE),
            adam(output, lr=RATE),
        ]
        self.batches = self._endless(batches)

    def run(self, steps: int) -> float:
        """Seconds of a step."""
        start = time.perf_counter()
        for _ in range(steps):
            self.model.loss(*next(self.batches)).mean().backward()
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return (time.perf_counter() - start) / steps

    def _endless(self, batches: list) -> Iterator:
        while True:
            yield from batches


def measure(size: Size, rounds: int) -> tuple[list[tuple[str, ...]], float, float]:
    """Rows of the table; SLIDE's share of the full softmax's time; its seconds."""
    data = extreme(size.classes, FEATURES, SAMPLES, seed=0, test=0.0)
    examples = SparseExamples(data.matrix, data.labels)
    batches = [examples.take(ids) for ids in torch.arange(SAMPLES).split(BATCH)]
    slide, full = (Training(size, batches, full=one) for one in (False, True))
    slide.run(PERIOD)
    full.run(1)
    layer = slide.model.output
    layer.retrieval.reset()
    pairs = [(slide.run(PERIOD), full.run(size.full_steps)) for _ in range(rounds)]
    share = statistics.median(a / b for a, b in pairs)
    seconds = [statistics.median(one) for one in zip(*pairs, strict=True)]
    active = layer.retrieval.mean
    rows = [
        (
            f"{size.classes:,}",
            name,
            f"{1e3 * one:,.1f}",
            f"{BATCH / one:,.0f}",
            count,
            f"{seconds[1] / one:.1f}",
        )
        for name, one, count in zip(
            (f"SLIDE, K = {size.hashes}, L = {size.tables}", "full softmax, torch"),
            seconds,
            (f"{active:,.0f}", "all"),
            strict=True,
        )
    ]
    return rows, share, seconds[0]


def single(quick: bool, rounds: int | None = None) -> list[Check]:
    """Measure SLIDE in one process, print, and say what must hold."""
    threads = torch.get_num_threads()
    torch.set_num_threads(min(2, threads))
    rows, checks, seconds = [], [], []
    for size in SIZES:
        found, share, one = measure(size, rounds or (1 if quick else 3))
        rows += found
        seconds.append(one)
        name = f"time of SLIDE over the full softmax, {size.classes:,} classes"
        checks.append(Check(name, share, size.must))
    torch.set_num_threads(threads)
    head = ("classes", "output layer", "ms a step", "samples a second", "active", "times as fast")
    print(table(rows, head))
    checks.append(
        Check("SLIDE's step at 1,000,000 classes over 100,000", seconds[1] / seconds[0], 3)
    )
    return checks


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    print(machine())
    return verdict([*single(chosen.quick, chosen.rounds), *dslide.study(chosen.quick)])


if __name__ == "__main__":
    sys.exit(main())
