"""Matrix Market: what is well formed reads right, what is not is refused by line and fault."""

from __future__ import annotations

import bz2
import gzip

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from dtoolkit.data import matrix_market, read_matrix
from dtoolkit.errors import MatrixFormatError

pytestmark = pytest.mark.filterwarnings("ignore:string or file could not be read")

COORDINATE = "%%MatrixMarket matrix coordinate {} {}\n"
GENERAL = COORDINATE.format("real", "general")

READ_BY_SCIPY = [
    "LFAT5_hypersparse.mtx", "bcsstk13.mtx.gz", "comments_west0067.mtx", "complex.mtx",
    "empty.mtx", "full.mtx", "full_symmetric.mtx", "jagmesh7.mtx", "karate.mtx", "lp_afiro.mtx",
    "matrix_bool.mtx", "matrix_int8.mtx", "olm1000.mtx", "skew_fp64.mtx", "west0067.mtx",
]  # fmt: skip

# Row, column and value from 1, as the files have them: SciPy reads neither.
TABLES = {
    "matrix_fp32.mtx": [
        (1, 2, np.inf), (1, 4, 7), (2, 5, 5), (2, 7, 8), (3, 6, 1), (4, 1, -np.inf), (4, 3, 0),
        (5, 6, 7), (6, 3, 5), (7, 3, 9), (7, 4, 1), (7, 5, 1),
    ],
    "matrix_uint64.mtx": [
        (1, 2, 1.8446744073709552e19), (1, 4, 7), (2, 5, 5), (2, 7, 8), (3, 6, 1), (4, 1, 0),
        (4, 3, 0), (5, 6, 7), (6, 3, 5), (7, 3, 9), (7, 4, 1), (7, 5, 1),
    ],
}  # fmt: skip

MANGLED = {
    "mangled1.mtx": (1, "object 'mangled'"),
    "mangled3.mtx": (1, "field 'mangled'"),
    "mangled5.mtx": (1, "combines hermitian with pattern"),
    "mangled8.mtx": (4, "size line '3'"),
    "mangled10.mtx": (6, "ends after 2 of 3"),
    "mangled13.mtx": (7, "column 9999 is out of range"),
}


@pytest.fixture
def write(tmp_path):
    def write_(text, name="m.mtx"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_


@pytest.mark.parametrize("name", READ_BY_SCIPY)
def test_files_as_scipy_reads_them(data_root, name):
    A = read_matrix(data_root / "mtx" / name)
    wanted = sparse.csr_array(scipy.io.mmread(data_root / "mtx" / name))
    wanted.sum_duplicates()
    assert A.shape == wanted.shape
    np.testing.assert_array_equal(A.indptr, wanted.indptr)
    np.testing.assert_array_equal(A.indices, wanted.indices)
    np.testing.assert_array_equal(A.data, wanted.data)
    assert A.dtype == (np.complex128 if name == "complex.mtx" else np.float64)


@pytest.mark.parametrize("name", TABLES)
def test_files_by_table(data_root, name):
    A = read_matrix(data_root / "mtx" / name)
    found = zip(*(A.tocoo().row + 1, A.tocoo().col + 1), A.data, strict=True)
    assert A.shape == (7, 7)
    assert list(found) == TABLES[name]


def test_jumbled_file_equals_the_tidy_one(data_root):
    A = read_matrix(data_root / "mtx" / "west0067_jumbled.mtx")
    tidy = read_matrix(data_root / "mtx" / "west0067.mtx")
    np.testing.assert_array_equal(A.indptr, tidy.indptr)
    np.testing.assert_array_equal(A.indices, tidy.indices)
    np.testing.assert_array_equal(A.data, tidy.data)


@pytest.mark.parametrize("name", MANGLED)
def test_mangled_files(data_root, name):
    path = data_root / "mtx" / name
    with pytest.raises(MatrixFormatError) as caught:
        read_matrix(path)
    line, fault = MANGLED[name]
    assert caught.value.line == line
    assert fault in caught.value.fault
    assert caught.value.path == str(path)
    assert f"{path}, line {line}" in str(caught.value)


def test_every_file_is_in_one_of_the_lists(data_root):
    known = {*READ_BY_SCIPY, *TABLES, *MANGLED, "west0067_jumbled.mtx"}
    assert {path.name for path in (data_root / "mtx").iterdir()} == known


# What is refused: name, text, line, part of the fault.
REFUSED = [
    ("empty", "", 1, "empty"),
    ("no banner", "3 3 1\n1 1 1\n", 1, "banner"),
    ("one percent", "%MatrixMarket matrix coordinate real general\n1 1 0\n", 1, "banner"),
    ("blank first", "\n" + GENERAL + "1 1 0\n", 1, "banner"),
    ("short banner", "%%MatrixMarket matrix coordinate real\n1 1 0\n", 1, "4 words"),
    ("long banner", GENERAL[:-1] + " more\n1 1 0\n", 1, "6 words"),
    ("glued banner", "%%MatrixMarketmatrix coordinate real general x\n", 1, "banner"),
    ("vector", "%%MatrixMarket vector coordinate real general\n1 0\n", 1, "object 'vector'"),
    ("format", "%%MatrixMarket matrix list real general\n1 1 0\n", 1, "format 'list'"),
    ("symmetry", "%%MatrixMarket matrix array real lower\n1 1\n1\n", 1, "symmetry 'lower'"),
    ("array pattern", "%%MatrixMarket matrix array pattern general\n1 1\n", 1, "forbids"),
    ("real hermitian", COORDINATE.format("real", "hermitian") + "1 1 0\n", 1, "forbids"),
    ("integer hermitian", COORDINATE.format("integer", "hermitian") + "1 1 0\n", 1, "forbids"),
    ("pattern skew", COORDINATE.format("pattern", "skew-symmetric") + "1 1 0\n", 1, "forbids"),
    ("banner only", GENERAL, 1, "ends before its size line"),
    ("comments only", GENERAL + "% a\n\n%b\n", 4, "ends before its size line"),
    ("two sizes", GENERAL + "2 2\n1 1 1\n", 2, "has 2 numbers"),
    ("four sizes", GENERAL + "2 2 1 1\n1 1 1\n", 2, "has 4 numbers"),
    ("array three sizes", "%%MatrixMarket matrix array real general\n1 1 1\n1\n", 2, "3 numbers"),
    ("negative size", GENERAL + "2 -2 1\n1 1 1\n", 2, "'-2'"),
    ("float size", GENERAL + "2 2.0 1\n1 1 1\n", 2, "'2.0'"),
    ("word size", GENERAL + "% c\ntwo 2 1\n1 1 1\n", 3, "'two'"),
    ("size beyond 64 bits", GENERAL + f"{2**64} 2 1\n1 1 1\n", 2, "whole numbers"),
    ("size of many digits", GENERAL + "9" * 5000 + " 2 1\n1 1 1\n", 2, "whole numbers"),
    ("symmetric oblong", COORDINATE.format("real", "symmetric") + "2 3 0\n", 2, "square"),
    ("fewer entries", GENERAL + "2 2 2\n1 1 1\n", 3, "ends after 1 of 2"),
    ("no entries", GENERAL + "2 2 2\n", 2, "ends after 0 of 2"),
    ("absurd entries", GENERAL + f"2 2 {10**15}\n1 1 1\n", 3, "ends after 1 of"),
    ("absurd rows", GENERAL + f"{10**12} 2 1\n1 1 1\n", 2, "row pointer"),
    ("more entries", GENERAL + "2 2 1\n1 1 1\n% c\n\n2 2 1\n", 6, "more than the stated 1"),
    ("more than none", GENERAL + "2 2 0\n1 1 1\n", 3, "more than the stated 0"),
    ("row 0", GENERAL + "2 2 1\n0 1 1\n", 3, "row 0"),
    ("negative row", GENERAL + "2 2 1\n-1 1 1\n", 3, "row -1"),
    ("row beyond", GENERAL + "2 2 2\n1 1 1\n3 1 1\n", 4, "row 3"),
    ("column 0", GENERAL + "2 2 1\n1 0 1\n", 3, "column 0"),
    ("column beyond 64 bits", GENERAL + f"2 2 1\n1 {2**70} 1\n", 3, "out of range"),
    ("float row", GENERAL + "2 2 1\n1.0 1 1\n", 3, "row '1.0'"),
    ("exponent row", GENERAL + "2 2 1\n1e0 1 1\n", 3, "row '1e0'"),
    ("nan row", GENERAL + "2 2 1\nnan 1 1\n", 3, "row 'nan'"),
    ("no value", GENERAL + "2 2 1\n1 1\n", 3, "has 2 numbers: want 3"),
    ("two values", GENERAL + "2 2 1\n1 1 1 1\n", 3, "has 4 numbers: want 3"),
    ("entry over two lines", GENERAL + "2 2 1\n1 1\n1\n", 3, "has 2 numbers"),
    ("two entries in a line", GENERAL + "2 2 2\n1 1 1 2 2 2\n", 3, "has 6 numbers"),
    ("comment behind", GENERAL + "2 2 1\n1 1 1 % one\n", 3, "has 5 numbers"),
    ("word value", GENERAL + "2 2 1\n1 1 one\n", 3, "'one'"),
    ("NA value", GENERAL + "2 2 1\n1 1 NA\n", 3, "'NA'"),
    ("quoted value", GENERAL + '2 2 1\n1 1 "1"\n', 3, "'\"1\"'"),
    ("decimal comma", GENERAL + "2 2 1\n1 1 1,5\n", 3, "'1,5'"),
    ("underscore", GENERAL + "2 2 1\n1 1 1_0\n", 3, "'1_0'"),
    ("hexadecimal", GENERAL + "2 2 1\n1 1 0x10\n", 3, "'0x10'"),
    ("two points", GENERAL + "2 2 1\n1 1 1.2.3\n", 3, "'1.2.3'"),
    ("sign alone", GENERAL + "2 2 1\n1 1 -\n", 3, "'-'"),
    ("beyond float64", GENERAL + "2 2 2\n1 1 inf\n2 2 1e999\n", 4, "'1e999'"),
    ("not ASCII digits", GENERAL + "2 2 1\n1 1 ٣\n", 3, "not a number"),
    ("pattern with value", COORDINATE.format("pattern", "general") + "2 2 1\n1 1 1\n", 3, "3 num"),
    ("complex short", COORDINATE.format("complex", "general") + "2 2 1\n1 1 1\n", 3, "want 4"),
    ("fraction", COORDINATE.format("integer", "general") + "2 2 1\n1 1 1.5\n", 3, "not whole"),
    ("unsigned", COORDINATE.format("unsigned-integer", "general") + "1 1 1\n1 1 -1\n", 3, "negat"),
    ("upper", COORDINATE.format("real", "symmetric") + "2 2 2\n1 1 1\n1 2 1\n", 4, "above the"),
    ("skew upper", COORDINATE.format("real", "skew-symmetric") + "2 2 1\n1 2 1\n", 3, "above"),
    ("skew diagonal", COORDINATE.format("real", "skew-symmetric") + "2 2 1\n1 1 0\n", 3, "on the"),
    (
        "hermitian diagonal",
        COORDINATE.format("complex", "hermitian") + "2 2 2\n2 1 1 1\n2 2 1 1\n",
        4,
        "imaginary part 1.0",
    ),
    (
        "hermitian array",
        "%%MatrixMarket matrix array complex hermitian\n2 2\n1 0\n2 1\n3 1\n",
        5,
        "imaginary part 1.0",
    ),
    ("array short", "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", 5, "3 of 4"),
    ("array long", "%%MatrixMarket matrix array real general\n1 1\n1\n2\n", 4, "more than"),
    ("array of rows", "%%MatrixMarket matrix array real general\n2 2\n1 2\n3 4\n", 3, "want 1"),
    ("absurd array", f"%%MatrixMarket matrix array real general\n{10**9} {10**9}\n1\n", 3, "1 of"),
    ("control character", GENERAL + "2 2 1\n1 1 1\0\n", 3, "not a number"),
    ("binary", bytes(range(256)) * 40, 1, "banner"),
    ("binary body", GENERAL.encode() + b"2 2 1\n\x93\x00\xff\xfe\n", 3, "numbers"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "fault"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refused(write, text, line, fault):
    path = write(text)
    with pytest.raises(MatrixFormatError) as caught:
        read_matrix(path)
    assert fault in caught.value.fault
    assert caught.value.line == line
    assert caught.value.path == str(path)


def test_fault_far_into_a_large_file(write, monkeypatch):
    monkeypatch.setattr("dtoolkit.data.text.PIECE_BYTES", 200)
    lines = [f"{i} {i} {i}.5" for i in range(1, 501)]
    A = read_matrix(write(GENERAL + "500 500 500\n" + "\n".join(lines)))
    np.testing.assert_array_equal(A.diagonal(), np.arange(1, 501) + 0.5)
    lines[432] = "433 501 1"
    with pytest.raises(MatrixFormatError, match="column 501") as caught:
        read_matrix(write(GENERAL + "500 500 500\n" + "\n".join(lines)))
    assert caught.value.line == 435


# What is read: name, text, matrix.
READ = [
    ("any case", "%%matrixmarket MATRIX Coordinate REAL General\n1 2 1\n1 2 -.5E+1\n", [[0, -5]]),
    ("carriage returns", (GENERAL + "2 1 1\n2 1 3\n").replace("\n", "\r\n"), [[0], [3]]),
    ("no last newline", GENERAL + "1 1 1\n1 1 7", [[7]]),
    ("blanks and tabs", GENERAL + "  1\t1   1 \n\t 1 1\t7  \n   \n", [[7]]),
    ("comments", GENERAL + "%\n\n 1 1 1\n  % in\n1 1 7\n%out\n\n", [[7]]),
    ("duplicates", GENERAL + "1 2 3\n1 1 1\n1 2 5\n1 1 2\n", [[3, 5]]),
    ("double", COORDINATE.format("double", "general") + "1 1 1\n1 1 7\n", [[7]]),
    ("plus", GENERAL + "1 1 1\n+1 +1 +7\n", [[7]]),
    ("Fortran", GENERAL + "1 2 2\n1 1 1.5D+02\n1 2 1d-1\n", [[150, 0.1]]),
    ("whole", COORDINATE.format("integer", "general") + "1 2 2\n1 1 5.0\n1 2 -1e3\n", [[5, -1000]]),
    ("words", GENERAL + "1 5 5\n1 1 INF\n1 2 -Infinity\n1 3 +inf\n1 4 NaN\n1 5 -nan\n",
     [[np.inf, -np.inf, np.inf, np.nan, np.nan]]),
    ("integer nan", COORDINATE.format("integer", "general") + "1 2 2\n1 1 nan\n1 2 -inf\n",
     [[np.nan, -np.inf]]),
    ("pattern", COORDINATE.format("pattern", "general") + "2 2 2\n2 1\n1 2\n", [[0, 1], [1, 0]]),
    ("symmetric", COORDINATE.format("real", "symmetric") + "2 2 2\n1 1 1\n2 1 3\n",
     [[1, 3], [3, 0]]),
    ("skew", COORDINATE.format("integer", "skew-symmetric") + "2 2 1\n2 1 3\n", [[0, -3], [3, 0]]),
    ("complex skew", COORDINATE.format("complex", "skew-symmetric") + "2 2 1\n2 1 3 1\n",
     [[0, -3 - 1j], [3 + 1j, 0]]),
    ("complex symmetric", COORDINATE.format("complex", "symmetric") + "2 2 1\n2 1 3 1\n",
     [[0, 3 + 1j], [3 + 1j, 0]]),
    ("hermitian", COORDINATE.format("complex", "hermitian") + "2 2 2\n1 1 5 0\n2 1 3 1\n",
     [[5, 3 - 1j], [3 + 1j, 0]]),
    ("array", "%%MatrixMarket matrix array real general\n2 3\n1\n2\n0\n4\n5\n6\n",
     [[1, 0, 5], [2, 4, 6]]),
    ("array symmetric", "%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n3\n",
     [[1, 2], [2, 3]]),
    ("array skew", "%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n",
     [[0, -1, -2], [1, 0, -3], [2, 3, 0]]),
    ("array hermitian", "%%MatrixMarket matrix array complex hermitian\n2 2\n1 0\n2 1\n3 0\n",
     [[1, 2 - 1j], [2 + 1j, 3]]),
    ("array of one skew row", "%%MatrixMarket matrix array real skew-symmetric\n1 1\n", [[0]]),
    ("no rows", GENERAL + "0 3 0\n", np.zeros((0, 3))),
    ("array of none", "%%MatrixMarket matrix array real general\n3 0\n", np.zeros((3, 0))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), [r[1:] for r in READ], ids=[r[0] for r in READ])
def test_read(write, text, wanted):
    A = read_matrix(write(text))
    np.testing.assert_array_equal(A.toarray(), wanted)
    assert A.shape == np.shape(wanted)


def test_explicit_zeros_are_kept(write):
    assert read_matrix(write(GENERAL + "1 2 2\n1 2 0\n1 1 -0.0\n")).nnz == 2


def test_dtype(write):
    path = write(GENERAL + "1 1 1\n1 1 .1\n")
    assert read_matrix(path, dtype=np.float32).dtype == np.float32
    with pytest.raises(TypeError, match="imaginary"):
        read_matrix(write(COORDINATE.format("complex", "general") + "1 1 0\n"), dtype=np.float64)


def test_compressed_and_misnamed(write):
    text = (GENERAL + "1 2 1\n1 2 4\n").encode()
    for name, body in [
        ("a.mtx.gz", gzip.compress(text)),
        ("a.mtx.bz2", bz2.compress(text)),
        ("plain.mtx.gz", text),
        ("gzip.mtx", gzip.compress(text)),
        ("noname", text),
    ]:
        np.testing.assert_array_equal(read_matrix(write(body, name)).toarray(), [[0, 4]])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_broken_compression(write, pack):
    rng = np.random.default_rng(0)
    lines = [f"{i} 1 {x}" for i, x in enumerate(rng.random(5000), 1)]
    body = pack((GENERAL + "5000 1 5000\n" + "\n".join(lines)).encode())
    for broken in (body[: len(body) // 2], body[:-4], body[:12]):
        with pytest.raises(MatrixFormatError, match=r"compressed|ends after|empty"):
            read_matrix(write(broken))
    changed = bytearray(body)
    changed[len(body) // 2] ^= 0xFF
    with pytest.raises(MatrixFormatError):
        read_matrix(write(bytes(changed)))


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.int64, np.complex128]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    ),
    st.booleans(),
)
def test_what_scipy_writes(tmp_path_factory, dense, dense_format):
    path = tmp_path_factory.mktemp("written") / "m.mtx"
    scipy.io.mmwrite(path, dense if dense_format else sparse.coo_array(dense), precision=17)
    np.testing.assert_array_equal(read_matrix(path).toarray(), dense.astype(complex))


TOKENS = [
    "1", "2", "3", "0", "-1", "+2", "1.0", "1e1", ".5", "1.", "007", "nan", "-inf", "infinity",
    "x", "1e999", "1d1", "1-", "1-2", "e5", "inf1", "nan2", "9007199254740993", "%",
    "\n", "\n", "\n", "\r\n",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(TOKENS), max_size=14),
    st.sampled_from(["real", "integer", "complex", "pattern"]),
    st.sampled_from(["general", "symmetric", "hermitian", "skew-symmetric"]),
    st.integers(0, 3),
)
def test_quick_parser_agrees_with_the_line_parser(tmp_path_factory, tokens, field, symmetry, count):
    path = tmp_path_factory.mktemp("agree") / "m.mtx"
    text = COORDINATE.format(field, symmetry) + f"3 3 {count}\n" + " ".join(tokens)
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        quick = _outcome(path)
        patch.setattr(matrix_market, "_quick", lambda *_: None)
        assert repr(_outcome(path)) == repr(quick)


def _outcome(path):
    try:
        A = read_matrix(path)
    except MatrixFormatError as error:
        return str(error)
    return A.indptr.tolist(), A.indices.tolist(), A.data.tolist()
