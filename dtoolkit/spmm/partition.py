"""From what a person writes for ``partition=`` and ``columns=`` to layouts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.arrays.partitioners import Partitioner, PartitionWarning, by_name
from dtoolkit.errors import LayoutError, PlanError

__all__ = ["Partition", "check_parts", "lay_out", "partition_name"]

#: What ``partition=`` accepts: a name, a layout, a part vector, or a function that makes one.
Partition = str | Layout | ArrayLike | Callable[[sparse.csr_array, int], ArrayLike | Layout]


def lay_out(
    A: sparse.csr_array,
    parts: int,
    partition: Partition = "block",
    columns: Partition | None = None,
) -> tuple[Layout, Layout]:
    """Lay out the rows of A and C, and the columns of A, which are the rows of B.

    Parameters
    ----------
    A : csr_array
        Canonical.
    parts : int
    partition : str, Layout, array of int or callable
        Of the rows: a name of :data:`dtoolkit.arrays.partitioners.NAMES`, a layout, a part vector,
        or ``partition(A, parts)`` that returns one of the latter two.
    columns : the same, or None
        None: that of A's rows where A is square; else what the partitioner of the rows has to say
        (``partition.columns(A, rows)``), if it has, else blocks. A name, or a partitioner of
        dtoolkit, partitions the rows of A.T; any other callable is called with A.

    Returns
    -------
    rows, columns : Layout

    Raises
    ------
    LayoutError
        If one is unknown or does not fit; for a callable, naming it.
    MissingPackage
        If a partitioner stands on a package that is not installed.

    Warns
    -----
    PartitionWarning
        If a callable leaves a part empty though there are as many rows as parts.
    """
    rows = _layout(_named(partition, "partition"), A, A.shape[0], parts, "partition")
    return rows, _columns(columns, A, parts, rows, partition)


def partition_name(partition: Partition) -> str:
    """What to call a partition in a table: its name, or what it is."""
    if isinstance(partition, str):
        return partition
    if isinstance(partition, Layout):
        return partition.kind
    return _name(partition) if callable(partition) else "part vector"


def check_parts(parts: object) -> int:
    """``parts`` as an int of at least 1."""
    if isinstance(parts, int | np.integer) and not isinstance(parts, bool) and parts >= 1:
        return int(parts)
    raise PlanError(f"parts={parts!r}: wanted the number of ranks, an integer of at least 1")


def _columns(
    columns: Partition | None,
    A: sparse.csr_array,
    parts: int,
    rows: Layout,
    partition: Partition,
) -> Layout:
    if columns is not None:
        spec = _named(columns, "columns")
        seen = sparse.csr_array(A.T) if isinstance(spec, Partitioner) else A
        return _layout(spec, seen, A.shape[1], parts, "columns")
    if A.shape[0] == A.shape[1]:
        return rows
    spec = _named(partition, "partition")
    method = getattr(spec, "columns", None)
    if not callable(spec) or not callable(method):
        return Layout.block(A.shape[1], parts)
    return _checked(method(A, rows), A.shape[1], parts, f"partition={_name(spec)}.columns")


def _named(spec: Partition, argument: str) -> Partition:
    """Look a name up; regular layouts stay formulas, which cost nothing."""
    if isinstance(spec, str) and spec not in ("block", "cyclic"):
        return by_name(spec, argument=argument)
    return spec


def _layout(spec: Partition, A: sparse.csr_array, n: int, parts: int, name: str) -> Layout:
    if not callable(spec):
        return as_layout(spec, n, parts, name=name)
    layout = _checked(spec(A, parts), n, parts, f"{name}={_name(spec)}")
    empty = int((layout.sizes == 0).sum())
    if empty and n >= parts:
        warnings.warn(
            f"{name}={_name(spec)} left {empty:,} of {parts:,} parts without rows, though there "
            f"are {n:,}: their ranks will have nothing to do",
            PartitionWarning,
            stacklevel=4,
        )
    return layout


def _checked(result: Any, n: int, parts: int, who: str) -> Layout:
    """Make a layout of what a callable returned."""
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


def _name(spec: Any) -> str:
    if isinstance(spec, Partitioner):
        return spec.name
    return getattr(spec, "__name__", type(spec).__name__)
