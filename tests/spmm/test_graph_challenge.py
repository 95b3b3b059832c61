"""The sparse DNN Graph Challenge: 1,200 images, 1,024 neurons, 30 layers, a known answer.

Y <- min(max(Y W + b, 0), 32) with b = -0.3 added to the nonzeros of Y W; an image belongs to the
categories if any neuron of the last layer is not 0 (Kepner et al., HPEC 2019; the data were cut to
1,200 images by T. Davis).
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import dtoolkit as dt
from dtoolkit.spmm.kernels import LocalCSR, multiply

LAYERS, BIAS, TOP = 30, -0.3, 32.0


@pytest.fixture(scope="module")
def challenge(data_root):
    folder = data_root / "graphchallenge"
    images = dt.read_matrix(folder / "sparse-images-1024_subset.mtx.gz", dtype=np.float32)
    weights = [
        dt.read_matrix(folder / f"n1024-l{layer}.mtx.gz", dtype=np.float32)
        for layer in range(1, LAYERS + 1)
    ]
    truth = dt.read_matrix(folder / "neuron1024-l120-categories_subset.mtx")
    return images, weights, np.flatnonzero(truth.toarray().ravel())


def activate(Z: torch.Tensor) -> torch.Tensor:
    """One layer's bias, added to nonzeros only, and its clipped rectifier; in place."""
    return Z.add_((Z != 0).to(Z.dtype), alpha=BIAS).clamp_(0, TOP)


def images_spread(ctx, Y, weights):
    """Rows of Y on the ranks, every W on all: ``(Y W)^T = W^T Y^T`` with the local kernel."""
    Z = Y.T.contiguous()
    for W in weights:
        Z = activate(multiply(W, Z))
    return torch.nonzero(Z.any(dim=0)).ravel().numpy()


def neurons_spread(ctx, layers, Y):
    """Neurons on the ranks: every layer is a distributed product with ``W^T``."""
    for W in layers:
        Y = activate(dt.spmm.product(ctx, W, Y))
    alive = ctx.comm.all_reduce(Y.any(dim=0).to(torch.float32), op="max")
    return torch.nonzero(alive).ravel().numpy()


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_categories_with_the_images_spread(challenge, cluster_of, workers):
    images, weights, truth = challenge
    cluster = cluster_of(workers)
    Y = dt.distribute(cluster, images.toarray())
    local = [LocalCSR.from_scipy(sp.csr_array(W.T)) for W in weights]
    found = cluster.run(images_spread, Y, local)
    layout = dt.Layout.block(images.shape[0], workers)
    alive = np.concatenate([layout.indices(r)[rows] for r, rows in enumerate(found)])
    assert len(truth) == 19
    np.testing.assert_array_equal(np.sort(alive), truth)


@pytest.mark.parametrize(("workers", "partition"), [(2, "block"), (4, "block"), (4, "cyclic")])
def test_categories_with_the_neurons_spread(challenge, cluster_of, workers, partition):
    images, weights, truth = challenge
    cluster = cluster_of(workers)
    layers, layout = [], None
    for W in weights:
        plan = dt.plan(W.T, parts=workers, partition=partition)
        layout = plan.columns
        layers.append(dt.distribute(cluster, W.T, plan))
    Y = dt.distribute(cluster, images.T.toarray(), layout)
    cluster.trace.clear()
    for found in cluster.run(neurons_spread, layers, Y):
        np.testing.assert_array_equal(found, truth)
    planned = sum(layer.plan.bytes(images.shape[0], np.float32) for layer in layers)
    assert cluster.trace.matrix(phase="spmm").sum() == planned


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_categories_with_arithmetic_on_arrays(challenge, cluster_of, dtype):
    """What a person writes in a notebook: a product, a mask, a bias, limits."""
    images, weights, truth = challenge
    cluster, Y = cluster_of(4), images.T.toarray().astype(dtype)
    for W in weights:
        dW = dt.distribute(cluster, W.T.astype(dtype))
        Y = dW @ Y
        Y = (Y + (Y != 0) * BIAS).clip(0, TOP)
        assert Y.dtype == torch.from_numpy(np.empty(0, dtype)).dtype
    np.testing.assert_array_equal(np.flatnonzero(Y.to_numpy().any(axis=0)), truth)
