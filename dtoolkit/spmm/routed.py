"""What moves by a plan: rows by pair of ranks and stage, bytes, and what crosses between nodes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.errors import PlanError
from dtoolkit.spmm.pairlists import PairLists, Stage
from dtoolkit.spmm.summary import itemsize

__all__ = ["Routed", "dense_columns"]


class Routed:
    """The part of a plan that knows what moves; :class:`dtoolkit.spmm.planned.Plan` is one."""

    parts: int
    rows: Layout
    columns: Layout
    stages: tuple[Stage, ...]
    nodes: NDArray[np.int32] | None

    @cached_property
    def b(self) -> PairLists:
        """Rows of B by ordered pair of ranks, over all stages."""
        lists = [stage.b for stage in self.stages] or [PairLists.empty(self.parts)]
        return PairLists.merged(lists, self.columns, "source")

    @cached_property
    def c(self) -> PairLists:
        """Partial rows of C by ordered pair of ranks, over all stages."""
        lists = [stage.c for stage in self.stages] or [PairLists.empty(self.parts)]
        return PairLists.merged(lists, self.rows, "target")

    @property
    def b_ptr(self) -> NDArray[np.int64]:
        """Where each pair's rows of B begin: int64 of shape (parts * parts + 1,)."""
        return self.b.ptr

    @property
    def b_index(self) -> NDArray[np.int64] | None:
        """Global rows of B by pair; None: whole shards (see :meth:`b_rows`)."""
        return self.b.index

    @property
    def c_ptr(self) -> NDArray[np.int64]:
        """Where each pair's partial rows of C begin: int64 of shape (parts * parts + 1,)."""
        return self.c.ptr

    @property
    def c_index(self) -> NDArray[np.int64] | None:
        """Global rows of C by pair; None: whole shards (see :meth:`c_rows`)."""
        return self.c.index

    def b_rows(self, source: int, target: int, stage: int | None = None) -> NDArray[np.int64]:
        """Global rows of B that ``source`` sends to ``target``, ascending.

        In one stage, or in all of them.
        """
        self._check_pair(source, target, stage)
        lists = self.b if stage is None else self.stages[stage].b
        return lists.rows(source, target, self.columns, "source")

    def c_rows(self, source: int, target: int, stage: int | None = None) -> NDArray[np.int64]:
        """Global rows of C whose partial sums ``source`` sends to ``target``, ascending.

        In one stage, or in all of them.
        """
        self._check_pair(source, target, stage)
        lists = self.c if stage is None else self.stages[stage].c
        return lists.rows(source, target, self.rows, "target")

    @property
    def volume(self) -> int:
        """Rows sent in all in one product: rows of B and partial rows of C."""
        return sum(stage.volume for stage in self.stages)

    @property
    def volume_between_nodes(self) -> int:
        """Rows sent from one node to another in one product.

        Raises
        ------
        PlanError
            If the nodes are unknown.
        """
        return int(self.traffic[self._apart].sum())

    @property
    def volume_inside_nodes(self) -> int:
        """Rows sent from one rank of a node to another.

        Raises
        ------
        PlanError
            If the nodes are unknown.
        """
        return self.volume - self.volume_between_nodes

    @property
    def traffic(self) -> NDArray[np.int64]:
        """Rows sent: int64 array of shape (parts, parts), [source, target]."""
        none = np.zeros((self.parts, self.parts), dtype=np.int64)
        return sum((stage.traffic for stage in self.stages), start=none)

    def bytes(self, k: int, b_dtype: Any, c_dtype: Any = None) -> int:
        """Payload of one product in all.

        Parameters
        ----------
        k : int
            Dense columns.
        b_dtype, c_dtype : dtype
            Of B and of C, NumPy's or torch's; C's is by default B's.

        Returns
        -------
        int
            Bytes.
        """
        b_row, c_row = self._row_bytes(k, b_dtype, c_dtype)
        return sum(stage.b.total * b_row + stage.c.total * c_row for stage in self.stages)

    def bytes_matrix(self, k: int, b_dtype: Any, c_dtype: Any = None) -> NDArray[np.int64]:
        """Payload of one product by pair: int64 bytes of shape (parts, parts), [source, target]."""
        none = np.zeros((self.parts, self.parts), dtype=np.int64)
        return sum((sent for _, sent in self.stage_bytes(k, b_dtype, c_dtype)), start=none)

    def bytes_between_nodes(self, k: int, b_dtype: Any, c_dtype: Any = None) -> int:
        """Payload of one product that crosses from one node to another.

        Raises
        ------
        PlanError
            If the nodes are unknown.
        """
        return int(self.bytes_matrix(k, b_dtype, c_dtype)[self._apart].sum())

    def stage_bytes(
        self, k: int, b_dtype: Any, c_dtype: Any = None
    ) -> tuple[tuple[str, NDArray[np.int64]], ...]:
        """Payload of one product by stage: its name, and int64 bytes, [source, target]."""
        widths = self._row_bytes(k, b_dtype, c_dtype)
        return tuple((stage.name, stage.bytes_matrix(*widths)) for stage in self.stages)

    @property
    def phases(self) -> tuple[str, ...]:
        """What the stages are called in a trace."""
        if [stage.name for stage in self.stages] == ["exchange"]:
            return ("spmm",)
        return tuple(f"spmm/{stage.name}" for stage in self.stages)

    @property
    def busy_stage(self) -> int:
        """Stage during which ranks multiply their own nonzeros: the one that moves most.

        Between nodes, where those are known.
        """
        moved = [stage.traffic for stage in self.stages]
        if self.nodes is not None:
            moved = [np.where(self._apart, rows, 0) for rows in moved]
        return int(np.argmax([rows.sum() for rows in moved])) if moved else 0

    @property
    def _apart(self) -> NDArray[np.bool_]:
        if self.nodes is None:
            raise PlanError(
                "which ranks share a node is unknown: plan with ranks_per_node= or nodes="
            )
        return self.nodes[:, None] != self.nodes[None, :]

    def _check_pair(self, source: int, target: int, stage: int | None) -> None:
        for name, rank in (("source", source), ("target", target)):
            if not 0 <= rank < self.parts:
                raise PlanError(f"{name}={rank} is not a rank: ranks are 0 to {self.parts - 1}")
        if stage is not None and not 0 <= stage < len(self.stages):
            raise PlanError(f"stage={stage} is none of the plan's {len(self.stages)} stages")

    def _row_bytes(self, k: int, b_dtype: Any, c_dtype: Any) -> tuple[int, int]:
        k = dense_columns(k)
        b_size = itemsize(b_dtype, "b_dtype")
        return k * b_size, k * (b_size if c_dtype is None else itemsize(c_dtype, "c_dtype"))


def dense_columns(k: Any) -> int:
    """``k`` as an int of at least 0."""
    if isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 0:
        return int(k)
    raise PlanError(f"k={k!r}: wanted a number of dense columns, an integer of at least 0")
