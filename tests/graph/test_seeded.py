"""Weights and dropout by seed and name; sparse features times weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from dtoolkit.graph import GCN, GraphSAGE, NodeDropout, SparseRows, at_step, initialise, place
from dtoolkit.graph.seeded import dropped, key_of
from dtoolkit.spmm import LocalCSR


def rows(dense):
    return SparseRows(LocalCSR.from_scipy(sparse.csr_array(dense)))


def test_a_node_keeps_its_numbers_wherever_it_lies():
    key, columns = key_of(3, "layer"), torch.arange(7)
    nodes = torch.arange(1000)
    whole = dropped(nodes[:, None], columns, 0.3, key=key, step=5)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(dropped(order[:, None], columns, 0.3, key=key, step=5), whole[order])
    assert abs(whole.double().mean() - 0.3) < 0.02
    large = nodes + 2**40
    for other in (
        dropped(nodes[:, None], columns, 0.3, key=key, step=6),
        dropped(nodes[:, None], columns, 0.3, key=key_of(4, "layer"), step=5),
        dropped(nodes[:, None], columns, 0.3, key=key_of(3, "other"), step=5),
        dropped(large[:, None], columns, 0.3, key=key, step=5),
    ):
        agreement = (other == whole).double().mean()
        assert abs(agreement - (0.3**2 + 0.7**2)) < 0.03


def test_these_bits_stay_as_they_are():
    """A run of today can be repeated tomorrow."""
    drop = dropped(torch.arange(3)[:, None], torch.arange(8), 0.5, key=key_of(0, "x"), step=1)
    assert drop.int().tolist() == FROZEN


FROZEN = [[0, 1, 1, 0, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1, 1, 0], [1, 0, 0, 0, 1, 1, 1, 0]]


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9])
def test_dropout_of_dense_and_sparse_features_is_one(p):
    X = torch.rand(50, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    X[X < 0.5] = 0
    model = torch.nn.Sequential(NodeDropout(p))
    place(model, torch.arange(50) * 3, 7)
    at_step(model, 4)
    dense = model(X)
    np.testing.assert_array_equal(model(rows(X)).to_dense(), dense)
    kept = dense != 0
    torch.testing.assert_close(dense[kept], X[kept] / (1 - p))
    if p:
        share = 1 - kept.sum() / (X != 0).sum()
        assert abs(share - p) < 0.15
    model.eval()
    assert torch.equal(model(X), X)


def test_dropout_says_what_it_lacks():
    with pytest.raises(RuntimeError, match="place first"):
        NodeDropout()(torch.ones(3, 2))
    drop = NodeDropout()
    place(drop, torch.arange(4), 0)
    with pytest.raises(ValueError, match="X has 3 rows; 4 nodes are here"):
        drop(torch.ones(3, 2))
    for p in (-0.1, 1, float("nan")):
        with pytest.raises(ValueError, match="wanted 0 <= p < 1"):
            NodeDropout(p)
    with pytest.raises(TypeError, match=r"seed=1\.5: wanted an integer"):
        key_of(1.5, "x")


@pytest.mark.parametrize("model", [GCN, GraphSAGE])
def test_weights_come_from_seed_and_name(model):
    first, again = model(30, 4, layers=3), model(30, 4, layers=3)
    for name, seed in (("same", 1), ("other", 2)):
        initialise(first, 1)
        initialise(again, seed)
        for one, two in zip(first.parameters(), again.parameters(), strict=True):
            equal = torch.equal(one, two)
            assert equal == (name == "same" or one.dim() == 1)
    matrices = [p for p in first.parameters() if p.dim() == 2]
    for p in matrices:
        limit = (6 / sum(p.shape)) ** 0.5
        assert p.abs().max() <= limit
        assert p.abs().max() > 0.8 * limit
        assert abs(p.mean()) < 0.3 * limit
    assert not torch.equal(matrices[-1][:4, :4], matrices[-2][:4, :4])


def test_initialise_leaves_other_modules_alone():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    before = model[0].weight.clone()
    initialise(model, 1)
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_rows_times_weights(dtype):
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((20, 9)) * (rng.random((20, 9)) < 0.3)
    dense[4] = dense[:, 2] = 0
    X = SparseRows(LocalCSR.from_scipy(sparse.csr_array(dense), dtype=dtype))
    assert (X.shape, X.dtype) == ((20, 9), dtype)
    D = torch.tensor(dense).to(dtype)
    np.testing.assert_array_equal(X.to_dense(), D)
    W = torch.rand(9, 5, dtype=dtype, requires_grad=True)
    weight = torch.rand(20, 5, dtype=dtype)
    for one, other in ((X, D), (X.with_data(X.data * 2), 2 * D)):
        (grad,) = torch.autograd.grad(((one @ W) * weight).sum(), W)
        torch.testing.assert_close(one @ W, other @ W)
        torch.testing.assert_close(grad, other.T @ weight)
    if dtype == torch.float64:
        assert torch.autograd.gradcheck(lambda w: X @ w, (W,))


def test_sparse_rows_without_rows():
    X = rows(np.zeros((0, 4)))
    W = torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
    (X @ W).sum().backward()
    assert torch.equal(W.grad, torch.zeros_like(W))
    assert X.to_dense().shape == (0, 4)


@pytest.mark.parametrize("arguments", [(0, 3), (3, 0), (3, 2.0), (True, 2)])
def test_widths_are_checked(arguments):
    with pytest.raises(ValueError, match="wanted an integer of at least 1"):
        GCN(*arguments, layers=1)
    with pytest.raises(ValueError, match="layers=0"):
        GCN(3, 3, layers=0)
