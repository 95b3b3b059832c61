"""From what a person writes for ``partition=`` and ``columns=`` to layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.errors import LayoutError, PlanError

__all__ = ["Partition", "column_layout", "row_layout"]

#: What ``partition=`` accepts: a name, a layout, a part vector, or a function that makes one.
Partition = str | Layout | ArrayLike | Callable[[sparse.csr_array, int], ArrayLike | Layout]


def row_layout(partition: Partition, A: sparse.csr_array, parts: int) -> Layout:
    """Layout of the rows of A and C.

    Parameters
    ----------
    partition : str, Layout, array of int or callable
        ``"block"``, ``"cyclic"``, a layout, a part vector, or ``partition(A, parts)`` that returns
        one of the latter two; it gets A as canonical CSR.
    A : csr_array
    parts : int

    Raises
    ------
    LayoutError
        If it is unknown or does not fit; for a callable, naming it.
    """
    return _layout(partition, A, A.shape[0], parts, "partition")


def column_layout(
    columns: Partition | None, A: sparse.csr_array, parts: int, rows: Layout
) -> Layout:
    """Layout of the columns of A, which is that of the rows of B.

    By default that of A's rows where A is square, else blocks.
    """
    if columns is None:
        return rows if A.shape[0] == A.shape[1] else Layout.block(A.shape[1], parts)
    return _layout(columns, A, A.shape[1], parts, "columns")


def check_parts(parts: object) -> int:
    """``parts`` as an int of at least 1."""
    if isinstance(parts, int | np.integer) and not isinstance(parts, bool) and parts >= 1:
        return int(parts)
    raise PlanError(f"parts={parts!r}: wanted the number of ranks, an integer of at least 1")


def _layout(spec: Partition, A: sparse.csr_array, n: int, parts: int, name: str) -> Layout:
    if not callable(spec):
        return as_layout(spec, n, parts, name=name)
    who = f"{name}={getattr(spec, '__name__', type(spec).__name__)}"
    result: Any = spec(A, parts)
    if isinstance(result, Layout):
        return as_layout(result, n, parts, name=who)
    owners: NDArray[Any] = np.asarray(result)
    if owners.shape != (n,):
        raise LayoutError(
            f"{who} returned an array of shape {owners.shape}; wanted the owner of each of {n} rows"
        )
    try:
        return as_layout(owners, n, parts, name=who)
    except LayoutError as error:
        raise LayoutError(f"{who} returned no part vector: {error}") from None
