"""The same function on NumPy, torch and distributed arrays; what has no distributed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.arrays.namespace import supported
from tests.arrays.helpers import here, matrix, same

# Arrays are made from |normal| / 4 + 0.1, so that all of these are defined.
UNARY = (
    "abs absolute arccos arcsin arcsinh arctan arctanh cbrt ceil conj cos cosh deg2rad exp exp2 "
    "expm1 floor isfinite isinf isnan log log10 log1p log2 logical_not negative positive rad2deg "
    "reciprocal rint sign signbit sin sinh sqrt square tan tanh trunc nan_to_num real imag angle "
    "round copy"
)
BINARY = (
    "add arctan2 copysign divide equal float_power floor_divide fmax fmin fmod greater heaviside "
    "hypot less logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum multiply "
    "not_equal power remainder subtract true_divide"
)
TORCH = (
    "abs acos add asin atan ceil cos erf erfc exp expm1 floor frac log log1p neg relu rsqrt "
    "sigmoid sin sqrt square tan tanh trunc"
)


@pytest.mark.parametrize("name", UNARY.split())
def test_functions_of_one_argument(cluster2, name):
    X = np.abs(matrix(5, 3)) / 4 + 0.1
    x = dt.distribute(cluster2, X)
    function = getattr(np, name)
    if name == "cbrt":
        with pytest.raises(TypeError, match="no distributed form"):
            function(x)
    else:
        same(function(x), function(X))


@pytest.mark.parametrize("name", BINARY.split())
def test_functions_of_two_arguments(cluster2, name):
    X, Y = np.abs(matrix(5, 3)) + 0.1, np.abs(matrix(5, 3, 1)) + 0.1
    x, y = dt.distribute(cluster2, X), dt.distribute(cluster2, Y)
    function = getattr(np, name)
    same(function(x, y), function(X, Y))
    same(function(x, 0.5), function(X, 0.5))
    same(function(2.0, y), function(2.0, Y))
    same(function(X, y), function(X, Y))


@pytest.mark.parametrize("name", TORCH.split())
def test_functions_of_torch(cluster2, name):
    X = torch.from_numpy(np.abs(matrix(5, 3)) / 4 + 0.1)
    x, function = dt.distribute(cluster2, X), getattr(torch, name)
    if name == "frac":
        with pytest.raises(TypeError, match="no distributed form"):
            function(x)
    elif name == "add":
        same(torch.add(x, X, alpha=2), torch.add(X, X, alpha=2))
    else:
        same(function(x), function(X))


def standardise(x):
    """A user's function, in words that NumPy and torch share."""
    centred = x - x.mean(0)
    return centred / (abs(centred).sum(0) + 1e-6)


def attention(x, w):
    """A user's function in NumPy's words."""
    scores = np.exp(np.clip(x @ w, -3, 3))
    return scores / np.sum(scores, axis=1, keepdims=True)


def layer(x, w):
    """A user's function in torch's words."""
    h = torch.nn.functional.relu(torch.matmul(x, w)) - torch.clamp(x @ w, min=0.1) * 2
    h = torch.softmax(h, dim=1) + torch.nn.functional.gelu(h)
    return torch.where(h > 0, h, torch.zeros_like(h)).sum(dim=0)


def test_a_function_runs_on_numpy_torch_and_distributed_arrays(cluster3):
    X, W = matrix(12, 4), matrix(4, 3, 1)
    t, w = torch.from_numpy(X), torch.from_numpy(W)
    x = dt.distribute(cluster3, X, "cyclic")
    same(standardise(x), standardise(X))
    same(standardise(x), standardise(t))
    same(attention(x, W), attention(X, W))
    got = layer(x, w)
    assert isinstance(got, torch.Tensor)
    same(got, layer(t, w))


def test_functions_on_whole_arrays(cluster3):
    X, Y = matrix(6, 3), matrix(6, 3, 1)
    x, y = dt.distribute(cluster3, X), dt.distribute(cluster3, Y)
    for name in ("sum", "prod", "mean", "std", "var", "min", "max", "argmin", "argmax"):
        for axis in (None, 0, 1):
            same(getattr(np, name)(x, axis=axis), getattr(np, name)(X, axis=axis))
    same(np.sum(x, axis=0, dtype=np.float32), X.sum(axis=0), rtol=1e-6)
    same(np.add.reduce(x), X.sum(axis=0))
    same(np.maximum.reduce(x, axis=1), X.max(axis=1))
    same(np.concatenate([x, Y, y]), np.concatenate([X, Y, Y]), exact=True)
    same(np.concatenate([x, Y], axis=1), np.concatenate([X, Y], axis=1), exact=True)
    same(torch.cat([x, y], dim=1), np.concatenate([X, Y], axis=1), exact=True)
    same(np.cumsum(x, axis=1), np.cumsum(X, axis=1))
    same(np.transpose(x), X.T, exact=True)
    same(np.isclose(x, x + 1e-9), np.ones((6, 3), bool), exact=True)
    special = np.array([[np.inf, 1.0, np.nan]])
    edge = dt.distribute(cluster3, special)
    for other in (special, np.array([[-np.inf, np.inf, 0.0]]), np.array([[1.0, 1.0, np.nan]])):
        same(np.isclose(edge, other), np.isclose(special, other), exact=True)
        want = np.isclose(special, other, equal_nan=True)
        same(np.isclose(edge, other, equal_nan=True), want, exact=True)
    assert np.allclose(x, X)
    assert not np.allclose(x, y)
    assert np.array_equal(x, X)
    assert np.shape(x) == (6, 3)
    assert np.ndim(x) == 2
    assert np.size(x) == x.size == 18
    same(torch.maximum(x, y), np.maximum(X, Y))
    same(torch.max(x, y), np.maximum(X, Y))
    same(torch.rsub(x, y), Y - X)
    same(torch.nn.functional.leaky_relu(x, 0.1), np.where(X > 0, X, 0.1 * X))
    same(torch.nn.functional.relu(x.copy(), inplace=True), X * (X > 0))


def test_the_array_api_namespace(cluster2):
    X = matrix(4, 2)
    x = dt.distribute(cluster2, X)
    xp = x.__array_namespace__()
    same(xp.exp(x), np.exp(X))
    same(xp.acos(xp.tanh(x)), np.arccos(np.tanh(X)))
    same(xp.concat([x, x]), np.concatenate([X, X]))
    same(xp.sum(x, axis=0), X.sum(axis=0))
    same(xp.astype(x, torch.float32), X.astype(np.float32))
    with pytest.raises(AttributeError, match="no distributed form"):
        _ = xp.unique_all
    assert set(dir(xp)) == set(supported())


def test_nothing_is_gathered_unasked(cluster2):
    x = dt.distribute(cluster2, matrix(4, 2))
    for gather in (
        lambda: np.asarray(x),
        lambda: np.array(x),
        lambda: np.median(x),
        lambda: np.linalg.svd(x),
        lambda: np.sort(x),
        lambda: torch.sort(x),
        lambda: torch.linalg.inv(x),
        lambda: np.add.at(x, [0], 1),
        lambda: torch.softmax(x, dim=0),
        lambda: np.add(x, 1, where=np.ones((4, 2), bool)),
        lambda: np.sum(x, where=np.ones((4, 2), bool)),
        lambda: np.where(x > 0),
        lambda: np.testing.assert_allclose(x, 1),
    ):
        with pytest.raises(TypeError, match=r"distributed form|to_numpy\(\)|along the columns"):
            gather()
    with pytest.raises(TypeError, match=r"median.*to_numpy\(\).*arcsin.*sqrt"):
        np.median(x)


def test_numbers_and_arrays_on_the_left(cluster2):
    X = matrix(4, 2)
    x = dt.distribute(cluster2, X)
    for left in (2, 2.0, np.float64(2), np.float32(2), torch.tensor(2.0), np.full((4, 2), 2.0)):
        for got, want in [
            (left - x, 2 - X),
            (left * x, 2 * X),
            (left / x, 2 / X),
            (left**x, 2.0**X),
            (left // x, 2 // X),
            (left % x, 2 % X),
            (left < x, X > 2),
        ]:
            same(got, want)
    full = torch.full((4, 2), 2.0, dtype=torch.float64)
    for got, want in [(full - x, 2 - X), (full // x, 2 // X), (full**x, 2.0**X), (full > x, X < 2)]:
        same(got, want)


def test_objects_show_themselves(cluster2):
    x = dt.distribute(cluster2, np.ones((4, 2)))
    assert repr(x).startswith("<DistDense (4, 2) float64, Layout(block")
    card = x._repr_html_()
    assert "Dense array" in card
    assert "4 × 2" in card
    assert here(x.nbytes_by_rank).tolist() == [32, 32]
    assert hash(x) == hash(x)
