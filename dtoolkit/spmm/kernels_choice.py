"""Which kernel multiplies: what is there, what was measured to be fastest, measuring it here."""

from __future__ import annotations

import os
import statistics
import time

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

from dtoolkit.arrays.memory import allocate
from dtoolkit.spmm.kernels_candidates import DTYPES, KERNELS, load_mkl
from dtoolkit.spmm.kernels_csr import LocalCSR

__all__ = ["MEASURED", "available", "calibrate", "choose"]

#: Time over SciPy's on a CPU, one thread, by kernel and dtype of the arithmetic. Measured:
#: 200,000 rows, 3.2 million nonzeros, 64 columns, the slower of a scattered and a local power-law
#: graph, median of 15 interleaved rounds (``python -m tests.benchmarks.kernels``); AMD EPYC of
#: family 26 (AVX-512, 1 MiB of second-level cache, 32 MiB of third), torch 2.13, MKL 2026.2, SciPy
#: 1.17. Not measured elsewhere: :func:`calibrate` measures where it is called.
MEASURED: dict[torch.dtype, dict[str, float]] = {
    torch.float32: {"numba": 0.23, "mkl": 0.92, "torch": 0.93, "scipy": 1.0},
    torch.float64: {"numba": 0.27, "mkl": 1.13, "torch": 1.14, "scipy": 1.0},
}

_adopted: dict[tuple[str, torch.dtype], str] = {}


def available(device: torch.device | str, dtype: torch.dtype) -> tuple[str, ...]:
    """Kernels that can multiply on a device in a dtype.

    Parameters
    ----------
    device : torch.device or str
        Where the operands are.
    dtype : torch.dtype
        Dtype of the result.

    Returns
    -------
    tuple of str
        Some of "numba" (unless ``NUMBA_DISABLE_JIT`` is set), "torch", "mkl" (where
        ``sparse_dot_mkl`` is installed) and "scipy"; empty if the dtype cannot be multiplied.
    """
    if dtype not in DTYPES:
        return ()
    if torch.device(device).type != "cpu":
        return ("torch",)
    compiled = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
    there = {"numba": compiled, "torch": True, "mkl": load_mkl() is not None, "scipy": True}
    return tuple(name for name, is_there in there.items() if is_there)


def choose(device: torch.device | str, dtype: torch.dtype) -> str:
    """Give the fastest available kernel: as adopted from :func:`calibrate`, else as measured.

    Parameters
    ----------
    device : torch.device or str
        Where the operands are.
    dtype : torch.dtype
        Dtype of the result.

    Returns
    -------
    str
        One of :func:`available`.

    Raises
    ------
    ValueError
        If no kernel multiplies in this dtype.
    """
    names = available(device, dtype)
    if not names:
        raise ValueError(f"no kernel multiplies in {dtype} on {device}: convert the operands")
    kind = torch.device(device).type
    adopted = _adopted.get((kind, dtype))
    if adopted in names:
        return adopted
    if kind != "cpu":
        return names[0]
    figures = MEASURED[dtype if dtype in MEASURED else torch.float32]
    return min(names, key=lambda name: figures[name])


def calibrate(
    A: LocalCSR | None = None,
    *,
    k: int = 64,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    rounds: int = 5,
    adopt: bool = False,
) -> pd.DataFrame:
    """Measure the kernels where this is called: one thread each, torch's as many as it is set to.

    Parameters
    ----------
    A : LocalCSR, optional
        The matrix to measure with, its values in any dtype; by default 50,000 rows with 16
        nonzeros each, anywhere.
    k : int
        Columns of the dense operand.
    dtype : torch.dtype
        Dtype of the arithmetic.
    device : torch.device or str
        Where to measure.
    rounds : int
        Each kernel runs once a round, after one run that is not counted.
    adopt : bool
        Let :func:`choose` give the fastest from now on, for this kind of device and dtype, in
        this process.

    Returns
    -------
    pandas.DataFrame
        One row a kernel, the fastest first: ``kernel``, ``seconds`` (median), ``over_fastest``.
    """
    device = torch.device(device)
    names = available(device, dtype)
    if not names or rounds < 1 or k < 1:
        raise ValueError(
            f"calibrate needs a dtype that can be multiplied, k and rounds of at least 1; got "
            f"{dtype}, k={k}, rounds={rounds}"
        )
    half = dtype in (torch.float16, torch.bfloat16) and device.type == "cpu"
    compute = torch.float32 if half else dtype
    A = (_example() if A is None else A).to(device, compute)
    B = torch.ones((A.shape[1], k), dtype=compute, device=device)
    C = allocate((A.shape[0], k), dtype=compute, device=device)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names:
            seconds = _seconds(name, A, B, C)
            if turn:
                times[name].append(seconds)
    medians = sorted((statistics.median(each), name) for name, each in times.items())
    fastest, best = medians[0]
    if adopt:
        _adopted[device.type, dtype] = best
    rows = [(name, seconds, seconds / fastest) for seconds, name in medians]
    return pd.DataFrame(rows, columns=["kernel", "seconds", "over_fastest"])


def _seconds(name: str, A: LocalCSR, B: torch.Tensor, C: torch.Tensor) -> float:
    began = time.perf_counter()
    KERNELS[name](A, B, C, False, 1)
    if C.device.type == "cuda":
        torch.cuda.synchronize(C.device)
    return time.perf_counter() - began


def _example() -> LocalCSR:
    rows, per_row = 50_000, 16
    random = np.random.default_rng(0)
    columns = random.integers(0, rows, rows * per_row)
    indptr = np.arange(0, rows * per_row + 1, per_row)
    values = random.standard_normal(rows * per_row)
    return LocalCSR.from_scipy(sp.csr_array((values, columns, indptr), shape=(rows, rows)))
