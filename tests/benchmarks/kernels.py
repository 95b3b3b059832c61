"""The local kernels in one thread against SciPy: ``python -m tests.benchmarks.kernels [--quick]``.

200,000 rows, about 16 nonzeros a row, 64 dense columns, float32 and float64, on two power-law
graphs: *scattered* (hubs anywhere) and *local* (90% of the edges within 2,000 rows). Every kernel
makes a new result, as ``A @ B`` of SciPy does; "into out" writes one that is there already.
Ends with 1 if the kernel that is chosen by default is not at least 1.25 times as fast as SciPy in
each of the four cases.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import scipy.sparse as sp
import torch

from dtoolkit.data import power_law
from dtoolkit.spmm.kernels import LocalCSR, available, choose, multiply
from tests.benchmarks.common import Check, interleave, machine, options, ratios, table, verdict

ROWS, PER_ROW, COLUMNS = 200_000, 16, 64
MUST, GOAL = 1 / 1.25, 1 / 2


def main() -> int:
    chosen = options(__doc__)
    rounds = chosen.rounds or (5 if chosen.quick else 15)
    torch.set_num_threads(1)
    print(f"{machine()}\n{ROWS:,} rows, {COLUMNS} columns, one thread, medians of {rounds} rounds")
    lines, checks = [], []
    for graph in ("scattered", "local"):
        near = 2000 if graph == "local" else None
        A = power_law(ROWS, PER_ROW, seed=0, local=near, values="normal")
        for dtype in (torch.float32, torch.float64):
            case = f"{graph} {str(dtype).removeprefix('torch.')}"
            measured = ratios(interleave(candidates(A, dtype), rounds=rounds), to="scipy")
            lines += [
                (case, name, f"{ratio.seconds * 1e3:.1f}", ratio, f"{1 / ratio.median:.2f}")
                for name, ratio in measured.items()
            ]
            name = choose("cpu", dtype)
            checks.append(Check(f"{name}, {case}, over SciPy", measured[name].median, MUST, GOAL))
    print(table(lines, ("case", "kernel", "ms", "over SciPy (quartiles)", "times as fast")))
    return verdict(checks)


def candidates(A: sp.csr_array, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Make what is timed; results are compared with SciPy's first."""
    generator = torch.Generator().manual_seed(1)
    B = torch.randn(A.shape[1], COLUMNS, generator=generator, dtype=dtype)
    local = LocalCSR.from_scipy(A, dtype=dtype)
    matrix, dense = local.to_scipy(), B.numpy()
    wanted = torch.from_numpy(matrix @ dense)
    runs: dict[str, Callable[[], object]] = {"scipy": lambda: matrix @ dense}
    for name in available("cpu", dtype):
        if name != "scipy":
            runs[name] = lambda name=name: multiply(local, B, kernel=name)
            torch.testing.assert_close(runs[name](), wanted)
    out = torch.empty_like(wanted)
    runs["numba into out"] = lambda: multiply(local, B, out, kernel="numba")
    return runs


if __name__ == "__main__":
    sys.exit(main())
