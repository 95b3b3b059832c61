"""From a matrix to a plan: layouts, strategy, and what moves.

``plan`` is a pure function of its arguments. What it returns, :class:`Plan`, is data and serves
every product with the same matrix.
"""

from __future__ import annotations

from math import gcd
from time import perf_counter
from typing import Any

from numpy.typing import ArrayLike

from dtoolkit.data import as_csr
from dtoolkit.errors import PlanError
from dtoolkit.spmm import strategies
from dtoolkit.spmm.blocks import Structure
from dtoolkit.spmm.decisions import Problem, decide, everywhere
from dtoolkit.spmm.load import Load
from dtoolkit.spmm.nodes import as_nodes
from dtoolkit.spmm.partition import Partition, check_parts, column_layout, row_layout
from dtoolkit.spmm.planned import Plan
from dtoolkit.spmm.summary import itemsize

__all__ = ["PACKING_SURCHARGE", "Plan", "plan"]

PACKING_SURCHARGE = 0.25
"""Extra time of a row that is picked by index, over one that is sent with its whole shard.

An exchange by index gathers rows into a buffer and scatters what comes; an all-gather sends shards
as they lie. ``strategy="auto"`` holds ``rows * (1 + PACKING_SURCHARGE)`` of the busiest rank
against the rows of an all-gather. Measured by ``python -m tests.benchmarks.spmm`` with 4 ranks on
2 cores: where 494,000 rows go by index and 600,000 by all-gather, the all-gather takes 0.84 to 1.06
of the time; where 146,000 do, it takes 1.7 times as long.
"""


def plan(
    A: Any,
    *,
    parts: int,
    strategy: str | strategies.Strategy | Any = "joint",
    partition: Partition = "block",
    columns: Partition | None = None,
    ranks_per_node: int | None = None,
    nodes: ArrayLike | None = None,
    replication: int | None = None,
    b_dtype: Any = None,
    c_dtype: Any = None,
) -> Plan:
    """Plan C = A B over ``parts`` ranks; no cluster is needed.

    Parameters
    ----------
    A : sparse matrix
        Anything that ``read_matrix`` takes as an object.
    parts : int
        Ranks.
    strategy : str or object
        ``"joint"`` (SHIRO, arXiv 2512.20178: the least that can move), ``"column"`` (rows of B),
        ``"row"`` (partial rows of C), ``"oblivious"`` (all of B to all), ``"auto"`` (joint or
        oblivious, whichever is expected to be faster), or an own one that follows
        :class:`dtoolkit.spmm.strategies.Strategy`. Over nodes ``"hier-column"``, ``"hier-row"`` and
        ``"hier-joint"`` serve the same nonzeros in the same way, but a row of B crosses to a node
        once and partial rows of C are added up before they leave one; ``"node-pair"`` covers the
        blocks of two nodes instead of those of two ranks, the least that can cross (which of the
        two covers SHIRO solves could not be seen). Whole shards move on a grid of ranks in
        ``"1.5d"`` (groups of `replication` ranks) and ``"2d"`` (a square), after CAGNET (arXiv
        2005.03300), but with operand and result in 1D rows and one copy of each.
    partition : str, Layout, array of int or callable
        Layout of A's rows: ``"block"``, ``"cyclic"``, a layout, a part vector, or a function of A
        (canonical CSR) and ``parts`` that returns one.
    columns : the same, optional
        Layout of A's columns; by default that of the rows where A is square, else blocks.
    ranks_per_node : int, optional
        Ranks of a node: the first so many ranks are the first node, and so on.
    nodes : array of int of shape (parts,), optional
        Node of each rank, where they differ in size or order. Plans of all strategies then tell
        what crosses between nodes; those that go by way of nodes need it.
    replication : int, optional
        Ranks of a group in ``"1.5d"``, a divisor of `parts`; by default the largest that is at
        most the square root of `parts`.
    b_dtype, c_dtype : dtype, optional
        Where the rows of B and C differ in width the joint cover is weighted by it.

    Returns
    -------
    Plan

    Raises
    ------
    PlanError
        If ``parts``, ``strategy``, nodes, ``replication`` or a dtype is not usable.
    LayoutError
        If ``partition`` or ``columns`` does not fit.
    """
    start = perf_counter()
    parts = check_parts(parts)
    auto = isinstance(strategy, str) and strategy == "auto"
    name, method = strategies.resolve("joint" if auto else strategy)
    weights = _weights(b_dtype, c_dtype)
    of_rank = as_nodes(parts, ranks_per_node, nodes)
    A = as_csr(A, copy=False)
    rows = row_layout(partition, A, parts)
    laid = column_layout(columns, A, parts, rows, partition)
    problem = Problem(Structure.of(A), rows, laid, weights, of_rank)
    made = decide(problem, name, method, replication)
    name, reason = _choose(made.loads, weights) if auto else (name, "")
    if name == "oblivious" and auto:
        made = everywhere(problem, made)
    return Plan(
        shape=problem.A.shape,
        nnz=problem.A.nnz,
        parts=parts,
        strategy=name,
        rows=rows,
        columns=laid,
        by_row=made.assembly.by_row,
        stages=made.stages,
        matched=made.assembly.matched,
        matching=made.assembly.matching,
        weights=weights,
        loads=made.loads,
        digest=problem.A.digest(),
        reason=reason,
        setup_seconds=perf_counter() - start,
        structure=problem.A,
        nodes=of_rank,
        replication=made.replication,
    )


def _weights(b_dtype: Any, c_dtype: Any) -> tuple[int, int]:
    """Widths of the rows of B and C, in lowest terms."""
    if b_dtype is None and c_dtype is not None:
        raise PlanError("c_dtype= was given without b_dtype=: the cover is weighted by both")
    if c_dtype is None:
        c_dtype = b_dtype
    if b_dtype is None:
        return 1, 1
    b_size, c_size = itemsize(b_dtype, "b_dtype"), itemsize(c_dtype, "c_dtype")
    common = gcd(b_size, c_size)
    return b_size // common, c_size // common


def _choose(loads: tuple[Load, ...], weights: tuple[int, int]) -> tuple[str, str]:
    """Pick all-gather or exchange by index, by what the busiest rank sends and receives."""
    by_name = {load.strategy: load for load in loads}
    whole = float(by_name["oblivious"].weighed(weights).max())
    picked = float(by_name["joint"].weighed(weights).max())
    name = "oblivious" if whole < picked * (1 + PACKING_SURCHARGE) else "joint"
    unit = "rows" if weights == (1, 1) else f"row weights ({weights[0]}:{weights[1]}, B:C)"
    return name, (
        f"auto chose {'all-gather' if name == 'oblivious' else 'the exchange by index'}: the "
        f"busiest rank moves {whole:,.0f} {unit} by all-gather, {picked:,.0f} by index, each of "
        f"the latter reckoned {PACKING_SURCHARGE:.0%} dearer for packing"
    )
