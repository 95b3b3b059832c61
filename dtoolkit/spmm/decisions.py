"""From a strategy's name to where each nonzero is multiplied and what moves in which stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.errors import PlanError
from dtoolkit.spmm import routes, strategies
from dtoolkit.spmm.assembly import Assembly, assemble, assemble_by
from dtoolkit.spmm.blocks import Blocks, Structure
from dtoolkit.spmm.load import Load
from dtoolkit.spmm.node_pair import assemble_node_pairs
from dtoolkit.spmm.nodes import largest_divisor
from dtoolkit.spmm.pairlists import Stage
from dtoolkit.spmm.strategies import OVER_GRID, OVER_NODES, Assignment

__all__ = ["Decision", "Problem", "all_loads", "decide", "everywhere", "replication_of"]


@dataclass(frozen=True, eq=False)
class Problem:
    """What strategies decide on.

    Attributes
    ----------
    A : Structure
    rows, columns : Layout
    weights : (int, int)
        What a row of B and a partial row of C weigh, in proportion.
    nodes : int32 array of shape (parts,) or None
    """

    A: Structure
    rows: Layout
    columns: Layout
    weights: tuple[int, int] = (1, 1)
    nodes: NDArray[np.int32] | None = None

    @property
    def parts(self) -> int:
        """Ranks."""
        return self.rows.parts


@dataclass(frozen=True, eq=False)
class Decision:
    """What a strategy decided.

    Attributes
    ----------
    assembly : Assembly
    stages : tuple of Stage
    loads : tuple of Load
        Of this strategy, and of those that cost nothing to reckon: oblivious, column, row, 1.5d
        and 2d.
    replication : int or None
        Ranks of a group of the grid; None without one.
    """

    assembly: Assembly
    stages: tuple[Stage, ...]
    loads: tuple[Load, ...]
    replication: int | None = None


def decide(
    problem: Problem, name: str, method: Any = None, replication: int | None = None
) -> Decision:
    """Let a strategy decide.

    Parameters
    ----------
    problem : Problem
    name, method : str and callable
        As :func:`dtoolkit.spmm.strategies.resolve` gives them.
    replication : int, optional
        Of ``"1.5d"``.

    Raises
    ------
    PlanError
        The strategy needs to know the nodes, or a square number of ranks.
    """
    rows, columns, nodes = problem.rows, problem.columns, problem.nodes
    if name in OVER_NODES and nodes is None:
        raise PlanError(
            f"strategy={name!r} goes by way of nodes: say which ranks share one by ranks_per_node= "
            "or nodes="
        )
    members = replication_of(problem.parts, name, replication)
    if members is not None:
        made = _on_grid(problem, members)
        stages = routes.over_grid(rows, columns, members, made.nonzeros)
        work = _grid_work(made.nonzeros, members)
    else:
        if name == "node-pair":
            assert nodes is not None
            made = assemble_node_pairs(problem.A, rows, columns, nodes, problem.weights)
        else:
            made = assemble(problem.A, rows, columns, name, method, problem.weights)
        if name in OVER_NODES:
            assert nodes is not None
            stages = routes.over_nodes(made.b, made.c, nodes, rows, columns)
        elif name == "oblivious":
            stages = routes.whole_shards(columns, made.b)
            made = replace(made, matched=None, matching=None)
        else:
            stages = routes.flat(made.b, made.c)
        work = made.work
    loads = {load.strategy: load for load in made.simple_loads(columns, nodes)}
    loads |= {load.strategy: load for load in _grid_loads(problem, made)}
    loads[name] = Load.of_stages(name, stages, work, nodes)
    return Decision(made, stages, tuple(loads.values()), members)


def everywhere(problem: Problem, joint: Decision) -> Decision:
    """Let every rank send its whole shard of B to every other, keeping the joint loads."""
    made = decide(problem, *strategies.resolve("oblivious"))
    loads = {load.strategy: load for load in (*joint.loads, *made.loads)}
    return replace(made, loads=tuple(loads.values()))


def replication_of(parts: int, name: str, replication: Any = None) -> int | None:
    """Ranks of a group of the grid of a strategy; None for those without a grid.

    Raises
    ------
    PlanError
        If the ranks make no such grid.
    """
    if name != "1.5d" and replication is not None:
        raise PlanError(f"replication= belongs to strategy='1.5d'; strategy={name!r} has none")
    if name == "2d":
        side = isqrt(parts)
        if side * side != parts:
            raise PlanError(
                f"strategy='2d' lays ranks on a square grid, and parts={parts} is no square: "
                "choose '1.5d', or 1, 4, 9, 16, ... parts"
            )
        return side
    if name != "1.5d":
        return None
    if replication is None:
        return largest_divisor(parts)
    whole = isinstance(replication, int | np.integer) and not isinstance(replication, bool)
    if not whole or replication < 1 or parts % replication:
        raise PlanError(
            f"replication={replication!r}: wanted ranks of a group, an integer that divides "
            f"parts={parts}"
        )
    return int(replication)


def all_loads(problem: Problem, known: tuple[Load, ...]) -> tuple[Load, ...]:
    """Add to what is known the loads of all other strategies that can serve the problem."""
    wanted = ["joint", *(OVER_NODES if problem.nodes is not None else ())]
    found = {load.strategy: load for load in known}
    for name in wanted:
        if name not in found:
            made = decide(problem, *strategies.resolve(name))
            found[name] = next(load for load in made.loads if load.strategy == name)
    return tuple(found.values())


def _on_grid(problem: Problem, members: int) -> Assembly:
    """Every nonzero on the member that its column has, in the group that its row has."""

    def elsewhere(positions: NDArray[np.int64], blocks: Blocks) -> Assignment:
        return Assignment(blocks.target % members != blocks.source % members)

    made = assemble_by(elsewhere, problem.A, problem.rows, problem.columns)
    return replace(made, matched=None, matching=None)


def _grid_work(nonzeros: NDArray[np.int64], members: int) -> NDArray[np.int64]:
    """Nonzeros of each rank: of its group's rows, and of the columns of its member's place."""
    groups = len(nonzeros) // members
    return nonzeros.reshape(groups, members, groups, members).sum(axis=(1, 2)).ravel()


def _grid_loads(problem: Problem, made: Assembly) -> list[Load]:
    """Loads of 1.5d, where it is not oblivious, and of 2d, where ranks make a square."""
    loads, shards = [], (problem.columns.sizes, problem.rows.sizes)
    for name in OVER_GRID:
        try:
            members = replication_of(problem.parts, name)
        except PlanError:
            continue
        if members is not None and members > 1:
            work = _grid_work(made.nonzeros, members)
            loads.append(Load.over_grid(name, shards, members, work, problem.nodes))
    return loads
