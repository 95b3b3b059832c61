"""as_csr: every kind of object, never modified, always canonical."""

from __future__ import annotations

import dask.array as da
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dtoolkit.data import Dataset, as_csr, working_dtype
from dtoolkit.errors import MatrixFormatError

DENSE = np.array([[0, 2, 0, 0, -1], [0, 0, 0, 0, 0], [3, 0, np.inf, 0, 0], [0, 0, 0, 4, np.nan]])
SQUARE = np.array([[1.0, 0, 2, 0], [0, 0, 0, 3], [4, 5, 0, 0], [0, 0, 0, 6]])


def assert_canonical(A):
    assert isinstance(A, sparse.csr_array)
    assert A.dtype in (np.float32, np.float64, np.complex64, np.complex128)
    assert A.indptr.dtype == A.indices.dtype
    assert A.indptr[0] == 0
    assert A.indptr[-1] == len(A.indices) == len(A.data)
    for i in range(A.shape[0]):
        row = A.indices[A.indptr[i] : A.indptr[i + 1]]
        assert (np.diff(row) > 0).all()
    A.check_format(full_check=True)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("old", [False, True], ids=["array", "matrix"])
def test_scipy_formats(kind, old):
    make = sparse.coo_matrix if old else sparse.coo_array
    A = as_csr(make(DENSE).asformat(kind))
    assert_canonical(A)
    assert A.indices.dtype == np.int32
    np.testing.assert_array_equal(A.toarray(), DENSE)


def test_duplicates_are_summed_zeros_kept_and_the_input_left_alone():
    data = np.array([1.0, 2, 4, 0, 8])
    indices, indptr = np.array([3, 1, 3, 0, 0]), np.array([0, 3, 3, 5])
    given_ = sparse.csr_matrix((data.copy(), indices.copy(), indptr.copy()), shape=(3, 4))
    given_.has_canonical_format = True  # a lie
    A = as_csr(given_)
    assert_canonical(A)
    assert A.indices.tolist() == [1, 3, 0]
    assert A.data.tolist() == [2, 5, 8]
    np.testing.assert_array_equal(given_.data, data)
    np.testing.assert_array_equal(given_.indices, indices)
    kept = as_csr(sparse.csr_array(([0.0, 1.0], ([0, 1], [0, 1])), shape=(2, 2)))
    assert kept.nnz == 2


def test_flag_of_a_transposed_coo_is_not_believed():
    given_ = sparse.coo_matrix(([1.0, 2, 3], ([0, 0, 1], [0, 1, 0])), shape=(2, 2))
    given_.has_canonical_format = True
    turned = given_.T
    A = as_csr(turned)
    assert_canonical(A)
    np.testing.assert_array_equal(A.toarray(), [[1, 3], [2, 0]])


def test_narrow_integers_do_not_overflow_in_sums():
    A = as_csr(sparse.coo_array((np.array([100, 100], np.int8), ([0, 0], [0, 0])), shape=(1, 1)))
    assert A[0, 0] == 200
    A = as_csr(sparse.coo_array((np.array([True, True]), ([0, 0], [0, 0])), shape=(1, 1)))
    assert A[0, 0] == 2


def test_copy():
    given_ = as_csr(SQUARE)
    assert not np.shares_memory(as_csr(given_).data, given_.data)
    assert np.shares_memory(as_csr(given_, copy=False).data, given_.data)
    tensor = torch.tensor(SQUARE).to_sparse_csr()
    A = as_csr(tensor)
    A.data[:] = 0
    np.testing.assert_array_equal(tensor.to_dense().numpy(), SQUARE)


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        (np.bool_, np.float32),
        (np.int8, np.float32),
        (np.uint8, np.float32),
        (np.int16, np.float32),
        (np.uint16, np.float32),
        (np.float16, np.float32),
        (np.int32, np.float64),
        (np.uint32, np.float64),
        (np.int64, np.float64),
        (np.uint64, np.float64),
        (np.longdouble, np.float64),
        (np.clongdouble, np.complex128),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.complex64, np.complex64),
        (np.complex128, np.complex128),
        (np.dtype(">f8"), np.float64),
    ],
)
def test_dtype_rule(given_, kept):
    assert working_dtype(given_) == kept
    A = as_csr(np.eye(3).astype(given_))
    assert A.dtype == kept
    assert A.dtype.isnative
    np.testing.assert_array_equal(A.toarray(), np.eye(3))


def test_dtype_asked_for():
    assert as_csr(SQUARE, dtype=np.float32).dtype == np.float32
    assert as_csr(SQUARE, dtype="complex64").dtype == np.complex64
    with pytest.raises(TypeError, match="imaginary"):
        as_csr(SQUARE * 1j, dtype=np.float64)
    with pytest.raises(TypeError, match="want float32"):
        as_csr(SQUARE, dtype=np.int32)
    with pytest.raises(TypeError, match="not numbers"):
        working_dtype("U5")


def test_largest_uint64_is_rounded():
    A = as_csr(np.array([[2**64 - 1]], np.uint64))
    assert A.data[0] == 1.8446744073709552e19


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc", "dense"])
def test_torch_layouts(layout):
    dense = torch.tensor(SQUARE)
    tensor = {
        "coo": dense.to_sparse_coo,
        "csr": dense.to_sparse_csr,
        "csc": dense.to_sparse_csc,
        "bsr": lambda: dense.to_sparse_bsr((2, 2)),
        "bsc": lambda: dense.to_sparse_bsc((2, 2)),
        "dense": lambda: dense,
    }[layout]()
    A = as_csr(tensor)
    assert_canonical(A)
    np.testing.assert_array_equal(A.toarray(), SQUARE)


@pytest.mark.filterwarnings("ignore")
def test_torch_blocks_that_are_not_square():
    dense = torch.arange(24.0).reshape(4, 6)
    for tensor in (dense.to_sparse_bsr((2, 3)), dense.to_sparse_bsc((2, 3))):
        np.testing.assert_array_equal(as_csr(tensor).toarray(), dense.numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.complex64])
def test_torch_dtypes(dtype):
    tensor = torch.tensor(SQUARE).to(dtype)
    wanted = tensor.to(torch.complex64 if dtype.is_complex else torch.float32)
    A = as_csr(tensor)
    np.testing.assert_array_equal(A.toarray(), wanted.numpy())
    assert A.dtype == (np.complex64 if dtype.is_complex else np.float32)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_torch_duplicates_gradients_and_conjugates():
    index = torch.tensor([[0, 0, 1], [1, 1, 0]])
    tensor = torch.sparse_coo_tensor(index, torch.tensor([1.0, 2, 3]), (2, 2), is_coalesced=True)
    np.testing.assert_array_equal(as_csr(tensor).toarray(), [[0, 3], [3, 0]])
    weight = torch.nn.Parameter(torch.eye(2))
    np.testing.assert_array_equal(as_csr(weight).toarray(), np.eye(2))
    conjugate = torch.tensor([[1 + 2j]]).conj()
    assert as_csr(conjugate)[0, 0] == 1 - 2j


@pytest.mark.filterwarnings("ignore")
def test_indices_out_of_range_are_refused():
    one = torch.ones(1)
    coo = torch.sparse_coo_tensor([[0], [7]], one, (2, 2), check_invariants=False)
    with pytest.raises(MatrixFormatError, match="column 7"):
        as_csr(coo)
    csr = torch.sparse_csr_tensor([0, 1, 1], [5], one, (2, 2), check_invariants=False)
    with pytest.raises(MatrixFormatError, match="column 5"):
        as_csr(csr)
    csc = torch.sparse_csc_tensor([0, 1, 1], [-1], one, (2, 2), check_invariants=False)
    with pytest.raises(MatrixFormatError, match="-1"):
        as_csr(csc)
    broken = as_csr(SQUARE)
    broken.indices[0] = 99
    with pytest.raises(MatrixFormatError, match="column 99"):
        as_csr(broken)
    broken = as_csr(SQUARE)
    broken.indptr[2] = 1
    with pytest.raises(MatrixFormatError, match="row pointer falls at row 1"):
        as_csr(broken)
    rows = sparse.coo_array(SQUARE)
    rows.row[0] = 4
    with pytest.raises(MatrixFormatError, match="row 4"):
        as_csr(rows)


def test_networkx():
    graph = nx.Graph([("a", "b", {"weight": 2.5}), ("b", "c"), ("c", "c")])
    np.testing.assert_array_equal(as_csr(graph).toarray(), [[0, 2.5, 0], [2.5, 0, 1], [0, 1, 1]])
    directed = nx.MultiDiGraph([(0, 1), (0, 1), (1, 0)])
    np.testing.assert_array_equal(as_csr(directed).toarray(), [[0, 2], [1, 0]])
    assert as_csr(nx.empty_graph(3)).shape == (3, 3)
    assert as_csr(nx.Graph()).shape == (0, 0)


def test_dask():
    dense = da.from_array(DENSE, chunks=(2, 3))
    np.testing.assert_array_equal(as_csr(dense).toarray(), DENSE)
    chunks = dense.map_blocks(sparse.csr_matrix)
    A = as_csr(chunks)
    assert_canonical(A)
    np.testing.assert_array_equal(A.toarray(), DENSE)
    assert as_csr(da.zeros((0, 5), chunks=3)).shape == (0, 5)
    with pytest.raises(MatrixFormatError, match="want 2"):
        as_csr(da.ones(4))


def test_pandas_lists_and_sets():
    np.testing.assert_array_equal(as_csr(pd.DataFrame(DENSE)).toarray(), DENSE)
    frame = pd.DataFrame.sparse.from_spmatrix(sparse.coo_matrix(SQUARE))
    np.testing.assert_array_equal(as_csr(frame).toarray(), SQUARE)
    assert as_csr([[1, 0], [0, 2]]).nnz == 2
    data = Dataset("x", "y", as_csr(SQUARE), "here", "free")
    A = as_csr(data)
    np.testing.assert_array_equal(A.toarray(), SQUARE)
    assert not np.shares_memory(A.data, data.matrix.data)


def test_shapes():
    for shape in [(0, 0), (0, 5), (5, 0), (1, 1)]:
        A = as_csr(np.zeros(shape))
        assert A.shape == shape
        assert_canonical(A)
    wide = sparse.coo_array(([1.0], ([1], [2**40])), shape=(3, 2**41))
    assert as_csr(wide).indices.dtype == np.int64
    narrow = sparse.csr_array((np.ones(1), np.zeros(1, np.int64), np.array([0, 1])), shape=(1, 1))
    assert as_csr(narrow).indices.dtype == np.int32


@pytest.mark.parametrize(
    "thing", [np.ones(3), np.ones((2, 2, 2)), torch.ones(3), sparse.coo_array(np.ones(3))]
)
def test_not_two_dimensions(thing):
    with pytest.raises(MatrixFormatError, match="want 2"):
        as_csr(thing)


@pytest.mark.parametrize(
    "thing", [3, None, {"a": 1}, np.ma.masked_array(np.eye(2), np.eye(2) == 1), [["a", "b"]]]
)
def test_not_a_matrix(thing):
    with pytest.raises((TypeError, MatrixFormatError)):
        as_csr(thing)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(-9, 9)), max_size=30),
    st.sampled_from(["coo", "csr", "csc"]),
)
def test_any_triplets(rows, columns, entries, kind):
    r = np.array([e[0] % rows for e in entries], int)
    c = np.array([e[1] % columns for e in entries], int)
    v = np.array([e[2] for e in entries], float)
    A = as_csr(sparse.coo_array((v, (r, c)), shape=(rows, columns)).asformat(kind))
    dense = np.zeros((rows, columns))
    np.add.at(dense, (r, c), v)
    assert_canonical(A)
    assert A.nnz == len(set(zip(r.tolist(), c.tolist(), strict=True)))
    np.testing.assert_array_equal(A.toarray(), dense)
