"""A product over 4 workers against what a person would use instead, in one run.

``python -m tests.benchmarks.spmm`` prints medians over interleaved rounds of each candidate's time
over that of SciPy in one thread, in the same round: 200,000 rows, about 16 nonzeros a row, 64 dense
columns. *scattered* has its hubs anywhere (each rank needs nine tenths of the foreign rows),
*local* has 90% of its edges within 2,000 rows (about 30%). Plans are reused, data lies on the
workers, the result is left there. Candidates that are not installed are skipped with a word.
``--quick`` takes the first and the last of the four cases only.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

import dtoolkit as dt
from dtoolkit.spmm.kernels import LocalCSR, available, choose, multiply
from tests.benchmarks.common import (
    Check,
    Ratio,
    interleave,
    machine,
    options,
    ratios,
    table,
    verdict,
)
from tests.benchmarks.rivals import BareGloo, DaskBlocks, Petsc, Skipped

ROWS, DEGREE, COLUMNS, WORKERS = 200_000, 16, 64, 4
MUST = {
    ("scattered", "float32"): (0.80, 0.55),
    ("scattered", "float64"): (0.70, 0.50),
    ("local", "float32"): (0.70, 0.55),
    ("local", "float64"): (0.75, 0.55),
}
KERNEL_MUST = 1 / 1.25
STRATEGIES = ("oblivious", "column", "joint")


@dataclass(frozen=True)
class Case:
    """One matrix in one precision."""

    name: str
    dtype: str
    A: sp.csr_array
    B: np.ndarray

    @property
    def label(self) -> str:
        return f"{self.name} {self.dtype}"


def cases() -> list[Case]:
    made = []
    for name, local in (("scattered", None), ("local", 2_000)):
        A = dt.data.power_law(ROWS, DEGREE, seed=0, local=local, values="normal")
        for dtype in ("float32", "float64"):
            B = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(dtype)
            made.append(Case(name, dtype, A.astype(dtype), B))
    return made


def one_thread(case: Case) -> dict[str, Callable[[], object]]:
    """Local kernels in this process; SciPy, the yardstick, among them."""
    local = LocalCSR.from_scipy(case.A)
    B = torch.from_numpy(case.B)
    runs: dict[str, Callable[[], object]] = {"SciPy, one thread": lambda: case.A @ case.B}
    for kernel in available("cpu", B.dtype):
        if kernel != "scipy":
            mark = " (chosen)" if kernel == choose("cpu", B.dtype) else ""
            runs[f"{kernel}, one thread{mark}"] = lambda k=kernel: multiply(local, B, kernel=k)
    return runs


def on_workers(
    cluster: dt.Cluster, case: Case
) -> tuple[dict[str, Callable[[], object]], dt.spmm.Plan]:
    """The product by each strategy, and what ``auto`` chose."""
    runs: dict[str, Callable[[], object]] = {}
    chosen = dt.plan(case.A, parts=WORKERS, strategy="auto")
    dB = dt.distribute(cluster, case.B, chosen)
    for strategy in STRATEGIES:
        plan = dt.plan(case.A, parts=WORKERS, strategy=strategy)
        dA = dt.distribute(cluster, case.A, plan)
        mark = " (auto)" if strategy == chosen.strategy else ""
        runs[f"dtoolkit, {strategy}{mark}"] = lambda dA=dA: dA @ dB
    return runs, chosen


def measure(
    case: Case, cluster: dt.Cluster, rounds: int
) -> tuple[dict[str, Ratio], list[Check], list[str]]:
    skipped = []
    with ExitStack() as stack:
        runs = one_thread(case)
        mine, chosen = on_workers(cluster, case)
        runs |= mine
        for rival in (DaskBlocks, Petsc, BareGloo):
            try:
                made = stack.enter_context(rival(case.A, case.B, WORKERS, cluster, chosen))
            except Skipped as reason:
                skipped.append(f"{rival.label}: skipped, {reason}")
                continue
            runs[made.label] = made.run
        found = ratios(interleave(runs, rounds=rounds, warmup=2), to="SciPy, one thread")
    return found, checks(case, found), skipped


def checks(case: Case, found: dict[str, Ratio]) -> list[Check]:
    """What must hold, as ratios of medians over the same rounds."""
    auto = next(r for name, r in found.items() if name.endswith("(auto)"))
    must, goal = MUST[case.name, case.dtype]
    chosen = next(r for name, r in found.items() if name.endswith("(chosen)"))
    held = [
        Check(f"{case.label}: auto over SciPy", auto.median, must, goal),
        Check(f"{case.label}: local kernel over SciPy", chosen.median, KERNEL_MUST),
    ]
    limits = {DaskBlocks.label: 0.5, Petsc.label: 1.0, BareGloo.label: 1.1}
    for rival, limit in limits.items():
        if rival in found:
            ratio = auto.median / found[rival].median
            held.append(Check(f"{case.label}: auto over {rival}", ratio, limit))
    return held


def main() -> int:
    chosen = options(__doc__)
    rounds = chosen.rounds or (3 if chosen.quick else 12)
    torch.set_num_threads(1)
    print(machine())
    print(
        f"{ROWS:,} rows, {COLUMNS} columns; time over SciPy's: median (quartiles), {rounds} rounds"
    )
    columns, every, notes = [], [], []
    with dt.Cluster(workers=WORKERS) as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases()[:: 3 if chosen.quick else 1]:
            found, held, skipped = measure(case, cluster, rounds)
            columns.append((case, found))
            every += held
            notes += skipped
    names = dict.fromkeys(name.replace(" (auto)", "") for _, found in columns for name in found)
    rows = [[name, *(_cell(found, name) for _, found in columns)] for name in names]
    print(table(rows, ["", *(case.label for case, _ in columns)]))
    print("*: what strategy='auto' chose")
    for note in dict.fromkeys(notes):
        print(note)
    return verdict(every)


def _cell(found: dict[str, Ratio], name: str) -> str:
    if name in found:
        return f"{found[name]} {found[name].seconds * 1e3:.0f} ms"
    if f"{name} (auto)" in found:
        return f"{found[f'{name} (auto)']} {found[f'{name} (auto)'].seconds * 1e3:.0f} ms *"
    return "-"


if __name__ == "__main__":
    sys.exit(main())
