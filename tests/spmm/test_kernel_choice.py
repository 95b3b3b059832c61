"""Which local kernel computes: by a measured table, by calibration, and without a cache."""

from __future__ import annotations

import pytest
import scipy.sparse as sp
import torch

from dtoolkit import csr_kernel
from dtoolkit.spmm import kernels_choice
from dtoolkit.spmm.kernels import LocalCSR, available, calibrate, choose

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bfloat16]


def test_choice_is_by_measurement(monkeypatch):
    for dtype in DTYPES:
        assert choose("cpu", dtype) in available("cpu", dtype)
    assert choose("cpu", torch.float32) == "numba"
    assert available("cuda", torch.float32) == ("torch",)
    assert available("cpu", torch.int64) == ()
    with pytest.raises(ValueError, match="no kernel"):
        choose("cpu", torch.int64)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert choose("cpu", torch.float32) != "numba"


def test_calibration_measures_and_is_adopted(monkeypatch):
    monkeypatch.setattr(kernels_choice, "_adopted", {})
    frame = calibrate(
        LocalCSR.from_scipy(sp.random_array((57, 40), density=0.15, format="csr", dtype="float32")),
        k=4,
        rounds=1,
        adopt=True,
    )
    assert sorted(frame.kernel) == sorted(available("cpu", torch.float32))
    assert frame.over_fastest.iloc[0] == 1
    assert choose("cpu", torch.float32) == frame.kernel.iloc[0]
    with pytest.raises(ValueError, match="calibrate needs"):
        calibrate(dtype=torch.int64)


def test_kernels_compile_where_nothing_can_be_cached(monkeypatch):
    def njit(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(csr_kernel.numba, "njit", njit)
    assert csr_kernel.compiled(abs) is abs
