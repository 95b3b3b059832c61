from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dtoolkit.spmm.kernels import LocalCSR, add_rows, available, gather_rows, multiply

KERNELS = available("cpu", torch.float32)
NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}
WIDTHS = (*range(1, 36), 63, 64, 65, 100, 127, 128, 129, 130, 255, 256, 257, 300)


def sparse(m=57, n=40, dtype=torch.float32, seed=0, density=0.15) -> sp.csr_array:
    """Rows of very different length, some empty, columns unsorted, with duplicates and zeros."""
    random = np.random.default_rng(seed)
    lengths = random.poisson(density * n, m) * (random.random(m) < 0.8)
    lengths[m // 2] = 3 * n
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    values = numbers(random, indptr[-1], NUMPY[dtype])
    values[::7] = 0
    return sp.csr_array((values, random.integers(0, n, indptr[-1]), indptr), shape=(m, n))


def numbers(random, shape, dtype):
    values = random.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * random.standard_normal(shape)
    return values.astype(dtype)


def dense(n=40, k=9, dtype=torch.float32, seed=1) -> torch.Tensor:
    return torch.from_numpy(numbers(np.random.default_rng(seed), (n, k), NUMPY[dtype]))


def nans(m, k, dtype=torch.float32) -> torch.Tensor:
    return torch.full((m, k), float("nan"), dtype=dtype)


def close(left, right, dtype=torch.float32, **options):
    tolerance = 1e-4 if dtype in (torch.float32, torch.complex64) else 1e-12
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance, **options)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_width_agrees_with_scipy_and_overwrites_what_was_there(kernel, dtype):
    A = sparse(dtype=dtype)
    local = LocalCSR.from_scipy(A)
    for k in WIDTHS:
        B = dense(k=k, dtype=dtype)
        out = nans(A.shape[0], k, dtype)
        assert multiply(local, B, out, kernel=kernel) is out
        close(out, A @ B.numpy(), dtype)


@pytest.mark.parametrize("dtype", NUMPY)
def test_numba_gives_the_bits_of_additions_in_order_of_storage(dtype):
    A = sparse(dtype=dtype)
    for k in (1, 3, 16, 64, 77, 128, 300):
        B = dense(k=k, dtype=dtype)
        wanted = np.zeros((A.shape[0], k), NUMPY[dtype])
        for i in range(A.shape[0]):
            for p in range(A.indptr[i], A.indptr[i + 1]):
                x = B[A.indices[p]].numpy()
                if dtype.is_complex:  # NumPy may fuse the parts of a complex product
                    v = A.data[p]
                    wanted[i].real += v.real * x.real - v.imag * x.imag
                    wanted[i].imag += v.real * x.imag + v.imag * x.real
                else:
                    wanted[i] += A.data[p] * x
        got = multiply(LocalCSR.from_scipy(A), B, kernel="numba").numpy()
        assert got.tobytes() == (wanted + 0).tobytes()


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("kernel", KERNELS)
def test_accumulate_adds_and_numba_continues_from_what_is_there(kernel, dtype):
    A = sparse(dtype=dtype)
    B, before = dense(dtype=dtype, k=21), dense(A.shape[0], 21, dtype, seed=5)
    out = before.clone()
    multiply(LocalCSR.from_scipy(A), B, out, accumulate=True, kernel=kernel)
    close(out, before.numpy() + A @ B.numpy(), dtype)
    if kernel == "numba":  # left half, then right half: the same additions in the same order
        A.sum_duplicates()
        multiply(LocalCSR.from_scipy(A), B, out.copy_(before), accumulate=True, kernel=kernel)
        whole = before.clone()
        for piece in (slice(0, 20), slice(20, 40)):
            half = sp.csr_array(A[:, piece])
            multiply(LocalCSR.from_scipy(half), B[piece], whole, accumulate=True, kernel=kernel)
        assert torch.equal(whole, out)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_nan_and_inf_spread_as_in_scipy_and_no_further(kernel, dtype):
    A = sparse(dtype=dtype)
    B = dense(dtype=dtype, k=20)
    B[3, 2], B[5, 2], B[7, 4], B[9, 17] = float("inf"), float("-inf"), float("nan"), float("inf")
    with np.errstate(invalid="ignore"):
        wanted = A @ B.numpy()
    got = multiply(LocalCSR.from_scipy(A), B, kernel=kernel).numpy()
    np.testing.assert_array_equal(np.isnan(got.real), np.isnan(wanted.real))
    close(got.real, wanted.real, dtype)
    assert np.isfinite(got[:, 5]).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_stored_zero_times_infinity_is_nan_and_nothing_stored_is_nothing(kernel):
    A = LocalCSR(torch.tensor([0, 1, 1]), torch.tensor([0]), torch.tensor([0.0]), (2, 2))
    B = torch.tensor([[float("inf")] * 5, [float("nan")] * 5])
    got = multiply(A, B, kernel=kernel)
    assert torch.isnan(got[0]).all()
    assert (got[1] == 0).all()


def layouts(n=40, k=12) -> dict[str, torch.Tensor]:
    base = dense(2 * n, 2 * k + 1)
    return {
        "fortran": dense(k, n).T,
        "column slice": base[:n, 3 : 3 + k],
        "every other row": base[::2, :k],
        "every other column": base[:n, : 2 * k : 2],
        "expanded rows": dense(1, k).expand(n, k),
        "expanded columns": dense(n, 1).expand(n, k),
        "one column of many": base[:n, 4:5],
        "vector of a row": dense(1, n).T,
        "needs grad": dense(n, k).requires_grad_(),
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", layouts())
def test_any_layout_of_B(kernel, name):
    A, B = sparse(), layouts()[name]
    got = multiply(LocalCSR.from_scipy(A), B, kernel=kernel)
    assert not got.requires_grad
    close(got, A @ B.detach().numpy())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("accumulate", [False, True])
def test_any_layout_of_out(kernel, accumulate):
    A, B = sparse(), dense(k=12)
    m = A.shape[0]
    wanted = (A @ B.numpy()) + (1 if accumulate else 0)
    for out in (
        torch.ones(12, m).T,
        torch.ones(m, 30)[:, 5:17],
        torch.ones(2 * m, 24)[::2, ::2],
    ):
        multiply(LocalCSR.from_scipy(A), B, out, accumulate=accumulate, kernel=kernel)
        close(out, wanted)
    frame = torch.full((m, 14), 7.0)
    multiply(LocalCSR.from_scipy(A), B, frame[:, 1:13], kernel=kernel)
    assert (frame[:, [0, 13]] == 7).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_out_may_share_memory_with_B(kernel):
    A = sparse(40, 40)
    memory = dense(40, 30)
    before = memory.clone()
    wanted = A @ memory[:, :12].numpy()
    multiply(LocalCSR.from_scipy(A), memory[:, :12], memory[:, 6:18], kernel=kernel)
    close(memory[:, 6:18], wanted)
    assert torch.equal(memory[:, 18:], before[:, 18:])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "shape", [(0, 4, 3), (4, 0, 3), (4, 4, 0), (0, 0, 0), (5, 4, 3), (1, 1, 1)]
)
def test_nothing_to_multiply(kernel, shape):
    m, n, k = shape
    A = LocalCSR.from_scipy(sp.csr_array((m, n), dtype=np.float32))
    got = multiply(A, torch.full((n, k), float("inf")), nans(m, k), kernel=kernel)
    assert torch.equal(got, torch.zeros(m, k))
    kept = torch.ones(m, k)
    assert torch.equal(
        multiply(A, torch.ones(n, k), kept, accumulate=True, kernel=kernel), torch.ones(m, k)
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_product_repeats_bit_for_bit(kernel):
    A, B = LocalCSR.from_scipy(sparse(500, 300, seed=3)), dense(300, 70)
    first = multiply(A, B, kernel=kernel).numpy().tobytes()
    assert all(multiply(A, B, kernel=kernel).numpy().tobytes() == first for _ in range(5))


@pytest.mark.parametrize("threads", [2, 3, 16, 100])
def test_threads_change_nothing(threads):
    A, B = LocalCSR.from_scipy(sparse()), dense(k=70)
    one = multiply(A, B, kernel="numba")
    many = multiply(A, B, nans(57, 70), kernel="numba", threads=threads)
    assert one.numpy().tobytes() == many.numpy().tobytes()


@pytest.mark.parametrize("kernel", KERNELS)
def test_wide_and_narrow_indices(kernel):
    A = sparse()
    wanted = A @ dense().numpy()
    for width in (torch.int16, torch.int32, torch.int64):
        for pointer in (torch.int32, torch.int64):
            local = LocalCSR(
                torch.from_numpy(A.indptr).to(pointer),
                torch.from_numpy(A.indices).to(width),
                torch.from_numpy(A.data),
                A.shape,
            )
            assert local.indptr.dtype == torch.int64
            assert local.indices.dtype == (torch.int32 if width == torch.int32 else torch.int64)
            close(multiply(local, dense(), kernel=kernel), wanted)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32_and_rounded_once(kernel, dtype):
    A = LocalCSR.from_scipy(sparse()).to(dtype=dtype)
    B, before = dense(k=33).to(dtype), dense(57, 33, seed=4).to(dtype)
    exact = torch.from_numpy(A.to(dtype=torch.float32).to_scipy() @ B.float().numpy())
    got = multiply(A, B, nans(57, 33, dtype), kernel=kernel)
    assert got.dtype == dtype
    torch.testing.assert_close(got, exact.to(dtype), rtol=2**-8, atol=1e-5)
    if kernel in ("numba", "scipy"):
        assert torch.equal(got, exact.to(dtype))
    added = multiply(A, B, before.clone(), accumulate=True, kernel=kernel)
    torch.testing.assert_close(added, (before.float() + exact).to(dtype), rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (torch.float32, torch.float64, torch.float64),
        (torch.float64, torch.float32, torch.float64),
        (torch.float32, torch.complex64, torch.complex64),
        (torch.float64, torch.complex64, torch.complex128),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.bool, torch.float32, torch.float32),
        (torch.float32, torch.int64, torch.float32),
    ],
)
def test_dtypes_promote(kernel, left, right, result):
    A = LocalCSR.from_scipy(sparse()).to(dtype=left)
    B = (4 * dense()).to(right)
    got = multiply(A, B, kernel=kernel)
    assert got.dtype == result
    wanted = A.to(dtype=result).to_scipy() @ B.to(result).numpy()
    close(got, wanted, result)


def test_conjugate_views_are_resolved():
    A, B = sparse(dtype=torch.complex64), dense(dtype=torch.complex64)
    local = LocalCSR.from_scipy(A)
    close(multiply(local, B.conj()), A @ B.numpy().conj())
    close(multiply(local.with_data(local.data.conj()), B), A.conj() @ B.numpy())
    out = torch.zeros(57, 9, dtype=torch.complex64)
    multiply(local, B, out.conj())
    close(out, (A @ B.numpy()).conj())


def test_large_results_start_at_a_cache_line():
    A = LocalCSR.from_scipy(sp.eye_array(20_000, format="csr", dtype=np.float32))
    B = torch.randn(20_000, 65)
    got = multiply(A, B)
    assert got.data_ptr() % 64 == 0
    assert got.is_contiguous()
    assert torch.equal(got, B)


def test_the_matrix_travels_and_shares():
    A = sparse()
    local = LocalCSR.from_scipy(A)
    assert (local.nnz, local.dtype, local.device.type) == (A.nnz, torch.float32, "cpu")
    assert local.data.data_ptr() == A.data.ctypes.data
    assert local.to() is local
    multiply(local, dense(), kernel="torch")
    copy = pickle.loads(pickle.dumps(local))
    assert torch.equal(multiply(copy, dense()), multiply(local, dense()))
    doubled = local.with_data(2 * local.data)
    assert torch.equal(multiply(doubled, dense()), 2 * multiply(local, dense()))
    assert doubled.indices is local.indices
    A.data.flags.writeable = False
    assert LocalCSR.from_scipy(A).data.data_ptr() != A.data.ctypes.data


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indptr": [0, 1]}, "indptr must have shape"),
        ({"indptr": [1, 1, 2]}, "rise from 0"),
        ({"indptr": [0, 3, 2]}, "rise from 0"),
        ({"indptr": [0, 1, 3]}, "rise from 0"),
        ({"indices": [0, 2]}, "within 0 .. 1"),
        ({"indices": [-1, 0]}, "within 0 .. 1"),
        ({"indices": [0]}, "one length"),
    ],
)
def test_a_broken_matrix_is_refused(change, words):
    parts = {"indptr": [0, 1, 2], "indices": [0, 1]} | change
    with pytest.raises(ValueError, match=words):
        LocalCSR(
            torch.tensor(parts["indptr"]), torch.tensor(parts["indices"]), torch.ones(2), (2, 2)
        )
    with pytest.raises(TypeError, match="integers"):
        LocalCSR(torch.tensor([0.0, 1]), torch.tensor([0]), torch.ones(1), (1, 1))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((torch.ones(3, 2),), {}, ValueError, r"B must have shape \(40, k\)"),
        ((torch.ones(40),), {}, ValueError, r"passed as \(n, 1\)"),
        ((np.ones((40, 2)),), {}, TypeError, "B must be a dense torch tensor, not ndarray"),
        ((torch.eye(40).to_sparse(),), {}, TypeError, "dense torch tensor"),
        ((torch.ones(40, 2), torch.ones(57, 3)), {}, ValueError, "out must be"),
        ((torch.ones(40, 2), torch.ones(57, 2).double()), {}, TypeError, "out must be"),
        ((torch.ones(40, 2, device="meta"),), {}, ValueError, "B is on meta"),
        ((torch.ones(40, 2),), {"kernel": "cuda"}, ValueError, "available are numba"),
        ((torch.ones(40, 2),), {"accumulate": True}, ValueError, "out is None"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(arguments, options, error, words):
    with pytest.raises(error, match=words):
        multiply(LocalCSR.from_scipy(sparse()), *arguments, **options)


def test_integers_alone_are_refused():
    A = LocalCSR.from_scipy(sparse()).to(dtype=torch.int64)
    with pytest.raises(TypeError, match="convert one"):
        multiply(A, torch.ones(40, 2, dtype=torch.int64))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", NUMPY)
def test_the_same_on_a_gpu(dtype):
    A, B = LocalCSR.from_scipy(sparse(dtype=dtype)), dense(dtype=dtype, k=33)
    wanted = multiply(A, B, kernel="scipy")
    on_gpu = A.to("cuda")
    out = nans(57, 33, dtype).cuda()
    multiply(on_gpu, B.cuda(), out)
    close(out.cpu(), wanted, dtype)
    multiply(on_gpu, B.cuda(), out, accumulate=True)
    close(out.cpu(), 2 * wanted, dtype)
    index = torch.tensor([0, 3, 7]).cuda()
    rows = gather_rows(out, index)
    add_rows(out, index, rows)
    close(out[index].cpu(), 4 * wanted[index.cpu()], dtype)
    with pytest.raises(ValueError, match="move one of them"):
        multiply(on_gpu, B)
