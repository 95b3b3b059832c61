"""How volume and predicted time grow with the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from dtoolkit.data import as_csr
from dtoolkit.spmm.partition import Partition, check_parts, lay_out
from dtoolkit.spmm.plan import plan

if TYPE_CHECKING:
    from dtoolkit.comm import Network
    from dtoolkit.spmm.planned import Plan

__all__ = ["scaling"]

PARTS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
STRATEGIES = ("oblivious", "column", "row", "joint")


def scaling(
    A: Any,
    *,
    parts: Iterable[int] = PARTS,
    strategies: Iterable[Any] = STRATEGIES,
    partition: Partition = "block",
    network: Network | Callable[[int], Network] | None = None,
    k: int = 64,
    dtype: Any = "float32",
    **options: Any,
) -> pd.DataFrame:
    """Plan one matrix over ever more ranks, by several strategies.

    Parameters
    ----------
    A : matrix, (rows, columns)
        Anything that ``dt.plan`` takes.
    parts : iterable of int
        Numbers of ranks.
    strategies : iterable of str or object
        As in ``dt.plan``.
    partition : str, Layout, array of int or callable
        As in ``dt.plan``. What is no name and no callable fits one number of ranks.
    network : Network or callable, optional
        For which products are predicted: by ``network.with_ranks(parts)``, or by what it returns
        when called with a number of ranks. Where it has nodes, plans know them.
    k : int
        Dense columns, for the prediction.
    dtype : dtype
        Of B and C, for the prediction.
    **options
        Further arguments of ``dt.plan``, such as ``ranks_per_node=``.

    Returns
    -------
    DataFrame
        One row for each number of ranks and strategy. Columns: ``parts``; ``strategy``; ``volume``,
        rows sent in all (planned); ``largest_moved``, rows that the busiest rank sends and
        receives (planned); ``between_nodes``, rows that cross between nodes (planned), where nodes
        are known; ``seconds`` of a product (modelled), where there is a network.

    Raises
    ------
    PlanError, LayoutError
        As ``dt.plan`` does.
    ValueError
        If there are no parts or no strategies, or the network cannot be had with so many ranks.
    """
    A = as_csr(A, copy=False)
    counts = [check_parts(count) for count in _listed("parts", parts, "numbers of ranks")]
    strategies = _listed("strategies", strategies, "names or strategies")
    rows = []
    for count in counts:
        its = None if network is None else _with_ranks(network, count)
        laid, columns = lay_out(A, count, partition)  # once for all strategies
        known = {"partition": laid, "columns": columns, **options}
        if its is not None and its.kind == "two-tier" and "ranks_per_node" not in options:
            known.setdefault("nodes", its.nodes)
        for strategy in strategies:
            made = plan(A, parts=count, strategy=strategy, **known)
            rows.append(_row(made, its, k, dtype))
    return pd.DataFrame(rows)


def _listed(name: str, given: Any, what: str) -> list[Any]:
    """What is to be planned, at least one of it."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        given = [given]
    found = list(given)
    if not found:
        raise ValueError(f"{name}=[] leaves nothing to plan: wanted at least one of {what}")
    return found


def _with_ranks(network: Network | Callable[[int], Network], count: int) -> Network:
    return network(count) if callable(network) else network.with_ranks(count)


def _row(made: Plan, network: Network | None, k: int, dtype: Any) -> dict[str, Any]:
    row = {
        "parts": made.parts,
        "strategy": made.strategy,
        "volume": made.volume,
        "largest_moved": int(made.own_load.moved.max()),
    }
    if made.nodes is not None:
        row["between_nodes"] = made.volume_between_nodes
    if network is not None:
        row["seconds"] = made.predict(network, k=k, dtype=dtype).seconds
    return row
