"""Arithmetic against NumPy: operators, broadcasting, dtypes, in place."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dtoolkit as dt
from dtoolkit.arrays import Layout, RedistributionWarning
from tests.arrays.helpers import few, laid_out, layouts, matrix, same

ARITHMETIC = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@few
@given(data=st.data())
def test_operators_equal_numpy_for_every_kind_of_operand(cluster_of, data):
    n, layout = data.draw(laid_out(3))
    k = data.draw(st.integers(0, 4))
    X, Y = matrix(n, k), matrix(n, k, 1)
    x = dt.distribute(cluster_of(3), X, layout)
    operands = {
        "number": (2.5, 2.5),
        "row": (Y[:1].ravel() if n else np.ones(k), None),
        "matrix row": (np.full((1, k), 0.5), None),
        "laid out": (Y, None),
        "tensor": (torch.from_numpy(Y), Y),
        "distributed": (dt.distribute(cluster_of(3), Y, layout), Y),
    }
    name = data.draw(st.sampled_from(sorted(operands)))
    other, plain = operands[name]
    plain = other if plain is None else plain
    op = data.draw(st.sampled_from(ARITHMETIC + COMPARISONS))
    same(op(x, other), op(X, plain))
    same(op(other, x), op(plain, X))


def test_columns_scale_rows(cluster3):
    X, v = matrix(7, 3), np.arange(1.0, 8)
    for layout in layouts(7, 3):
        x, d = dt.distribute(cluster3, X, layout), dt.distribute(cluster3, v, layout)
        same(x / d[:, None], X / v[:, None])
        same(v[:, None] * x, X * v[:, None])
        same(d[:, None] * np.arange(4.0), v[:, None] * np.arange(4.0))
        same(d + v, v + v)


def test_powers_and_signs(cluster3):
    X = np.abs(matrix(5, 2)) + 0.1
    x = dt.distribute(cluster3, X)
    same(x**2, X**2)
    same(2**x, 2**X)
    same(x ** dt.distribute(cluster3, X), X**X)
    same(-x, -X)
    same(+x, X, exact=True)
    same(abs(-x), X, exact=True)
    same((x - 1).round(1), (X - 1).round(1))


def test_division_by_zero_and_remainders_follow_numpy(cluster2):
    X = np.array([[-3.5, 0.0, np.nan], [np.inf, -0.0, 7.25]])
    x = dt.distribute(cluster2, X)
    with np.errstate(all="ignore"):
        same(x / 0, X / 0)
        same(x % 2, X % 2)
        same(x % -2, X % -2)
        same(x // 2, X // 2)


def test_in_place_operators_write_into_the_shards(cluster3):
    X, Y = matrix(8, 3), matrix(8, 3, 1)
    for layout in layouts(8, 3):
        x, y = dt.distribute(cluster3, X, layout), dt.distribute(cluster3, Y, layout)
        before, want = x, X.copy()
        for op in (operator.iadd, operator.isub, operator.imul, operator.itruediv):
            x, want = op(x, y), op(want, Y)
            x, want = op(x, 1.5), op(want, 1.5)
        x **= 2
        want **= 2
        assert x is before
        assert x.version == 9
        same(x, want)
        same(y, Y, exact=True)


def test_out_takes_the_result(cluster3):
    X = matrix(6, 2)
    x, out = dt.distribute(cluster3, X), dt.arrays.zeros(cluster3, (6, 2))
    assert np.multiply(x, 3, out=out) is out
    same(out, 3 * X)
    assert np.exp(x, out=x) is x
    same(x, np.exp(X))
    narrow = dt.arrays.zeros(cluster3, (6, 2), dtype="float32")
    np.add(x, 1, out=narrow)
    assert narrow.dtype == torch.float32
    same(narrow, (np.exp(X) + 1).astype(np.float32), rtol=1e-6)
    same(out.fill_(2), np.full((6, 2), 2.0))
    same(out.copy_(np.arange(2.0)), np.tile(np.arange(2.0), (6, 1)))
    with pytest.raises(ValueError, match="out has shape"):
        np.add(x, 1, out=dt.arrays.zeros(cluster3, (6, 3)))
    with pytest.raises(TypeError, match="out holds float64"):
        np.add(x, 1j, out=out)
    with pytest.raises(TypeError, match="must be a distributed array"):
        np.add(x, 1, out=np.zeros((6, 2)))


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "complex64", "complex128"])
def test_numbers_do_not_widen_arrays(cluster2, name):
    dtype = getattr(torch, name)
    X = torch.tensor([[1.0, -2.0], [0.5, 4.0], [8.0, 0.25]]).to(dtype)
    x = dt.distribute(cluster2, X)
    assert x.dtype == dtype
    for made in (x + 1, 2.5 * x, x / 3, np.float64(2) * x, x - torch.tensor(1.0), np.sqrt(x)):
        assert made.dtype == dtype
    assert (x + np.ones(2)).dtype == torch.promote_types(dtype, torch.float64)
    assert torch.equal((x * 2 - 1).to_torch(), X * 2 - 1)
    assert abs(x).dtype == (X.abs()).dtype
    assert (x == 1).dtype == torch.bool
    assert (1j * x).dtype.is_complex


def test_dtypes_promote_as_in_torch(cluster2):
    x = dt.distribute(cluster2, np.ones((4, 2), np.float32))
    y = dt.distribute(cluster2, np.ones((4, 2)))
    assert (x + y).dtype == torch.float64
    assert (x * 1j).dtype == torch.complex64
    assert (x > 0).to_numpy().dtype == np.bool_
    assert ((x > 0) & (y < 2)).all()
    assert not (~(x > 0) | (x != 1)).any()
    assert ((x > 0) ^ (x > 2)).sum() == 8


def test_complex_parts(cluster2):
    X = matrix(5, 2) + 1j * matrix(5, 2, 1)
    x = dt.distribute(cluster2, X)
    same(x.real, X.real)
    same(x.imag, X.imag)
    same(x.conj(), X.conj())
    same(abs(x), abs(X))
    same(x.conj() * x, X.conj() * X)
    same(x.real.imag, np.zeros((5, 2)))
    with pytest.raises(TypeError, match="floor_divide is not defined for complex128"):
        x // 2
    with pytest.raises(TypeError, match="imaginary"):
        x.astype("float64")


def test_clip_and_where(cluster3):
    X, low = matrix(9, 3), np.array([-1.0, 0, 0.5])
    x = dt.distribute(cluster3, X, "cyclic")
    same(x.clip(-0.5, 0.5), X.clip(-0.5, 0.5))
    same(x.clip(max=0), X.clip(max=0))
    same(x.clip(low, low + 1), X.clip(low, low + 1))
    same(np.clip(x, 0, None), np.clip(X, 0, None))
    same(np.where(x > 0, x, low), np.where(X > 0, X, low))
    same(np.where(X > 0, x, -1), np.where(X > 0, X, -1))
    assert np.where(x > 0, x.astype("float32"), 0.0).dtype == torch.float32
    with pytest.raises(ValueError, match="min="):
        x.clip()


def test_other_layouts_are_moved_and_said_so(cluster3):
    X, Y = matrix(10, 2), matrix(10, 2, 1)
    x, y = dt.distribute(cluster3, X), dt.distribute(cluster3, Y, "cyclic")
    with pytest.warns(RedistributionWarning, match="redistribute") as caught:
        z = x + y
    assert caught[0].filename == __file__
    assert z.layout == x.layout
    same(z, X + Y)
    with pytest.warns(RedistributionWarning):
        y -= x
    assert y.layout == Layout.cyclic(10, 3)
    same(y, Y - X)


def test_results_share_no_memory(cluster2):
    X = matrix(4, 2)
    x = dt.distribute(cluster2, X)
    made = [+x, x.copy(), x.astype("float64"), x[:], x.real, x.reshape(4, 2), x[:, 0:2]]
    x += 100
    for one in made:
        same(one, X, exact=True)


def test_shapes_that_do_not_fit_are_refused(cluster2):
    x = dt.distribute(cluster2, np.ones((4, 3)))
    v = dt.distribute(cluster2, np.ones(4))
    with pytest.raises(ValueError, match="do not broadcast"):
        x + np.ones(2)
    with pytest.raises(ValueError, match="does not go with"):
        x + np.ones((5, 3))
    with pytest.raises(ValueError, match=r"x\[:, None\]"):
        x + v
    with pytest.raises(ValueError, match="do not go together"):
        x + dt.distribute(cluster2, np.ones((5, 3)))
    with pytest.raises(ValueError, match="does not go with"):
        v + np.ones((4, 1))
    with pytest.raises(TypeError, match="dtype <U1"):
        x + "a"
    with pytest.raises(TypeError, match="bitwise_and is not defined for float64"):
        x & x
    with pytest.raises(TypeError, match="sparse"):
        x + dt.distribute(cluster2, dt.data.uniform(4, 1, seed=0))


def test_arrays_of_two_clusters_do_not_mix(cluster1, cluster2):
    x, y = (dt.distribute(c, np.ones((4, 3))) for c in (cluster1, cluster2))
    with pytest.raises(dt.errors.LayoutError, match="different clusters"):
        x + y
