"""Layouts: which rank holds which row, as data.

A layout says for each of ``n`` global rows which of ``parts`` ranks owns it and where it stands in
that rank's shard. Regular layouts (block, cyclic, block-cyclic) are formulas: they cost nothing to
make and are exact for row numbers far beyond memory. A part vector lays rows out freely, as a
partitioner gives it.
"""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtoolkit.errors import LayoutError

__all__ = ["Layout", "as_layout"]

KINDS = ("block", "cyclic", "block-cyclic", "parts")

# Owners are int32 and rows int64: what lies beyond is refused rather than wrapped around.
_MAX_PARTS = 2**31 - 1
_MAX_ROWS = 2**62


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each row lives: owner and position, for ``n`` rows over ``parts`` ranks.

    Make one with :meth:`block`, :meth:`cyclic`, :meth:`block_cyclic` or :meth:`from_parts`. Within
    a rank rows stand in ascending global order. Two layouts are equal, and hash alike, when they
    put every row on the same rank, however they were made.

    Attributes
    ----------
    kind : str
        ``"block"``, ``"cyclic"``, ``"block-cyclic"`` or ``"parts"``.
    n : int
        Global number of rows.
    parts : int
        Number of ranks; some may own nothing.
    block_size : int
        Rows a block: the largest shard for ``"block"``, 1 for ``"cyclic"``, 0 for ``"parts"``.
    vector : int32 array of shape (n,) or None
        Owner of each row; only for ``"parts"``. Not writeable.

    Raises
    ------
    LayoutError
        For a negative ``n``, fewer than one part, a block size below 1, or a vector that does not
        fit.
    """

    kind: str
    n: int
    parts: int
    block_size: int
    vector: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LayoutError(f"kind={self.kind!r} is not a layout: known are {', '.join(KINDS)}")
        set_ = object.__setattr__
        set_(self, "n", _count("n", self.n, 0, _MAX_ROWS))
        set_(self, "parts", _count("parts", self.parts, 1, _MAX_PARTS))
        if self.kind == "parts":
            set_(self, "vector", _owners(self.vector, self.n, self.parts))
            set_(self, "block_size", 0)
            return
        if self.vector is not None:
            raise LayoutError(f"vector= belongs to kind 'parts', not to {self.kind!r}")
        if self.kind == "block":
            set_(self, "block_size", -(-self.n // self.parts))
        elif self.kind == "cyclic":
            set_(self, "block_size", 1)
        else:
            set_(self, "block_size", _count("block_size", self.block_size, 1, _MAX_ROWS))

    @classmethod
    def block(cls, n: int, parts: int) -> Layout:
        """Contiguous blocks, the first ``n % parts`` one row longer (as ``numpy.array_split``)."""
        return cls("block", n, parts, 0)

    @classmethod
    def cyclic(cls, n: int, parts: int) -> Layout:
        """Row ``i`` on rank ``i % parts``."""
        return cls("cyclic", n, parts, 1)

    @classmethod
    def block_cyclic(cls, n: int, parts: int, block_size: int) -> Layout:
        """Blocks of ``block_size`` rows, dealt to the ranks in turn."""
        return cls("block-cyclic", n, parts, block_size)

    @classmethod
    def from_parts(cls, vector: ArrayLike, parts: int | None = None) -> Layout:
        """Row ``i`` on rank ``vector[i]``.

        Parameters
        ----------
        vector : array of int of shape (n,)
            Owner of each row, from 0 to ``parts - 1``.
        parts : int, optional
            Number of ranks; by default one more than the largest owner.
        """
        owners = _integers("the part vector", vector)
        if owners.ndim != 1:
            raise LayoutError(f"the part vector has shape {owners.shape}; wanted one owner a row")
        if parts is None:
            parts = int(owners.max()) + 1 if owners.size else 1
        return cls("parts", owners.size, parts, 0, owners)

    def owner(self, index: ArrayLike) -> NDArray[np.int32]:
        """Ranks that own the given global rows.

        Parameters
        ----------
        index : int or array of int
            Global rows, each from 0 to ``n - 1``.

        Returns
        -------
        int32 array of the shape of ``index``
        """
        i = self._rows(index)
        if self.kind == "block":
            small, longer, cut = self._split()
            late = longer + (i - cut) // max(small, 1)
            return np.asarray(np.where(i < cut, i // (small + 1), late), dtype=np.int32)
        if self.vector is not None:
            return np.asarray(self.vector[i], dtype=np.int32)
        return np.asarray((i // self._block()) % self.parts, dtype=np.int32)

    def local(self, index: ArrayLike) -> NDArray[np.int64]:
        """Positions of the given global rows within their owner's shard.

        Parameters
        ----------
        index : int or array of int
            Global rows, each from 0 to ``n - 1``.

        Returns
        -------
        int64 array of the shape of ``index``
        """
        i = self._rows(index)
        if self.kind == "block":
            small, _, cut = self._split()
            late = (i - cut) % max(small, 1)
            return np.asarray(np.where(i < cut, i % (small + 1), late), dtype=np.int64)
        if self.vector is not None:
            return np.asarray(self._positions[i], dtype=np.int64)
        size = self._block()
        return np.asarray(i // size // self.parts * size + i % size, dtype=np.int64)

    def indices(self, part: int) -> NDArray[np.int64]:
        """Global rows of one rank, ascending: ``indices(p)[local(i)] == i`` where p owns i.

        Returns
        -------
        int64 array of shape (sizes[part],)
        """
        part = _count("part", part, 0, self.parts - 1)
        size = int(self.sizes[part])
        if self.vector is not None:
            order, starts = self._order
            return order[starts[part] : starts[part] + size]
        if self.kind == "block":
            small, longer, _ = self._split()
            start = part * small + min(part, longer)
            return np.arange(start, start + size, dtype=np.int64)
        block = self._block()
        within = np.arange(size, dtype=np.int64)
        return (within // block * self.parts + part) * block + within % block

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each rank: int64 array of shape (parts,)."""
        part = np.arange(self.parts, dtype=np.int64)
        if self.vector is not None:
            sizes = np.bincount(self.vector, minlength=self.parts).astype(np.int64)
        elif self.kind == "block":
            small, longer, _ = self._split()
            sizes = small + (part < longer).astype(np.int64)
        else:
            block = self._block()
            whole, rest = divmod(self.n, block)
            blocks = whole // self.parts + (part < whole % self.parts)
            sizes = blocks * block + np.where(part == whole % self.parts, rest, 0)
        return _frozen(sizes)

    @property
    def contiguous(self) -> bool:
        """Whether rank 0 owns the first rows, rank 1 the next ones, and so on."""
        if self.vector is not None:
            return bool(np.all(self.vector[1:] >= self.vector[:-1]))
        return self.kind == "block" or self.parts == 1 or self.n <= self._block() * self.parts

    @cached_property
    def digest(self) -> str:
        """Stable name of what is laid where: equal for equal layouts, on every machine."""
        kind, block_size = self._canonical()
        digest = hashlib.blake2b(f"{kind} {self.n} {self.parts} {block_size}".encode())
        if kind == "parts" and self.vector is not None:
            digest.update(self.vector.astype("<i4", copy=False).tobytes())
        return digest.hexdigest()[:32]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        if self is other:
            return True
        return (self.n, self.parts) == (other.n, other.parts) and self.digest == other.digest

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __repr__(self) -> str:
        size = f", block_size={self.block_size}" if self.kind == "block-cyclic" else ""
        sizes = self.sizes
        return (
            f"Layout({self.kind}, n={self.n}, parts={self.parts}{size}; "
            f"{sizes.min()} to {sizes.max()} rows a part)"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.figures.cards import layout_card

        return layout_card(self)

    def __getstate__(self) -> dict[str, Any]:
        # What is cached can be made again, and need not travel.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _split(self) -> tuple[int, int, int]:
        """Shorter shard size, number of longer shards, and first row of the shorter ones."""
        small, longer = divmod(self.n, self.parts)
        return small, longer, longer * (small + 1)

    def _block(self) -> int:
        # Blocks above n lay nothing else, and would overflow when multiplied.
        return max(1, min(self.block_size, self.n))

    def _rows(self, index: ArrayLike) -> NDArray[np.int64]:
        rows = _integers("index", index)
        if rows.size and (rows.min() < 0 or rows.max() >= self.n):
            bad = rows.min() if rows.min() < 0 else rows.max()
            raise LayoutError(f"index {bad} is not a row: rows are 0 to {self.n - 1}")
        return rows.astype(np.int64, copy=False)

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows sorted by owner, and where each owner's rows begin."""
        order = np.argsort(np.asarray(self.vector), kind="stable").astype(np.int64, copy=False)
        return _frozen(order), np.cumsum(self.sizes) - self.sizes

    @cached_property
    def _positions(self) -> NDArray[np.int64]:
        order, starts = self._order
        positions = np.empty(self.n, dtype=np.int64)
        positions[order] = np.arange(self.n) - np.repeat(starts, self.sizes)
        return positions

    def _canonical(self) -> tuple[str, int]:
        """One name for all layouts that lay the same rows on the same ranks.

        Block where it is one; else block-cyclic, whose block size is the length of the first run
        of rows on one rank; else the vector itself.
        """
        if self.kind == "block" or self.parts == 1 or self.n == 0:
            return "block", 0
        if self.vector is None:
            block = self._block()
            if self.contiguous and np.array_equal(
                self.sizes, Layout.block(self.n, self.parts).sizes
            ):
                return "block", 0
            return "block-cyclic", block
        rows = np.arange(self.n)
        if np.array_equal(self.vector, Layout.block(self.n, self.parts).owner(rows)):
            return "block", 0
        changes = np.flatnonzero(self.vector != self.vector[0])
        block = int(changes[0]) if changes.size else self.n
        if np.array_equal(self.vector, Layout.block_cyclic(self.n, self.parts, block).owner(rows)):
            return "block-cyclic", block
        return "parts", 0


def as_layout(
    spec: str | Layout | ArrayLike, n: int, parts: int, *, name: str = "layout"
) -> Layout:
    """Make a layout from what a person may write for one.

    Parameters
    ----------
    spec : str, Layout or array of int
        ``"block"``, ``"cyclic"``, a layout, or a part vector.
    n, parts : int
        Rows and ranks that it must have.
    name : str
        The argument's name, for errors.

    Returns
    -------
    Layout

    Raises
    ------
    LayoutError
        If the layout is unknown, or made for other rows or ranks.
    """
    parts = _count("parts", parts, 1, _MAX_PARTS)
    if isinstance(spec, str):
        if spec == "block":
            return Layout.block(n, parts)
        if spec == "cyclic":
            return Layout.cyclic(n, parts)
        raise LayoutError(
            f"{name}={spec!r} is not known: give 'block', 'cyclic', a Layout or a part vector"
        )
    if not isinstance(spec, Layout):
        owners = _integers(f"{name}= (a part vector)", spec)
        spec = Layout("parts", n, parts, 0, owners)
    if spec.n != n:
        raise LayoutError(f"{name}= lays out {spec.n} rows; wanted {n}")
    if spec.parts != parts:
        raise LayoutError(f"{name}= is made for {spec.parts} parts; wanted parts={parts}")
    return spec


def _count(name: str, value: object, low: int, high: int) -> int:
    """Check that ``value`` is an integer in range, and return it as one."""
    if isinstance(value, bool | np.bool_):
        raise LayoutError(f"{name}={value!r} is not an integer")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise LayoutError(f"{name}={value!r} is not an integer") from None
    if not low <= number <= high:
        raise LayoutError(f"{name}={number} is out of range: wanted {low} to {high}")
    return number


def _integers(name: str, values: object) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise LayoutError(f"{name} is no array of integers: {error}") from None
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise LayoutError(f"{name} has dtype {array.dtype}; wanted integers")
    return array


def _owners(vector: object, n: int, parts: int) -> NDArray[np.int32]:
    """Check a part vector and take a copy that nobody else can write to."""
    if vector is None:
        raise LayoutError("a layout of kind 'parts' needs vector=, the owner of each row")
    owners = _integers("the part vector", vector)
    if owners.shape != (n,):
        raise LayoutError(
            f"the part vector has shape {owners.shape}; wanted one owner a row, ({n},)"
        )
    outside = (owners < 0) | (owners >= parts)
    if outside.any():
        row = int(np.argmax(outside))
        raise LayoutError(
            f"the part vector puts row {row} on part {owners[row]}; parts are 0 to {parts - 1}"
        )
    return _frozen(owners.astype(np.int32))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
