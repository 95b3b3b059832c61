"""From a matrix to a plan: layouts, strategy, and what moves.

``plan`` is a pure function of its arguments. What it returns, :class:`Plan`, is data and serves
every product with the same matrix.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from time import perf_counter
from typing import Any

from numpy.typing import ArrayLike

from dtoolkit.comm import Network
from dtoolkit.data import as_csr
from dtoolkit.errors import PlanError
from dtoolkit.spmm import strategies
from dtoolkit.spmm.blocks import Structure
from dtoolkit.spmm.choice import by_time, by_volume, check_network
from dtoolkit.spmm.decisions import Decision, Problem, decide, everywhere
from dtoolkit.spmm.nodes import as_nodes
from dtoolkit.spmm.partition import Partition, check_parts, lay_out
from dtoolkit.spmm.planned import Plan
from dtoolkit.spmm.routed import dense_columns
from dtoolkit.spmm.summary import itemsize

__all__ = ["Plan", "plan"]


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
    network: Network | None = None,
    k: int = 64,
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
        ``"row"`` (partial rows of C), ``"oblivious"`` (all of B to all), ``"auto"`` (with `network`
        the fastest of all by prediction, else joint or oblivious by the rows of the busiest rank),
        or an own one that follows :class:`dtoolkit.spmm.strategies.Strategy`. Over nodes
        ``"hier-column"``, ``"hier-row"`` and ``"hier-joint"`` serve the same nonzeros in the same
        way, but a row of B crosses to a node once and partial rows of C are added up before they
        leave one; ``"node-pair"`` covers the blocks of two nodes instead of those of two ranks,
        the least that can cross (which of the two covers SHIRO solves could not be seen). Whole
        shards move on a grid of ranks in ``"1.5d"`` (groups of `replication` ranks) and ``"2d"``
        (a square), after CAGNET (arXiv 2005.03300), but with operand and result in 1D rows and one
        copy of each.
    partition : str, Layout, array of int or callable
        Layout of A's rows: ``"block"``, ``"cyclic"``, ``"random"``, ``"balanced"``, ``"rcm"``,
        ``"metis"``, ``"hypergraph"`` or an object of :mod:`dtoolkit.arrays.partitioners`; a layout,
        a part vector, or a function of A (canonical CSR) and ``parts`` that returns one.
    columns : the same, optional
        Layout of A's columns; by default that of the rows where A is square, else what the
        partitioner of the rows gives to columns, else blocks.
    ranks_per_node : int, optional
        Ranks of a node: the first so many ranks are the first node, and so on.
    nodes : array of int of shape (parts,), optional
        Node of each rank, where they differ in size or order. Plans of all strategies then tell
        what crosses between nodes; those that go by way of nodes need it.
    replication : int, optional
        Ranks of a group in ``"1.5d"``, a divisor of `parts`; by default the largest that is at
        most the square root of `parts`.
    network : dtoolkit.comm.Network, optional
        What connects the ranks. ``"auto"`` chooses by predicted time on it and the plan shows what
        it was chosen from (``plan.candidates``); its nodes are the plan's, unless they are stated.
    k : int
        Dense columns that ``"auto"`` predicts for; a plan serves any number of them.
    b_dtype, c_dtype : dtype, optional
        Where the rows of B and C differ in width the joint cover is weighted by it.

    Returns
    -------
    Plan

    Raises
    ------
    PlanError
        If ``parts``, ``strategy``, nodes, ``replication``, ``network``, ``k`` or a dtype is not
        usable.
    LayoutError
        If ``partition`` or ``columns`` does not fit.
    MissingPackage
        If a partitioner stands on a package that is not installed.
    """
    start = perf_counter()
    parts, k = check_parts(parts), dense_columns(k)
    auto = isinstance(strategy, str) and strategy == "auto"
    name, method = strategies.resolve("joint" if auto else strategy)
    weights = _weights(b_dtype, c_dtype)
    of_rank = as_nodes(parts, ranks_per_node, nodes)
    if network is not None:
        check_network(network, parts)
        of_rank = as_nodes(parts, nodes=network.nodes) if of_rank is None else of_rank
    A = as_csr(A, copy=False)
    laid = lay_out(A, parts, partition, columns)
    problem = Problem(Structure.of(A), *laid, weights, of_rank)
    digest = problem.A.digest()

    def made(name: str, decision: Decision) -> Plan:
        return _plan(problem, name, decision, digest)

    if auto and network is not None:
        best, candidates, reason = by_time(
            problem, network, replication, made, k=k, b_dtype=b_dtype, c_dtype=c_dtype
        )
        best = replace(best, candidates=candidates, reason=reason)
    else:
        decision = decide(problem, name, method, replication)
        name, reason = by_volume(decision.loads, weights) if auto else (name, "")
        decision = everywhere(problem, decision) if auto and name == "oblivious" else decision
        best = replace(made(name, decision), reason=reason)
    return replace(best, setup_seconds=perf_counter() - start)


def _plan(problem: Problem, name: str, decision: Decision, digest: str) -> Plan:
    """Put together what was decided."""
    return Plan(
        shape=problem.A.shape,
        nnz=problem.A.nnz,
        parts=problem.parts,
        strategy=name,
        rows=problem.rows,
        columns=problem.columns,
        by_row=decision.assembly.by_row,
        stages=decision.stages,
        matched=decision.assembly.matched,
        matching=decision.assembly.matching,
        weights=problem.weights,
        loads=decision.loads,
        digest=digest,
        structure=problem.A,
        nodes=problem.nodes,
        replication=decision.replication,
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
