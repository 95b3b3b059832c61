"""Plans of distributed sparse-dense products: what moves between which ranks.

C = A B with A sparse, B and C dense with k columns. Rank p owns some rows of A and C, rank q some
rows of B; their layouts are data (:class:`dtoolkit.arrays.layout.Layout`). For each nonzero whose
row and column live apart, either the row of B travels to where the result is wanted, or a partial
row of C is computed where the row of B is and travels. A plan holds that choice, and the lists of
rows that follow from it. It is made without any cluster, for any number of ranks, and serves every
product with the same matrix, whatever k.
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
from dtoolkit.spmm.assembly import Load, PairLists, assemble
from dtoolkit.spmm.blocks import Structure
from dtoolkit.spmm.certificate import check_plan
from dtoolkit.spmm.summary import itemsize, plan_text, table
from dtoolkit.spmm.transposition import transposed_parts

if TYPE_CHECKING:
    import pandas as pd
    from scipy import sparse

    from dtoolkit.arrays.dense import DistDense
    from dtoolkit.arrays.sparse import DistSparse

__all__ = ["Plan"]


@dataclass(frozen=True, eq=False)
class Plan:
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
        ``"oblivious"``, ``"column"``, ``"row"``, ``"joint"``, or the name of a user's own; what
        ``"auto"`` chose.
    rows, columns : Layout
        Of the rows of A and C, and of the columns of A, which is that of the rows of B.
    by_row : bool array of shape (nnz,)
        In the order of the canonical CSR: this nonzero is computed where its column lives, and
        travels within a partial row of C.
    b, c : PairLists
        Rows of B, and partial rows of C, by ordered pair of ranks. Read them by :meth:`b_rows` and
        :meth:`c_rows`.
    matched : int array or None
        The certificate of a minimum cover: positions in the canonical CSR of the nonzeros of a
        maximum matching (a maximum flow where weights differ: a position stands there once for each
        unit). They meet no row and no column of a block more often than it weighs, and are as many
        as the cover weighs; so nothing lighter would do.
    matching : int64 array of shape (parts, parts) or None
        Units of that matching by block, [target, source].
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
    """

    shape: tuple[int, int]
    nnz: int
    parts: int
    strategy: str
    rows: Layout
    columns: Layout
    by_row: NDArray[np.bool_]
    b: PairLists
    c: PairLists
    matched: NDArray[Any] | None
    matching: NDArray[np.int64] | None
    weights: tuple[int, int]
    loads: tuple[Load, ...]
    digest: str
    reason: str = ""
    setup_seconds: float = 0.0
    structure: Structure | None = field(default=None, repr=False)

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

    def b_rows(self, source: int, target: int) -> NDArray[np.int64]:
        """Global rows of B that ``source`` sends to ``target``, ascending."""
        return self._pair(self.b, source, target, self.columns, source)

    def c_rows(self, source: int, target: int) -> NDArray[np.int64]:
        """Global rows of C whose partial sums ``source`` sends to ``target``, ascending."""
        return self._pair(self.c, source, target, self.rows, target)

    @property
    def volume(self) -> int:
        """Rows sent in all in one product: rows of B and partial rows of C."""
        return int(self.b.ptr[-1] + self.c.ptr[-1])

    @property
    def traffic(self) -> NDArray[np.int64]:
        """Rows sent: int64 array of shape (parts, parts), [source, target]."""
        return self.b.counts + self.c.counts

    @property
    def work(self) -> NDArray[np.int64]:
        """Nonzeros that each rank multiplies: int64 array of shape (parts,)."""
        return self.own_load.work

    @property
    def own_load(self) -> Load:
        """Entry of this strategy among the loads."""
        return next(load for load in self.loads if load.strategy == self.strategy)

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
        b_size, c_size = self._row_bytes(k, b_dtype, c_dtype)
        return int(self.b.ptr[-1]) * b_size + int(self.c.ptr[-1]) * c_size

    def bytes_matrix(self, k: int, b_dtype: Any, c_dtype: Any = None) -> NDArray[np.int64]:
        """Payload of one product by pair: int64 bytes of shape (parts, parts), [source, target]."""
        b_size, c_size = self._row_bytes(k, b_dtype, c_dtype)
        return self.b.counts * b_size + self.c.counts * c_size

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
        return sparse + dense * _dense_columns(k) * size

    def compare(self, A: Any = None) -> pd.DataFrame:
        """All strategies side by side on this matrix and these layouts (planned).

        Parameters
        ----------
        A : matrix, optional
            Needed by a plan that was loaded from a file and is not joint itself: the joint strategy
            is then planned from it.

        Returns
        -------
        DataFrame
            One row a strategy: volume, share of the oblivious volume, rows sent and moved by the
            busiest rank, imbalance of traffic and of work (:func:`dtoolkit.spmm.summary.table`).

        Raises
        ------
        PlanError
            If A is needed and not given, or is another matrix.
        """
        loads = self.loads
        if all(load.strategy != "joint" for load in loads):
            structure = self._pattern(A)
            name, method = strategies.resolve("joint")
            made = assemble(structure, self.rows, self.columns, name, method, self.weights)
            loads = (*loads, *(load for load in made.loads if load.strategy == name))
        return table(loads)

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

        Each off-diagonal nonzero is served once, by a row of B or a partial row of C that is
        listed; nothing is listed in vain; and where there is a certificate, its matching is one,
        and is as large in every block as what moves for that block.

        Raises
        ------
        PlanError
            Naming the first thing that does not hold.
        """
        check_plan(self, self.require(A))

    def transposed(self, A: Any = None) -> Plan:
        """Plan for A.T B with every nonzero multiplied where this plan multiplies it.

        Rows of B and partial rows of C swap roles and directions: volume and certificate are the
        same, the traffic is transposed.

        Parameters
        ----------
        A : matrix, optional
            Needed by a plan that was loaded from a file or sent to a worker.
        """
        start = perf_counter()
        values = transposed_parts(self, self._pattern(A))
        return replace(self, **values, setup_seconds=perf_counter() - start)

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

    def _pair(
        self, lists: PairLists, source: int, target: int, shards: Layout, whole: int
    ) -> NDArray[np.int64]:
        for name, rank in (("source", source), ("target", target)):
            if not 0 <= rank < self.parts:
                raise PlanError(f"{name}={rank} is not a rank: ranks are 0 to {self.parts - 1}")
        if lists.index is None:
            return shards.indices(whole) if source != target else np.empty(0, dtype=np.int64)
        pair = source * self.parts + target
        return lists.index[lists.ptr[pair] : lists.ptr[pair + 1]]

    def _row_bytes(self, k: int, b_dtype: Any, c_dtype: Any) -> tuple[int, int]:
        k = _dense_columns(k)
        b_size = itemsize(b_dtype, "b_dtype")
        return k * b_size, k * (b_size if c_dtype is None else itemsize(c_dtype, "c_dtype"))

    def _pattern(self, A: Any) -> Structure:
        if A is None and self.structure is None:
            raise PlanError("this plan came without its matrix: pass A, the matrix it was made for")
        return self.require(self.structure if A is None else A)


def _dense_columns(k: int) -> int:
    if isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 0:
        return int(k)
    raise PlanError(f"k={k!r}: wanted a number of dense columns, an integer of at least 0")


def _size(shape: tuple[int, int], nnz: int) -> str:
    return f"{shape[0]:,} x {shape[1]:,} with {nnz:,} nonzeros"
