"""What every benchmark shares: interleaved rounds, ratios within a round, a table, a verdict.

A machine that others use as well is faster in one minute than in the next. So every candidate runs
once in every round, in an order that rotates, and what is reported is the median over rounds of its
time over the yardstick's *in the same round*.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import scipy
import torch


@dataclass(frozen=True)
class Ratio:
    """Time over the yardstick's: median and quartiles over rounds, and the median in seconds."""

    median: float
    low: float
    high: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


@dataclass(frozen=True)
class Check:
    """A figure, what it must not exceed, and what it should reach."""

    name: str
    value: float
    must: float
    goal: float | None = None

    @property
    def passed(self) -> bool:
        return self.value <= self.must


def interleave(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int, warmup: int = 1
) -> dict[str, list[float]]:
    """Run every candidate once a round, starting with another one each round; seconds by name."""
    for _ in range(warmup):
        for run in candidates.values():
            run()
    names = list(candidates)
    times: dict[str, list[float]] = {name: [] for name in names}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                began = time.perf_counter()
                candidates[name]()
                times[name].append(time.perf_counter() - began)
    finally:
        if collecting:
            gc.enable()
    return times


def ratios(times: Mapping[str, Sequence[float]], *, to: str) -> dict[str, Ratio]:
    """Median and quartiles over rounds of each candidate's time over that of `to`."""
    result = {}
    for name, seconds in times.items():
        each = [a / b for a, b in zip(seconds, times[to], strict=True)]
        low, _, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
        result[name] = Ratio(statistics.median(each), low, high, statistics.median(seconds))
    return result


def machine() -> str:
    """Say in one line what the figures were measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{_processor()}, {cores} cores, load {load}; {platform.system()}, Python "
        f"{platform.python_version()}, torch {torch.__version__}, numpy {numpy.__version__}, "
        f"scipy {scipy.__version__}"
    )


def _processor() -> str:
    """Name the processor; with family and model, where the name alone says little."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    first: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        first.setdefault(key.strip(), value.strip())
    name = first.get("model name", platform.machine())
    return f"{name} (family {first.get('cpu family', '?')}, model {first.get('model', '?')})"


def table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """Lay out rows under a header: the first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def verdict(checks: Sequence[Check]) -> int:
    """Print what was held and what was missed; give the exit code: 1 if a must was missed."""
    for check in checks:
        mark = "held" if check.passed else "MISSED"
        goal = ""
        if check.goal is not None:
            goal = f", goal {check.goal:.2f} {'held' if check.value <= check.goal else 'missed'}"
        print(f"{mark:6}  {check.name}: {check.value:.2f}, must {check.must:.2f}{goal}")
    return 0 if all(check.passed for check in checks) else 1


def options(description: str | None) -> argparse.Namespace:
    """Read the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under a minute")
    parser.add_argument("--rounds", type=int, help="interleaved rounds; the default is in the text")
    chosen = parser.parse_args(sys.argv[1:])
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error("--rounds must be at least 1")
    return chosen
