"""Matrix Market files.

The format is that of Boisvert, Pozo and Remington, "The Matrix Market Exchange Formats: Initial
Design", NISTIR 5935 (1996), as the SuiteSparse collection and SciPy write it: comments and blank
lines anywhere, words in any case, ``inf`` and ``nan`` as values in every field, the fields
``double`` (real) and ``unsigned-integer``. What it forbids is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from dtoolkit.data.canonical import check_row_pointer, from_triplets
from dtoolkit.data.text import Piece, TextFile, parse_index, parse_real, parse_table, shown

__all__ = ["read_matrix_market"]

_FIELDS = {
    "real": "real",
    "double": "real",
    "integer": "integer",
    "unsigned-integer": "unsigned-integer",
    "complex": "complex",
    "pattern": "pattern",
}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_REALS = {"real": 1, "integer": 1, "unsigned-integer": 1, "complex": 2, "pattern": 0}
_INT64_MAX = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Header:
    """What the banner and the size line state."""

    array: bool
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int

    @property
    def integers(self) -> int:
        return 0 if self.array else 2

    @property
    def reals(self) -> int:
        return _REALS[self.field]


def read_matrix_market(path: Path, *, dtype: DTypeLike | None = None) -> csr_array:
    """Canonical CSR of a Matrix Market file.

    Parameters
    ----------
    path : path
        The file, plain or compressed by gzip, bzip2 or xz.
    dtype : dtype-like, optional
        By default complex128 for complex files, else float64: the format states no widths.
        Integers beyond 2**53 are rounded to the nearest float64; a pattern has ones.

    Returns
    -------
    scipy.sparse.csr_array
        Both triangles where the file is symmetric, skew-symmetric or hermitian. Duplicates are
        summed. Zeros are kept in the coordinate format and dropped in the array format.

    Raises
    ------
    MatrixFormatError
        If the file breaks the format: names file, line and fault.
    """
    with TextFile(path) as text:
        header = _read_header(text)
        size_line = text.line
        table = _read_entries(text, header)
        check_row_pointer(header.rows, text.size, what=text.path, line=size_line)
    rows, columns, values = _dense_positions(header, table) if header.array else _triplets(table)
    rows, columns, values = _mirror(header.symmetry, rows, columns, values)
    shape = (header.rows, header.columns)
    return from_triplets(rows, columns, values, shape, what=text.path, dtype=dtype)


def _read_header(text: TextFile) -> _Header:
    array, field, symmetry = _read_banner(text)
    line = text.next_line()
    while line is not None and (not line or line.startswith(b"%")):
        line = text.next_line()
    if line is None:
        raise text.fault("the file ends before its size line")
    tokens = line.split()
    wanted = "rows columns" if array else "rows columns entries"
    if len(tokens) != len(wanted.split()):
        raise text.fault(f"size line {shown(line)} has {len(tokens)} numbers: want {wanted}")
    sizes = [parse_index(token) for token in tokens]
    for token, size in zip(tokens, sizes, strict=True):
        if size is None or not 0 <= size < _INT64_MAX:
            raise text.fault(f"size line has {shown(token)}: want whole numbers, {wanted}")
    rows, columns = sizes[0] or 0, sizes[1] or 0
    if symmetry != "general" and rows != columns:
        raise text.fault(f"a {symmetry} matrix must be square, not {rows} x {columns}")
    entries = _dense_entries(rows, columns, symmetry) if array else sizes[2] or 0
    return _Header(array, field, symmetry, rows, columns, entries)


def _read_banner(text: TextFile) -> tuple[bool, str, str]:
    line = text.next_line()
    if line is None:
        raise text.fault("the file is empty", 1)
    if not line.lower().startswith(b"%%matrixmarket"):
        raise text.fault(f"starts with {shown(line)}: want a %%MatrixMarket banner")
    words = line.decode("latin-1").lower().split()
    if len(words) != 5 or words[0] != "%%matrixmarket":
        raise text.fault(
            f"banner {shown(line)} has {len(words)} words: want "
            "%%MatrixMarket matrix, format, field and symmetry"
        )
    kind, layout, field, symmetry = words[1:]
    for word, name, known in (
        (kind, "object", ("matrix",)),
        (layout, "format", ("coordinate", "array")),
        (field, "field", tuple(_FIELDS)),
        (symmetry, "symmetry", _SYMMETRIES),
    ):
        if word not in known:
            raise text.fault(f"banner has {name} {word!r}: want one of {', '.join(known)}")
    field = _FIELDS[field]
    forbidden = {
        "array": ("pattern",) if layout == "array" else (),
        "hermitian": ("real", "integer", "unsigned-integer", "pattern"),
        "skew-symmetric": ("unsigned-integer", "pattern"),
    }
    for word in (layout, symmetry):
        if field in forbidden.get(word, ()):
            raise text.fault(f"banner combines {word} with {field}: the format forbids it")
    return layout == "array", field, symmetry


def _dense_entries(rows: int, columns: int, symmetry: str) -> int:
    if symmetry == "general":
        return rows * columns
    if symmetry == "skew-symmetric":
        return rows * (rows - 1) // 2
    return rows * (rows + 1) // 2


def _read_entries(text: TextFile, header: _Header) -> list[NDArray]:
    """Index columns from 0 (coordinate format only), then value columns, of all entries."""
    parts: list[list[NDArray]] = []
    found = 0
    for piece in text.pieces():
        left = header.entries - found
        table = _quick(piece, header, left)
        if table is None:
            table = _line_by_line(piece, header, left, text)
        parts.append(table)
        found += len(table[0])
    if found < header.entries:
        raise text.fault(f"the file ends after {found:,} of {header.entries:,} stated entries")
    if not parts:
        kinds = [np.int64] * header.integers + [np.float64] * header.reals
        return [np.zeros(0, kind) for kind in kinds]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _quick(piece: Piece, header: _Header, left: int) -> list[NDArray] | None:
    """Entries of a piece, all at once; None where one of them may be wrong."""
    table = parse_table(piece.text, integers=header.integers, reals=header.reals, comment=b"%")
    if table is None or len(table[0]) > left:
        return None
    values = table[header.integers :]
    if header.field.endswith("integer"):
        finite = values[0][np.isfinite(values[0])]
        if (finite != np.trunc(finite)).any():
            return None
        if header.field == "unsigned-integer" and (finite < 0).any():
            return None
    if header.array:
        # Which values of a hermitian array are on the diagonal, the line parser knows.
        return None if header.symmetry == "hermitian" else table
    rows, columns = table[0] - 1, table[1] - 1
    good = (rows >= 0) & (rows < header.rows) & (columns >= 0) & (columns < header.columns)
    if header.symmetry != "general":
        good &= rows > columns if header.symmetry == "skew-symmetric" else rows >= columns
    if header.symmetry == "hermitian":
        good &= (rows != columns) | (values[1] == 0)
    return [rows, columns, *values] if good.all() else None


def _line_by_line(piece: Piece, header: _Header, left: int, text: TextFile) -> list[NDArray]:
    """Entries of a piece, slowly; the first fault is raised."""
    entries: list[tuple[float, ...]] = []
    positions: list[tuple[int, int]] = []
    width = header.integers + header.reals
    for number, line in piece.lines():
        if not line or line.startswith(b"%"):
            continue
        tokens = line.split()
        fault = None
        if len(entries) == left:
            fault = f"more than the stated {header.entries:,} entries"
        elif len(tokens) != width:
            fault = f"{shown(line)} has {len(tokens)} numbers: want {width}"
        else:
            place = header.entries - left + len(entries)
            position, fault = _position(tokens[: header.integers], place, header)
            values = tuple(parse_real(token) for token in tokens[header.integers :])
            fault = fault or _value_fault(tokens[header.integers :], values, position, header)
        if fault:
            raise text.fault(fault, number)
        positions.append(position)
        entries.append(tuple(value for value in values if value is not None))
    index = np.array(positions, np.int64).reshape(-1, 2).T
    data = np.array(entries, np.float64).reshape(len(entries), header.reals).T
    return [*data] if header.array else [*index, *data]


def _position(
    tokens: list[bytes], place: int, header: _Header
) -> tuple[tuple[int, int], str | None]:
    """Row and column from 0 of the entry at a place in the file, and what is wrong with them."""
    if header.array:
        return _array_position(place, header), None
    found = []
    for token, name, bound in zip(
        tokens, ("row", "column"), (header.rows, header.columns), strict=True
    ):
        index = parse_index(token)
        if index is None:
            return (-1, -1), f"{name} {shown(token)} is not a whole number"
        if not 1 <= index <= bound:
            return (-1, -1), f"{name} {index} is out of range: want 1 to {bound}"
        found.append(index - 1)
    row, column = found
    fault = None
    if header.symmetry != "general" and row < column:
        fault = (
            f"entry ({row + 1}, {column + 1}) is above the diagonal: a {header.symmetry} file "
            "has the lower triangle only"
        )
    elif header.symmetry == "skew-symmetric" and row == column:
        fault = f"entry ({row + 1}, {column + 1}) is on the diagonal of a skew-symmetric matrix"
    return (row, column), fault


def _value_fault(
    tokens: list[bytes],
    values: tuple[float | None, ...],
    position: tuple[int, int],
    header: _Header,
) -> str | None:
    for token, value in zip(tokens, values, strict=True):
        if value is None:
            return f"value {shown(token)} is not a number that float64 can hold"
        whole = not np.isfinite(value) or value == np.trunc(value)
        if header.field.endswith("integer") and not whole:
            return f"value {shown(token)} is not whole, but the banner says {header.field}"
        if header.field == "unsigned-integer" and -np.inf < value < 0:
            return f"value {shown(token)} is negative, but the banner says {header.field}"
    if header.symmetry == "hermitian" and position[0] == position[1] and values[1] != 0:
        return f"imaginary part {values[1]} on the diagonal of a hermitian matrix"
    return None


def _array_position(place: int, header: _Header) -> tuple[int, int]:
    """Row and column of the value at a place: columns one after the other, from the diagonal."""
    n = header.rows
    if header.symmetry == "general":
        return place % n, place // n
    if header.symmetry == "skew-symmetric":
        n -= 1
    # Columns 0 to j - 1 hold j * n - j * (j - 1) / 2 values.
    column = (2 * n + 1 - isqrt((2 * n + 1) ** 2 - 8 * place)) // 2
    column -= column * n - column * (column - 1) // 2 > place
    row = place - (column * n - column * (column - 1) // 2) + column
    return row + (header.symmetry == "skew-symmetric"), column


def _triplets(table: list[NDArray]) -> tuple[NDArray, NDArray, NDArray]:
    rows, columns, *values = table
    if not values:
        return rows, columns, np.ones(len(rows))
    return rows, columns, _complex(values)


def _complex(values: list[NDArray]) -> NDArray:
    if len(values) == 1:
        return values[0]
    joined = np.empty(len(values[0]), np.complex128)
    joined.real, joined.imag = values
    return joined


def _dense_positions(header: _Header, table: list[NDArray]) -> tuple[NDArray, NDArray, NDArray]:
    """Positions of an array file's values, which go column by column, zeros left out."""
    n = header.rows
    values = _complex(table)
    if header.symmetry == "general":
        kept = np.flatnonzero(values)
        return kept % max(n, 1), kept // max(n, 1), values[kept]
    first = np.arange(n) + (header.symmetry == "skew-symmetric")
    columns = np.repeat(np.arange(n), n - first)
    starts = np.concatenate([[0], np.cumsum(n - first)])
    rows = np.arange(len(values)) - starts[columns] + first[columns]
    kept = np.flatnonzero(values)
    return rows[kept], columns[kept], values[kept]


def _mirror(
    symmetry: str, rows: NDArray, columns: NDArray, values: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    if symmetry == "general":
        return rows, columns, values
    below = rows != columns
    mirrored = values[below]
    if symmetry == "skew-symmetric":
        mirrored = -mirrored
    elif symmetry == "hermitian":
        mirrored = mirrored.conj()
    return (
        np.concatenate([rows, columns[below]]),
        np.concatenate([columns, rows[below]]),
        np.concatenate([values, mirrored]),
    )
