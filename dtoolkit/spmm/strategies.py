"""Strategies: for each off-diagonal nonzero, whether a row of B or a partial row of C moves.

A strategy is any object with a method ``assign(blocks)``, or a plain function of one argument; see
:class:`Strategy`. The built-in ones are written in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtoolkit.errors import PlanError
from dtoolkit.spmm.blocks import Blocks
from dtoolkit.spmm.cover import minimum_cover

__all__ = [
    "NAMES",
    "OVER_GRID",
    "OVER_NODES",
    "Assignment",
    "Column",
    "Joint",
    "Row",
    "Strategy",
    "assign",
    "cite",
]

#: Strategies that ``plan`` knows by name.
NAMES = (
    *("oblivious", "column", "row", "joint"),
    *("hier-column", "hier-row", "hier-joint", "node-pair"),
    *("1.5d", "2d", "auto"),
)

#: Those that go by way of nodes, and need to know them.
OVER_NODES = ("hier-column", "hier-row", "hier-joint", "node-pair")

#: Those that lay ranks on a grid and move whole shards.
OVER_GRID = ("1.5d", "2d")


@dataclass(frozen=True, eq=False)
class Assignment:
    """What a strategy decided for some blocks.

    Attributes
    ----------
    by_row : bool array of shape (nonzeros,)
        True: the nonzero is computed at its source and travels within a partial row of C. False:
        its row of B is sent to its target.
    matched : int64 array or None
        A proof that no less could move: nonzeros (positions within the blocks) of a maximum
        matching, as in :class:`dtoolkit.spmm.cover.Cover`.
    """

    by_row: NDArray[np.bool_]
    matched: NDArray[np.int64] | None = None


class Strategy(Protocol):
    """What ``plan(strategy=...)`` accepts beside a name.

    ``assign`` is called for a few whole blocks at a time, and must give for each of their nonzeros
    whether it travels within a partial row of C (True) or its row of B does (False): a bool array
    of shape ``(blocks.nonzeros,)``, or an :class:`Assignment`. A plain function does as well. An
    attribute ``name``, where there is one, is what the plan shows.

    >>> def heavy_rows(blocks):
    ...     return np.bincount(blocks.row_vertex)[blocks.row_vertex] > 4
    """

    def assign(self, blocks: Blocks) -> NDArray[np.bool_] | Assignment:
        """Decide for each nonzero of ``blocks``."""
        ...


class Column:
    """Sends the rows of B that a target's nonempty columns want (sparsity-aware 1D)."""

    name = "column"

    def assign(self, blocks: Blocks) -> NDArray[np.bool_]:
        """Let every nonzero go with its column."""
        return np.zeros(blocks.nonzeros, dtype=bool)


class Row:
    """Sends partial rows of C, computed where the rows of B are."""

    name = "row"

    def assign(self, blocks: Blocks) -> NDArray[np.bool_]:
        """Let every nonzero go with its row."""
        return np.ones(blocks.nonzeros, dtype=bool)


class Joint:
    """Sends the least: a minimum vertex cover of every block (SHIRO, arXiv 2512.20178).

    The blocks share no vertices, so that one cover of them all is a minimum cover of each.
    """

    name = "joint"

    def assign(self, blocks: Blocks) -> Assignment:
        """Let a nonzero go with its column where that is in the cover, else with its row."""
        cover = minimum_cover(
            blocks.column_vertex,
            blocks.row_vertex,
            columns=len(blocks.column_of),
            rows=len(blocks.row_of),
            weights=blocks.weights,
        )
        return Assignment(~cover.columns[blocks.column_vertex], cover.matched)


#: What each decides on blocks of two ranks. The cover of whole nodes (:mod:`.node_pair`) and the
#: grid (:mod:`.decisions`) come on top of that.
_BUILT_IN: dict[str, type[Strategy]] = {
    "oblivious": Column,
    "column": Column,
    "row": Row,
    "joint": Joint,
    "hier-column": Column,
    "hier-row": Row,
    "hier-joint": Joint,
    "node-pair": Joint,
    "1.5d": Column,
    "2d": Column,
}

_CAGNET = (
    "A. Tripathy, K. Yelick, A. Buluc: Reducing communication in graph neural network training "
    "(CAGNET), SC 2020, arXiv 2005.03300"
)
_SHIRO = "SHIRO: near-optimal communication for distributed SpMM, arXiv 2512.20178"
_NODES = (
    " over nodes: a row of B crosses to a node once, partial rows of C are added up in the node "
    "where they were computed. Reconstructed in its details."
)
_GRID = (
    "Here operand and result stay in 1D rows, one copy of each; CAGNET replicates the dense "
    "operand and broadcasts blocks in turn."
)

_SOURCES = {
    "oblivious": f"{_CAGNET}: the 1D algorithm.",
    "column": "Sparsity-aware 1D SpMM (SPA), as described in SHIRO, arXiv 2512.20178.",
    "row": "Row-based 1D SpMM, as described in SHIRO, arXiv 2512.20178.",
    "joint": f"{_SHIRO}.",
    "hier-column": f"{_SHIRO}: rows of B{_NODES}",
    "hier-row": f"{_SHIRO}: partial rows of C{_NODES}",
    "hier-joint": f"{_SHIRO}: the joint cover of two ranks' blocks{_NODES}",
    "node-pair": f"{_SHIRO}: the cover of two nodes' blocks{_NODES} Which of the two covers the "
    "paper solves, of ranks or of nodes, could not be seen.",
    "1.5d": f"{_CAGNET}: the 1.5D algorithm. {_GRID}",
    "2d": f"{_CAGNET}: the 2D algorithm (SUMMA). {_GRID}",
}


def resolve(strategy: object) -> tuple[str, Callable[[Blocks], object]]:
    """Name of a strategy and the function that assigns.

    Raises
    ------
    PlanError
        If the name is unknown, or the object does not follow the protocol.
    """
    if isinstance(strategy, str):
        if strategy not in _BUILT_IN:
            raise PlanError(
                f"strategy={strategy!r} is not known: choose one of {', '.join(NAMES)}, or give an "
                "object with assign(blocks)"
            )
        return strategy, _BUILT_IN[strategy]().assign
    method = getattr(strategy, "assign", strategy)
    if isinstance(strategy, type) or not callable(method):
        raise PlanError(
            f"strategy={strategy!r} is neither a name ({', '.join(NAMES)}) nor an object with "
            "assign(blocks)"
        )
    name = getattr(strategy, "name", None) or getattr(strategy, "__name__", None)
    name = str(name or type(strategy).__name__)
    return (f"{name} (own)" if name in NAMES else name), method


def assign(name: str, method: Callable[[Blocks], object], blocks: Blocks) -> Assignment:
    """Call a strategy and check what it returns.

    Raises
    ------
    PlanError
        If it is not one bool a nonzero.
    """
    result = method(blocks)
    if not isinstance(result, Assignment):
        result = Assignment(np.asarray(result))
    by_row = result.by_row
    if by_row.dtype != bool or by_row.shape != (blocks.nonzeros,):
        raise PlanError(
            f"strategy {name!r} gave {by_row.dtype} of shape {by_row.shape}; wanted bool, one "
            f"entry a nonzero: ({blocks.nonzeros},)"
        )
    return result


def cite(strategy: str = "joint") -> str:
    """Source of a strategy, as text; a user's own names none."""
    return _SOURCES.get(strategy, f"{strategy}: no source is known to dtoolkit.")
