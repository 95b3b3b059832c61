"""What all partitioners share: arguments that were checked, and the cases that need no thought."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.partitioners.mending import mended
from dtoolkit.arrays.partitioners.weights import row_weights
from dtoolkit.data import as_csr
from dtoolkit.errors import LayoutError

__all__ = ["Partitioner", "owners_of", "shuffled"]


@dataclass(frozen=True)
class Partitioner(ABC):
    """Gives each row of a matrix, and so of the product, to a part.

    Call it with a matrix and a number of parts. The same arguments give the same part vector on
    every run. ``dt.plan(partition=...)`` takes it as it takes any callable.

    Attributes
    ----------
    name : str
        The name that ``dt.plan(partition=...)`` knows it by.
    """

    name: ClassVar[str]
    source: ClassVar[str]

    def __call__(self, A: Any, parts: int) -> NDArray[np.int32]:
        """Part of each row of A.

        Parameters
        ----------
        A : matrix, (rows, columns)
            Anything that :func:`dtoolkit.data.as_csr` takes. Only where its entries are stored
            counts; explicit zeros are entries.
        parts : int
            At least 1. With fewer rows than parts each row has a part of its own, the first ones.

        Returns
        -------
        int32 array of shape (rows,)

        Raises
        ------
        LayoutError
            If ``parts`` is not usable.
        MissingPackage
            If the partitioner stands on an optional package that is not installed.

        Warns
        -----
        PartitionWarning
            If the underlying library left a part empty or lost a row, which was mended.
        """
        parts = Layout.block(0, parts).parts
        A = as_csr(A, copy=False)
        rows = A.shape[0]
        if parts == 1 or rows <= parts:
            return np.arange(rows, dtype=np.int32) if parts > 1 else np.zeros(rows, np.int32)
        return mended(self._rows(A, parts), row_weights(A), parts, self.name)

    def columns(self, A: Any, rows: Layout | ArrayLike, parts: int | None = None) -> NDArray:
        """Part of each column of A, which is that of the rows of B, when the rows are laid out.

        Parameters
        ----------
        A : matrix, (rows, columns)
        rows : Layout or array of int of shape (rows,)
            What calling this partitioner gave.
        parts : int, optional
            By default that of the layout, or one more than the largest part.

        Returns
        -------
        int32 array of shape (columns,)
            That of the rows where A is square.
        """
        A = as_csr(A, copy=False)
        owners, parts = owners_of(rows, A.shape[0], parts)
        if A.shape[0] == A.shape[1]:
            return owners
        if parts == 1:
            return np.zeros(A.shape[1], np.int32)
        return self._columns(A, owners, parts)

    def cite(self) -> str:
        """Source of the algorithm, as text."""
        return self.source

    @abstractmethod
    def _rows(self, A: sparse.csr_array, parts: int) -> NDArray[Any]:
        """Partition more rows than parts, and more than one part."""

    @abstractmethod
    def _columns(
        self, A: sparse.csr_array, owners: NDArray[np.int32], parts: int
    ) -> NDArray[np.int32]:
        """Partition the columns of a matrix that is not square."""


def owners_of(
    rows: Layout | ArrayLike, n: int, parts: int | None = None, *, name: str = "rows"
) -> tuple[NDArray[np.int32], int]:
    """Owner of each of ``n`` rows, and the number of parts, of a layout or a part vector."""
    layout = rows if isinstance(rows, Layout) else Layout.from_parts(rows, parts)
    if layout.n != n:
        raise LayoutError(f"{name}= lays out {layout.n} rows; wanted {n}")
    if parts is not None and layout.parts != parts:
        raise LayoutError(f"{name}= is made for {layout.parts} parts; wanted parts={parts}")
    return layout.owner(np.arange(n)), layout.parts


def shuffled(n: int, seed: int) -> NDArray[np.int64]:
    """Permute ``0 .. n - 1`` by a seed, alike on every machine and in every version of NumPy."""
    # NumPy keeps the bits of a bit generator for ever, but not what is drawn from them.
    bits = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(n)
    return np.argsort(np.atleast_1d(bits), kind="stable").astype(np.int64, copy=False)


def check_seed(seed: object) -> int:
    """``seed`` as an int of at least 0."""
    if not isinstance(seed, bool | np.bool_):
        try:
            number = operator.index(seed)  # type: ignore[arg-type]
        except TypeError:
            number = -1
        if number >= 0:
            return number
    raise LayoutError(f"seed={seed!r}: wanted an integer of at least 0")


def check_imbalance(imbalance: object) -> float:
    """``imbalance`` as a finite float of at least 0."""
    if not isinstance(imbalance, bool | np.bool_ | str):
        try:
            number = float(imbalance)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if math.isfinite(number) and number >= 0:
            return number
    raise LayoutError(
        f"imbalance={imbalance!r}: wanted by what share the heaviest part may exceed the mean, "
        "such as 0.03"
    )
