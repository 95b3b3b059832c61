"""Plans of distributed sparse-dense products: what moves between which ranks.

C = A B with A sparse, B and C dense with k columns. Rank p owns some rows of A and C, rank q some
rows of B; their layouts are data (:class:`dtoolkit.arrays.layout.Layout`). For each nonzero whose
row and column live apart, either the row of B travels to where the result is wanted, or a partial
row of C is computed where the row of B is and travels. A plan holds that choice, and the lists of
rows that follow from it, in one stage or several. It is made without any cluster, for any number of
ranks, and serves every product with the same matrix, whatever k.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.data import as_csr
from dtoolkit.errors import PlanError
from dtoolkit.spmm import planio, strategies
from dtoolkit.spmm.blocks import Structure
from dtoolkit.spmm.certificate import check_plan
from dtoolkit.spmm.choice import Candidate
from dtoolkit.spmm.decisions import Problem, all_loads
from dtoolkit.spmm.demand import demand
from dtoolkit.spmm.load import Load
from dtoolkit.spmm.pairlists import Stage
from dtoolkit.spmm.routed import Routed, dense_columns
from dtoolkit.spmm.summary import itemsize, plan_text, table
from dtoolkit.spmm.transposition import transposed_parts

if TYPE_CHECKING:
    import pandas as pd
    from scipy import sparse

    from dtoolkit.arrays.dense import DistDense
    from dtoolkit.arrays.sparse import DistSparse
    from dtoolkit.comm import Prediction, Traffic

__all__ = ["Plan"]


@dataclass(frozen=True, eq=False)
class Plan(Routed):
    """What moves between ranks for C = A B, and what each rank multiplies (planned, not measured).

    Attributes
    ----------
    shape : (int, int)
        Of A.
    nnz : int
        Stored entries of A in canonical CSR: duplicates summed, explicit zeros kept.
    parts : int
        Ranks.
    strategy : str
        One of :data:`dtoolkit.spmm.strategies.NAMES`, or the name of a user's own; what ``"auto"``
        chose.
    rows, columns : Layout
        Of the rows of A and C, and of the columns of A, which is that of the rows of B.
    by_row : bool array of shape (nnz,)
        In the order of the canonical CSR: this nonzero is not multiplied where its row of C lives,
        and travels within a partial row of C (see :meth:`home`).
    stages : tuple of Stage
        What moves, in order. A flat plan has one stage; stages in which nothing would move are left
        out. Read them by :meth:`b_rows` and :meth:`c_rows`.
    matched : int array or None
        The certificate of a minimum cover: positions in the canonical CSR of the nonzeros of a
        maximum matching (a maximum flow where weights differ: a position stands there once for each
        unit). They meet no row and no column of a block more often than it weighs, and are as many
        as the cover weighs; so nothing lighter would do. Blocks are those of two ranks, and with
        ``"node-pair"`` those of two nodes, and of two ranks inside a node.
    matching : int64 array of shape (parts, parts) or None
        Units of that matching by ranks, [target, source].
    weights : (int, int)
        What a row of B and a partial row of C weigh, in proportion: (1, 1) where their dtypes are
        equally wide.
    loads : tuple of Load
        What this strategy and others ask of each rank.
    digest : str
        Of A's pattern (shape, indptr, indices): another matrix is refused.
    reason : str
        Why this strategy, where ``"auto"`` chose it.
    setup_seconds : float
        Time that planning took (measured).
    structure : Structure or None
        A's pattern, shared with A; not saved and not sent to workers.
    nodes : int32 array of shape (parts,) or None
        Node of each rank, where known.
    replication : int or None
        Ranks of a group of the grid that ``"1.5d"`` and ``"2d"`` lay ranks on: rank r is member
        ``r % replication`` of group ``r // replication``.
    candidates : tuple of Candidate
        What ``"auto"`` chose from by predicted time on a network, the fastest first (modelled);
        empty where there was no network.
    turned : bool
        Made by :meth:`transposed`: stages run in the opposite direction.
    """

    shape: tuple[int, int]
    nnz: int
    parts: int
    strategy: str
    rows: Layout
    columns: Layout
    by_row: NDArray[np.bool_]
    stages: tuple[Stage, ...]
    matched: NDArray[Any] | None
    matching: NDArray[np.int64] | None
    weights: tuple[int, int]
    loads: tuple[Load, ...]
    digest: str
    reason: str = ""
    setup_seconds: float = 0.0
    structure: Structure | None = field(default=None, repr=False)
    nodes: NDArray[np.int32] | None = None
    replication: int | None = None
    candidates: tuple[Candidate, ...] = ()
    turned: bool = False

    def home(
        self, target: NDArray[Any], source: NDArray[Any], by_row: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Rank that multiplies each nonzero, by the owners of its row of C and of its row of B."""
        away = source
        if self.replication is not None:
            group, member = (source, target) if self.turned else (target, source)
            away = group // self.replication * self.replication + member % self.replication
        return np.where(by_row, away, target)

    @property
    def work(self) -> NDArray[np.int64]:
        """Nonzeros that each rank multiplies: int64 array of shape (parts,)."""
        return self.own_load.work

    @property
    def own_load(self) -> Load:
        """Entry of this strategy among the loads."""
        return next(load for load in self.loads if load.strategy == self.strategy)

    @property
    def proof(self) -> str:
        """What the certificate proves, in words; empty without one."""
        if self.matching is None:
            return ""
        least = "proven least"
        if self.weights != (1, 1):
            least += f" at weights {self.weights[0]}:{self.weights[1]} (B:C)"
        if self.strategy == "node-pair":
            return f"between nodes {least}"
        return least if self.strategy == "joint" else f"{least} for any two ranks"

    def memory(self, k: int, dtype: Any) -> NDArray[np.int64]:
        """Bytes that each rank needs for one product (planned): int64 array of shape (parts,).

        Counted are the nonzeros that it multiplies (value and int32 column, int64 where the matrix
        is longer than that), its rows of B and C, and the buffers of what it sends and receives.

        Parameters
        ----------
        k : int
            Dense columns.
        dtype : dtype
            Of A, B and C, NumPy's or torch's.
        """
        size = itemsize(dtype)
        index = 4 if max(self.nnz, *self.shape) < 2**31 else 8
        sparse = self.work * (size + index) + (self.rows.sizes + 1) * index
        dense = self.rows.sizes + self.columns.sizes + self.own_load.moved
        return sparse + dense * dense_columns(k) * size

    def compare(self, A: Any = None) -> pd.DataFrame:
        """All strategies side by side on this matrix and these layouts (planned).

        Parameters
        ----------
        A : matrix, optional
            Needed by a plan that was loaded from a file and holds not all that is compared: the
            others are then planned from it.

        Returns
        -------
        DataFrame
            One row a strategy: volume, share of the oblivious volume, rows sent and moved by the
            busiest rank, imbalance of traffic and of work, and rows sent between nodes where those
            are known (:func:`dtoolkit.spmm.summary.table`). Of the strategies over nodes and grids
            those are listed that these ranks allow.

        Raises
        ------
        PlanError
            If A is needed and not given, or is another matrix.
        """
        known = {load.strategy for load in self.loads}
        wanted = {"joint", *(strategies.OVER_NODES if self.nodes is not None else ())}
        if wanted <= known:
            return table(self.loads, self.candidates)
        problem = Problem(self._pattern(A), self.rows, self.columns, self.weights, self.nodes)
        return table(all_loads(problem, self.loads), self.candidates)

    def require(self, A: Any) -> Structure:
        """Refuse any matrix but the one that was planned, and return its pattern.

        Raises
        ------
        PlanError
            If the pattern of ``A`` is another.
        """
        structure = A if isinstance(A, Structure) else Structure.of(as_csr(A, copy=False))
        if structure.shape != self.shape or structure.nnz != self.nnz:
            raise PlanError(
                f"A is {_size(structure.shape, structure.nnz)}; this plan was made for "
                f"{_size(self.shape, self.nnz)}: plan again"
            )
        if structure.digest() != self.digest:
            raise PlanError(
                f"A has its nonzeros elsewhere than the matrix of {_size(self.shape, self.nnz)} "
                "that this plan was made for: plan again"
            )
        return structure

    def check(self, A: Any) -> None:
        """Verify the plan against its matrix, the proof of its minimality included.

        Every row of B that a nonzero is multiplied with reaches the rank that multiplies it, once,
        from ranks that have it; every partial row of C is sent on once, until it reaches its owner;
        nothing is listed in vain; and where there is a certificate, its matching is one, and is as
        large in every block as what moves for that block.

        Raises
        ------
        PlanError
            Naming the first thing that does not hold.
        """
        check_plan(self, self.require(A))

    def transposed(self, A: Any = None) -> Plan:
        """Plan for A.T B with every nonzero multiplied where this plan multiplies it.

        Rows of B and partial rows of C swap roles and directions, and stages their order: volume
        and certificate are the same, the traffic is transposed.

        Parameters
        ----------
        A : matrix, optional
            Needed by a plan that was loaded from a file or sent to a worker.
        """
        start = perf_counter()
        values = transposed_parts(self, self._pattern(A))
        return replace(self, **values, setup_seconds=perf_counter() - start)

    def demand(self, k: int = 64, dtype: Any = "float32", c_dtype: Any = None) -> Traffic:
        """What one product asks of network and ranks, as :func:`dtoolkit.comm.predict` takes it.

        Parameters
        ----------
        k : int
            Dense columns.
        dtype, c_dtype : dtype
            Of B and of C; C's is by default B's.
        """
        return demand(self, dense_columns(k), dtype, c_dtype)

    def predict(self, network: Any, *, k: int = 64, dtype: Any = "float32") -> Prediction:
        """Time of one product on a network (modelled): see :func:`dtoolkit.comm.predict`.

        Parameters
        ----------
        network : dtoolkit.comm.Network
            Of as many ranks.
        k : int
            Dense columns.
        dtype : dtype
            Of B and C.
        """
        from dtoolkit.comm import predict

        return predict(self.demand(k, dtype), network)

    def multiply(self, A: DistSparse, B: Any, *, kernel: str | None = None) -> DistDense:
        """What ``A @ B`` calls: see :func:`dtoolkit.spmm.multiply.multiply`."""
        from dtoolkit.spmm.multiply import multiply

        return multiply(A, B, kernel=kernel)

    def collect(self, A: DistSparse, rows: NDArray[np.int64] | None = None) -> sparse.csr_array:
        """What ``A.to_scipy()`` and ``A[rows]`` call: see :func:`dtoolkit.spmm.values.collect`."""
        from dtoolkit.spmm.values import collect

        return collect(A, rows)

    def redistribute(self, A: DistSparse, plan: Any) -> DistSparse:
        """What ``A.redistribute(plan)`` calls: :func:`dtoolkit.spmm.values.redistribute`."""
        from dtoolkit.spmm.values import redistribute

        return redistribute(A, plan)

    def with_data(self, A: DistSparse, values: Any) -> DistSparse:
        """What ``A.with_data(values)`` calls: :func:`dtoolkit.spmm.values.with_data`."""
        from dtoolkit.spmm.values import with_data

        return with_data(A, values)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to ``path``, as NumPy's .npz without pickles."""
        planio.write(path, self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read what :meth:`save` wrote.

        Raises
        ------
        PlanError
            If the file is no plan, or is broken.
        """
        return cls(**planio.read(path))

    def cite(self) -> str:
        """Source of the strategy, as text."""
        return strategies.cite(self.strategy)

    def __repr__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        from dtoolkit.figures.cards import plan_card

        return plan_card(self)

    def __getstate__(self) -> dict[str, Any]:
        # The pattern is large, and who gets the plan has his own share of A.
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**state, "structure": None}

    def _pattern(self, A: Any) -> Structure:
        if A is None and self.structure is None:
            raise PlanError("this plan came without its matrix: pass A, the matrix it was made for")
        return self.require(self.structure if A is None else A)


def _size(shape: tuple[int, int], nnz: int) -> str:
    return f"{shape[0]:,} x {shape[1]:,} with {nnz:,} nonzeros"
