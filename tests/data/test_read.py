"""read_matrix: kinds of files, .npz, edge lists, arguments."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dtoolkit.data import edge_list, read_matrix, uniform
from dtoolkit.errors import MatrixFormatError

pytestmark = pytest.mark.filterwarnings("ignore:string or file could not be read")


@pytest.fixture
def write(tmp_path):
    def write_(text, name):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_npz(tmp_path, kind):
    A = uniform(40, 3, seed=0, values="normal")
    path = tmp_path / "a.npz"
    sparse.save_npz(path, A.asformat(kind))
    B = read_matrix(str(path))
    np.testing.assert_array_equal(B.toarray(), A.toarray())
    assert B.dtype == np.float32
    assert read_matrix(path, dtype=np.float64).dtype == np.float64


def test_broken_npz(tmp_path, write):
    path = tmp_path / "a.npz"
    A = uniform(400, 3, seed=0)
    sparse.save_npz(path, A)
    body = path.read_bytes()
    for broken in (b"", b"PK\x03\x04", body[: len(body) // 2], body[:-30], b"\x80\x04K\x01."):
        with pytest.raises(MatrixFormatError, match="save_npz") as caught:
            read_matrix(write(broken, "b.npz"))
        assert caught.value.path.endswith("b.npz")
    np.savez(path, x=np.ones(3))
    with pytest.raises(MatrixFormatError, match="save_npz"):
        read_matrix(path)
    np.savez(path, format="csr", shape=(2, 2), data=np.ones(1), indices=[7], indptr=[0, 1, 1])
    with pytest.raises(MatrixFormatError, match="column"):
        read_matrix(path)
    fields = {"format": "coo", "data": np.ones(1), "row": [0], "col": [0]}
    np.savez(path, shape=(10**12, 2), **fields)
    with pytest.raises(MatrixFormatError, match="row pointer"):
        read_matrix(path)
    np.savez(path, shape=np.array([object(), 2]), **fields)
    with pytest.raises(MatrixFormatError, match="save_npz"):
        read_matrix(path)


EDGES = [
    ("blanks", "e.txt", "# from to\n0 1\n1 2\n\n2 0\n"),
    ("tabs", "e.tsv", "0\t1\n1\t2\n% c\n2\t0\n"),
    ("commas", "e.csv", "0,1\n1, 2\r\n2 ,0\n"),
    ("no last newline", "e.el", "0 1\n1 2\n2 0"),
    ("blanks around", "e.edges", "  0 1 \n1   2\n2 0\t\n"),
]


@pytest.mark.parametrize(("name", "text"), [e[1:] for e in EDGES], ids=[e[0] for e in EDGES])
def test_edge_lists(write, name, text):
    A = read_matrix(write(text, name))
    np.testing.assert_array_equal(A.toarray(), [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    packed = read_matrix(write(gzip.compress(text.encode()), name + ".gz"))
    np.testing.assert_array_equal(packed.toarray(), A.toarray())


def test_edge_values_base_shape_and_duplicates(write):
    path = write("1 2 0.5\n2 3 -1e3\n1 2 1\n", "e.tsv")
    A = read_matrix(path, base=1)
    np.testing.assert_array_equal(A.toarray(), [[0, 1.5, 0], [0, 0, -1000], [0, 0, 0]])
    assert read_matrix(path, base=1, shape=(2, 3)).shape == (2, 3)
    assert read_matrix(path, dtype=np.float32).shape == (4, 4)
    assert read_matrix(write("", "none.txt")).shape == (0, 0)
    assert read_matrix(write("# nothing\n", "none.txt"), shape=(3, 4)).shape == (3, 4)


BAD_EDGES = [
    ("word", "0 1\n1 b\n", 2, "column 'b'"),
    ("heading", "source target\n0 1\n", 1, "row 'source'"),
    ("one field", "0 1\n2\n", 2, "1 fields"),
    ("mixed", "0 1\n0 1 2\n", 2, "3 fields: want row column"),
    ("missing value", "0 1 2\n0 1\n", 2, "want row column value"),
    ("four fields", "0 1 2 3\n", 1, "4 fields"),
    ("float", "0 1.0\n", 1, "'1.0'"),
    ("negative", "0 1\n# c\n-1 2\n", 3, "row -1 is out of range"),
    ("empty field", "0,,1\n", 1, "''"),
    ("no value", "0,1,\n", 1, "value ''"),
    ("bad value", "0 1 1\n1 2 x\n", 2, "value 'x'"),
    ("absurd", f"0 {10**15}\n", None, "row pointer"),
    ("beyond 64 bits", f"0 {2**64}\n", 1, "out of range"),
    ("binary", b"\x00\xff\x93 1\n", 1, "row"),
]


@pytest.mark.parametrize(
    ("text", "line", "fault"), [b[1:] for b in BAD_EDGES], ids=[b[0] for b in BAD_EDGES]
)
def test_bad_edges(write, text, line, fault):
    with pytest.raises(MatrixFormatError) as caught:
        read_matrix(write(text, "e.csv"))
    assert caught.value.line == line
    assert fault in caught.value.fault


def test_edges_outside_the_shape_or_base(write):
    path = write("0 1\n4 2\n", "e.txt")
    with pytest.raises(MatrixFormatError, match="row 4 is out of range: want 0 to 2"):
        read_matrix(path, shape=(3, 3))
    with pytest.raises(MatrixFormatError, match="row 0 is out of range"):
        read_matrix(path, base=1)


def test_arguments(write, tmp_path):
    path = write("0 1\n", "e.txt")
    with pytest.raises(ValueError, match="base=2"):
        read_matrix(path, base=2)
    with pytest.raises(ValueError, match="shape="):
        read_matrix(path, shape=(3,))
    with pytest.raises(ValueError, match="for edge lists"):
        read_matrix(np.eye(2), base=1)
    with pytest.raises(FileNotFoundError):
        read_matrix(tmp_path / "absent.mtx")
    with pytest.raises(MatrixFormatError, match=r"want \.mtx"):
        read_matrix(write("1 2 3", "m.doc"))
    with pytest.raises(TypeError, match="want a SciPy"):
        read_matrix(3.5)
    np.testing.assert_array_equal(read_matrix(np.eye(2)).toarray(), np.eye(2))


TOKENS = ["0", "1", "2", ",", "-1", "+1", "1.0", "nan", "x", "#", "%", "\n", "\n", "\n", ",,", "\t"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=14))
def test_quick_parser_agrees_with_the_line_parser(tmp_path_factory, tokens):
    path = tmp_path_factory.mktemp("agree") / "e.txt"
    path.write_bytes(" ".join(tokens).encode())
    with pytest.MonkeyPatch.context() as patch:
        quick = _outcome(path)
        patch.setattr(edge_list, "_quick", lambda *_: None)
        assert repr(_outcome(path)) == repr(quick)


def _outcome(path):
    try:
        A = read_matrix(path)
    except MatrixFormatError as error:
        return str(error)
    return A.shape, A.indptr.tolist(), A.indices.tolist(), A.data.tolist()
