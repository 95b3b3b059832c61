"""A matrix that says where it comes from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

import numpy as np
from scipy.sparse import csr_array

__all__ = ["Dataset", "content_hash"]

_BINS = 24
_SHADES = 6
_CARD = (
    '<div style="display:inline-flex;gap:14px;align-items:flex-start;border:1px solid #8888;'
    'border-radius:6px;padding:10px 12px;font-family:system-ui,sans-serif;font-size:13px">'
    '{picture}<div><div style="font-weight:600;font-size:14px">{name}</div>'
    '<div style="margin:2px 0 6px">{description}</div>'
    '<table style="border-collapse:collapse">{rows}</table></div></div>'
)
_ROW = (
    '<tr style="background:none"><th scope="row" style="text-align:left;padding:1px 10px 1px 0;'
    'font-weight:400;opacity:.7">{key}</th><td style="text-align:left;padding:1px 0">{value}</td>'
    "</tr>"
)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A matrix with its name, source and licence; shows itself as a card in a notebook.

    Anything that takes a matrix takes a set too: ``plan(digits_graph(), parts=4)``.

    Attributes
    ----------
    name : str
        Short name.
    description : str
        What rows, columns and values are, in a sentence.
    matrix : scipy.sparse.csr_array
        The matrix, canonical. It is shared by all who ask for the set: copy it before changing it.
    source : str
        Where the data come from.
    licence : str
        Terms under which they may be used.
    row_labels, column_labels : tuple of str
        What each row and column stands for; empty where numbers say it all.
    """

    name: str
    description: str
    matrix: csr_array = field(repr=False)
    source: str
    licence: str
    row_labels: tuple[str, ...] = field(default=(), repr=False)
    column_labels: tuple[str, ...] = field(default=(), repr=False)

    @cached_property
    def content_hash(self) -> str:
        """Hash of the matrix (see :func:`content_hash`), 32 hexadecimal digits."""
        return content_hash(self.matrix)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.matrix.shape

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.matrix.nnz)

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays of the matrix."""
        A = self.matrix
        return int(A.indptr.nbytes + A.indices.nbytes + A.data.nbytes)

    @property
    def size(self) -> str:
        """Rows, columns, entries and megabytes (10**6 bytes), in words."""
        rows, columns = self.shape
        return f"{rows:,} × {columns:,}, {self.nnz:,} nonzeros, {self.nbytes / 1e6:.2f} MB"

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"Dataset {self.name}: {self.description}",
                *(f"  {key:<9}{value}" for key, value in self._facts()),
            ]
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            _ROW.format(key=escape(key), value=escape(value)) for key, value in self._facts()
        )
        return _CARD.format(
            picture=_density(self.matrix),
            name=escape(self.name),
            description=escape(self.description),
            rows=rows,
        )

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("size", self.size),
            ("values", str(self.matrix.dtype)),
            ("source", self.source),
            ("licence", self.licence),
            ("hash", f"blake2b {self.content_hash}"),
        ]


def content_hash(matrix: csr_array) -> str:
    """Hash of a canonical CSR matrix that is the same on every machine.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array
        Canonical.

    Returns
    -------
    str
        BLAKE2b, 32 hexadecimal digits, of shape, row pointer and columns as little-endian int64,
        and the values with the name of their dtype.
    """
    digest = hashlib.blake2b(digest_size=16)
    for index in (np.array(matrix.shape), matrix.indptr, matrix.indices):
        digest.update(np.ascontiguousarray(index, dtype="<i8").data)
    digest.update(matrix.dtype.name.encode())
    little = matrix.dtype.newbyteorder("<")
    digest.update(np.ascontiguousarray(matrix.data, dtype=little).view(np.uint8).data)
    return digest.hexdigest()


def _density(matrix: csr_array) -> str:
    """Picture of where the entries are: darker where there are more (inline SVG)."""
    rows, columns = matrix.shape
    entries = matrix.tocoo()
    r = entries.row.astype(np.int64) * _BINS // max(rows, 1)
    c = entries.col.astype(np.int64) * _BINS // max(columns, 1)
    count = np.bincount(r * _BINS + c, minlength=_BINS * _BINS)
    level = np.ceil(_SHADES * (count / max(count.max(), 1)) ** 0.5).astype(int)
    paths = ""
    for shade in range(1, _SHADES + 1):
        cells = "".join(
            f"M{i % _BINS} {i // _BINS}h1v1h-1z" for i in np.flatnonzero(level == shade)
        )
        paths += f'<path fill-opacity="{shade / _SHADES:.2f}" d="{cells}"/>' if cells else ""
    return (
        f'<svg role="img" aria-label="pattern of the matrix" width="96" height="96" '
        f'viewBox="0 0 {_BINS} {_BINS}" fill="currentColor" shape-rendering="crispEdges" '
        f'style="border:1px solid #8888;flex:none">{paths}</svg>'
    )
