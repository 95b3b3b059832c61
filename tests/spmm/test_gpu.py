"""A gang of one rank on a GPU: the distributed product on CUDA against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import dtoolkit as dt

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def cluster():
    with dt.Cluster(workers=1, device="cuda") as one:
        yield one


def test_the_rank_computes_on_the_gpu(cluster):
    assert cluster.workers[0].device == "cuda:0"
    (found,) = cluster.run(lambda ctx: str((torch.ones(2, device=ctx.device) * 2).device))
    assert found == "cuda:0"


def test_collectives_take_tensors_of_the_gpu(cluster):
    (total,) = cluster.run(lambda ctx: ctx.comm.all_reduce(torch.ones(5, device=ctx.device)).cpu())
    assert total.tolist() == [1.0] * 5


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("k", [1, 7, 64])
@pytest.mark.parametrize("transpose", [False, True])
def test_product_equals_scipys(cluster, dtype, k, transpose):
    rng = np.random.default_rng(k)
    A = sp.random_array((301, 211), density=0.05, format="csr", rng=rng).astype(dtype)
    B = rng.standard_normal((301 if transpose else 211, k)).astype(dtype)
    dA = dt.distribute(cluster, A)
    left, wanted = (dA.T, A.T @ B) if transpose else (dA, A @ B)
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-11
    np.testing.assert_allclose((left @ B).to_numpy(), wanted, rtol=tolerance, atol=tolerance)


def test_nan_and_inf_reach_the_rows_that_store_them(cluster):
    A = sp.csr_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 3.0]]))
    B = np.array([[1.0], [np.inf], [np.nan]])
    got = (dt.distribute(cluster, A) @ B).to_numpy()
    np.testing.assert_array_equal(got, A @ B)
