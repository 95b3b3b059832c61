"""Edge lists: one ``row column [value]`` a line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from dtoolkit.data.canonical import Shape, check_row_pointer, from_triplets
from dtoolkit.data.text import Piece, TextFile, parse_index, parse_real, parse_table, shown

__all__ = ["read_edge_list"]

_LARGEST = np.iinfo(np.int64).max - 1
_COMMENT = b"#%"
_LONE_COMMA = re.compile(rb"(?m),[ \t]*,|^[ \t]*,|,[ \t]*$")


def read_edge_list(
    path: Path, *, dtype: DTypeLike | None = None, base: int = 0, shape: Shape | None = None
) -> csr_array:
    """Canonical CSR of an edge list.

    Parameters
    ----------
    path : path
        A text file, plain or compressed, with ``row column`` or ``row column value`` on each
        line, separated by blanks, tabs or commas. Lines that start with ``#`` or ``%`` are
        comments.
    dtype : dtype-like, optional
        float32, float64, complex64 or complex128; by default float64. Without values, edges
        have ones.
    base : int, optional
        Number of the first row and column: 0 or 1.
    shape : tuple of int, optional
        Rows and columns. By default the list is a graph's, whose matrix is square: as many rows
        and columns as the largest number demands.

    Returns
    -------
    scipy.sparse.csr_array
        Duplicate edges are summed.

    Raises
    ------
    MatrixFormatError
        If a line is not an edge, or an edge is outside the shape: names file, line and fault.
    ValueError
        If ``base`` is not 0 or 1, or ``shape`` not two sizes.
    """
    if base not in (0, 1):
        raise ValueError(f"base={base!r}: want 0 or 1")
    if shape is not None and (len(shape) != 2 or min(shape) < 0):
        raise ValueError(f"shape={shape!r}: want two sizes, rows and columns")
    with TextFile(path) as text:
        table = _read_edges(text, base, shape)
    rows, columns = table[:2]
    if shape is None:
        largest = max((int(index.max()) for index in (rows, columns) if len(index)), default=-1)
        check_row_pointer(largest + 1, text.size, what=text.path)
        shape = (largest + 1, largest + 1)
    values = table[2] if len(table) == 3 else np.ones(len(rows))
    return from_triplets(rows, columns, values, shape, what=text.path, dtype=dtype)


def _read_edges(text: TextFile, base: int, shape: Shape | None) -> list[NDArray]:
    bounds = (_LARGEST, _LARGEST) if shape is None else shape
    parts: list[list[NDArray]] = []
    width: int | None = None
    for piece in text.pieces():
        width = width or _width(piece)
        if width is None:
            continue
        table = _quick(piece, width, base, bounds)
        parts.append(table or _line_by_line(piece, width, base, bounds, text))
    if not parts:
        return [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _tokens(line: bytes) -> list[bytes]:
    return re.split(rb"\s*,\s*|\s+", line)


def _width(piece: Piece) -> int | None:
    """Numbers on the first line that has any; wrong widths are left to the line parser."""
    for _, line in piece.lines():
        if line and line[:1] not in (b"#", b"%"):
            return 3 if len(_tokens(line)) >= 3 else 2
    return None


def _quick(piece: Piece, width: int, base: int, bounds: Shape) -> list[NDArray] | None:
    """Edges of a piece, all at once; None where one of them may be wrong."""
    text = piece.text
    if b"," in text:
        if _LONE_COMMA.search(text):
            return None
        text = text.replace(b",", b" ")
    table = parse_table(text, integers=2, reals=width - 2, comment=_COMMENT)
    if table is None:
        return None
    rows, columns = table[0] - base, table[1] - base
    good = (rows >= 0) & (rows < bounds[0]) & (columns >= 0) & (columns < bounds[1])
    return [rows, columns, *table[2:]] if good.all() else None


def _line_by_line(
    piece: Piece, width: int, base: int, bounds: Shape, text: TextFile
) -> list[NDArray]:
    """Edges of a piece, slowly; the first fault is raised."""
    edges: list[tuple[int, ...]] = []
    values: list[float] = []
    for number, line in piece.lines():
        if not line or line[:1] in (b"#", b"%"):
            continue
        tokens = _tokens(line)
        if len(tokens) != width:
            wanted = "row column value" if width == 3 else "row column"
            raise text.fault(f"{shown(line)} has {len(tokens)} fields: want {wanted}", number)
        edge = []
        for token, name, bound in zip(tokens[:2], ("row", "column"), bounds, strict=True):
            place = parse_index(token)
            if place is None:
                raise text.fault(f"{name} {shown(token)} is not a whole number", number)
            if not base <= place < bound + base:
                fault = f"{name} {place} is out of range: want {base} to {bound + base - 1}"
                raise text.fault(fault, number)
            edge.append(place - base)
        edges.append(tuple(edge))
        if width == 3:
            value = parse_real(tokens[2])
            if value is None:
                fault = f"value {shown(tokens[2])} is not a number that float64 can hold"
                raise text.fault(fault, number)
            values.append(value)
    index = np.array(edges, np.int64).reshape(-1, 2).T
    return [*index, np.array(values)] if width == 3 else [*index]
