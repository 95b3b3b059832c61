"""Partitions side by side, by what plans over them move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pandas as pd

from dtoolkit.arrays.quality import partition_quality
from dtoolkit.data import as_csr
from dtoolkit.spmm.partition import (
    Partition,
    check_parts,
    lay_out,
    partition_name,
)
from dtoolkit.spmm.plan import plan

if TYPE_CHECKING:
    from dtoolkit.comm import Network

__all__ = ["PARTITIONERS", "compare_partitions"]

#: Partitioners that are compared unless others are named.
PARTITIONERS = ("block", "random", "balanced", "rcm", "metis", "hypergraph")


def compare_partitions(
    A: Any,
    parts: int,
    partitioners: Iterable[Partition] | Mapping[str, Partition] = PARTITIONERS,
    *,
    strategy: Any = "joint",
    network: Network | None = None,
    k: int = 64,
    dtype: Any = "float32",
    **options: Any,
) -> pd.DataFrame:
    """Compare partitions of a matrix by volume, balance, cut and the time they take.

    Parameters
    ----------
    A : matrix, (rows, columns)
        Anything that ``dt.plan`` takes.
    parts : int
        Ranks.
    partitioners : iterable or mapping of str to partition
        Each is what ``dt.plan(partition=...)`` takes. A mapping names them.
    strategy : str or object
        Strategy of the plans, as in ``dt.plan``.
    network : Network, optional
        For which products of ``k`` columns of ``dtype`` are predicted.
    k : int
        Dense columns, for the prediction.
    dtype : dtype
        Of B and C, for the prediction.
    **options
        Further arguments of ``dt.plan``, such as ``ranks_per_node=``.

    Returns
    -------
    DataFrame
        Index ``partition``. Columns (planned, where not said otherwise): ``column``, ``row``,
        ``joint``, the rows that these strategies send, and the volume of ``strategy`` where it is
        none of them; ``between_nodes``, rows that cross between nodes with ``strategy``, where
        nodes are known; ``row_imbalance``, ``nonzero_imbalance`` and ``received_imbalance``, the
        largest part over the mean, of rows, nonzeros, and rows of B received by the column
        strategy; ``cut``, edges between parts; ``seconds``, that partitioning took (measured);
        ``predicted``, seconds of a product (modelled), where there is a network.

    Raises
    ------
    MissingPackage
        If a partitioner stands on a package that is not installed; name those you have.
    LayoutError, PlanError
        As ``dt.plan`` does.
    ValueError
        If there are no partitioners.
    """
    A = as_csr(A, copy=False)
    parts = check_parts(parts)
    rows = {}
    for name, partition in _named(partitioners).items():
        start = perf_counter()
        laid, columns = lay_out(A, parts, partition)
        seconds = perf_counter() - start
        made = plan(A, parts=parts, strategy=strategy, partition=laid, columns=columns, **options)
        volumes = made.compare()["volume"]
        quality = partition_quality(A, laid, columns)
        rows[name] = {
            **{known: int(volumes[known]) for known in ("column", "row", "joint")},
            made.strategy: made.volume,
            **({} if made.nodes is None else {"between_nodes": made.volume_between_nodes}),
            "row_imbalance": quality.row_imbalance,
            "nonzero_imbalance": quality.nonzero_imbalance,
            "received_imbalance": quality.received_imbalance,
            "cut": quality.cut,
            "seconds": seconds,
        }
        if network is not None:
            rows[name]["predicted"] = made.predict(network, k=k, dtype=dtype).seconds
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("partition")


def _named(partitioners: Iterable[Partition] | Mapping[str, Partition]) -> dict[str, Partition]:
    """Give each partition a name of its own."""
    if isinstance(partitioners, str) or not isinstance(partitioners, Iterable):
        partitioners = (partitioners,)
    if not isinstance(partitioners, Mapping):
        partitioners = list(partitioners)
    if not partitioners:
        raise ValueError(
            f"partitioners={partitioners!r} leaves nothing to compare: wanted at least one name, "
            "layout, part vector or callable"
        )
    if isinstance(partitioners, Mapping):
        return {str(name): partition for name, partition in partitioners.items()}
    named: dict[str, Partition] = {}
    for partition in partitioners:
        name = base = partition_name(partition)
        number = 1
        while name in named:
            number += 1
            name = f"{base} ({number})"
        named[name] = partition
    return named
