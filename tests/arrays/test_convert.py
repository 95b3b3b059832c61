"""What people pass for arrays and dtypes, and what is refused in words."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.arrays.convert import as_dtype, is_scalar, plain_scalar, to_host, to_tensor
from tests.arrays.helpers import matrix, same

RULE = {
    np.bool_: torch.float32,
    np.int8: torch.float32,
    np.uint8: torch.float32,
    np.int16: torch.float32,
    np.uint16: torch.float32,
    np.float16: torch.float32,
    np.float32: torch.float32,
    np.int32: torch.float64,
    np.uint32: torch.float64,
    np.int64: torch.float64,
    np.uint64: torch.float64,
    np.float64: torch.float64,
    np.longdouble: torch.float64,
    np.complex64: torch.complex64,
    np.complex128: torch.complex128,
    np.dtype(">f8"): torch.float64,
    np.dtype(">i2"): torch.float32,
}


@pytest.mark.parametrize(("given", "kept"), RULE.items(), ids=str)
def test_dtypes_are_converted_by_the_stated_rule(given, kept):
    X = np.array([[0, 1], [1, 0]]).astype(given)
    made = to_tensor(X)
    assert made.dtype == kept
    np.testing.assert_array_equal(made.numpy(), X.astype(made.numpy().dtype))


def test_torch_dtypes_follow_the_same_rule():
    for given, kept in [
        (torch.bool, torch.float32),
        (torch.int16, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.int32, torch.float64),
        (torch.int64, torch.float64),
    ]:
        assert to_tensor(torch.ones(2, 2).to(given)).dtype == kept


def test_memory_of_any_kind_is_read_and_left_alone(cluster3):
    base = np.arange(24.0).reshape(6, 4)
    frozen = base.copy()
    frozen.setflags(write=False)
    inputs = {
        "fortran": np.asfortranarray(base),
        "strided": np.repeat(base, 2, axis=1)[:, ::2],
        "reversed": base[::-1][::-1],
        "backwards": base[::-1, ::-1],
        "read-only": frozen,
        "expanded": np.broadcast_to(base[0], (6, 4)),
        "tensor of strides": torch.from_numpy(base).T.contiguous().T,
        "expanded tensor": torch.ones(1, 4).expand(6, 4),
        "conjugate view": torch.from_numpy(base + 1j).conj(),
        "needs gradients": torch.ones(6, 4, requires_grad=True),
        "lists": base.tolist(),
    }
    for x in inputs.values():
        want = x.detach().resolve_conj().numpy() if isinstance(x, torch.Tensor) else np.array(x)
        same(dt.distribute(cluster3, x, "cyclic"), want, exact=True)


def test_a_source_that_changes_later_changes_nothing(cluster2):
    X = matrix(6, 2)
    want = X.copy()
    x, row = dt.distribute(cluster2, X), np.ones(2)
    y = x + row
    X[:], row[:] = 0, 0
    same(x, want, exact=True)
    same(y, want + 1)


def test_nan_and_inf_stay(cluster2):
    X = np.array([[np.nan, np.inf], [-np.inf, -0.0], [1e-320, 1.0]])
    x = dt.distribute(cluster2, X)
    same(x, X, exact=True)
    assert np.signbit(x.to_numpy()[1, 1])


def test_sizes_at_the_edge(cluster4):
    for shape in [(0,), (0, 3), (1,), (2, 3), (5, 0), (3, 1)]:
        X = np.ones(shape)
        for layout in ("block", "cyclic"):
            x = dt.distribute(cluster4, X, layout)
            same(x, X, exact=True)
            assert x.nbytes == X.nbytes
            assert x.nbytes_by_rank.sum() == sum(x.remote.nbytes)


def test_bfloat16_round_trip(cluster2):
    X = torch.randn(7, 3).bfloat16()
    x = dt.distribute(cluster2, X, "cyclic")
    assert torch.equal(x.to_torch(), X)
    same(x, X.float().numpy(), exact=True)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (np.array(["a", "b"]), TypeError, "dtype <U1"),
        (np.array([None, 1], object), TypeError, "dtype object"),
        (np.array(["2020"], "M8[Y]"), TypeError, "datetime64"),
        ([[1, 2], [3]], ValueError, "no array"),
        (np.ones((2, 2, 2)), ValueError, "3 dimensions"),
        (3.0, ValueError, "0 dimensions"),
        (np.ma.masked_array([1.0]), TypeError, "masked"),
        ({"a": 1}, TypeError, "dict"),
    ],
)
def test_what_is_no_array_is_refused(cluster2, wrong, error, words):
    with pytest.raises(error, match=words):
        dt.distribute(cluster2, wrong)


def test_distributed_and_badly_laid_out_arrays_are_refused(cluster2):
    x = dt.distribute(cluster2, np.ones(4))
    with pytest.raises(TypeError, match="redistribute"):
        dt.distribute(cluster2, x)
    with pytest.raises(dt.errors.LayoutError, match="5 rows; wanted 4"):
        dt.distribute(cluster2, np.ones(4), dt.Layout.block(5, 2))
    with pytest.raises(dt.errors.LayoutError, match="not known"):
        dt.distribute(cluster2, np.ones(4), "diagonal")
    same(dt.distribute(cluster2, np.arange(4.0), np.array([1, 0, 0, 1])), np.arange(4.0))


def test_astype(cluster2):
    X = np.array([[0.0, 1.5], [-2.5, 3.0]])
    x = dt.distribute(cluster2, X)
    for name in ("float32", "bfloat16", "complex64", "bool", "int64"):
        got = x.astype(name)
        assert got.dtype == getattr(torch, name)
        assert torch.equal(got.to_torch(), torch.from_numpy(X).to(got.dtype))
    for spelled in (np.float32, np.dtype("f4"), torch.float32, "torch.float32"):
        assert x.astype(spelled).dtype == torch.float32
    assert as_dtype(float) == torch.float64
    for wrong in ("int8", np.uint16, torch.float16, "text", np.str_):
        with pytest.raises(TypeError, match="distributed arrays have float32"):
            x.astype(wrong)


def test_scalars():
    for number in (1, 2.5, 1j, True, np.float32(1), np.array(2), torch.tensor(3), Fraction(1, 2)):
        assert is_scalar(number)
        assert isinstance(plain_scalar(number), bool | int | float | complex)
    assert not is_scalar(np.ones(1))
    assert not is_scalar("1")
    with pytest.raises(TypeError, match="no number"):
        plain_scalar(np.str_("1"))
    assert to_host(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32
