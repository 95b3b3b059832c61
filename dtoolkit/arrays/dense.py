"""Dense arrays laid over the ranks by rows."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays import indexing, products
from dtoolkit.arrays.array import DistArray, check_memory
from dtoolkit.arrays.convert import as_dtype, to_host, to_tensor
from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.arrays.operators import Operators
from dtoolkit.arrays.protocols import Protocols
from dtoolkit.arrays.redistribution import redistribute, transposing
from dtoolkit.arrays.summaries import Summaries
from dtoolkit.arrays.transfer import bring, place
from dtoolkit.cluster import Cluster, Context, Remote
from dtoolkit.errors import LayoutError

__all__ = ["DistDense", "distribute_dense", "to_tensor"]


class DistDense(Operators, Summaries, Protocols):
    """A dense array of 1 or 2 dimensions whose rows lie on the ranks, as torch tensors.

    Made by :func:`dtoolkit.distribute`, by the functions of :mod:`dtoolkit.arrays`, and by
    operations on distributed arrays. Operators, methods and NumPy's and torch's functions run on
    the ranks, one launch each; what has no distributed form raises `TypeError` rather than bring
    the array to the caller. Indexing, ``astype`` and the like give copies, never views.

    Parameters
    ----------
    cluster : Cluster
    layout : Layout
    shape : sequence of int
    dtype : torch.dtype
        float32, float64, bfloat16, complex64, complex128; bool and int64 as results.
    remote : Remote or callable
        Handle to a tensor of shape ``(layout.sizes[rank], *shape[1:])`` on each rank, or what
        makes it when it is first needed.

    Examples
    --------
    >>> x = dtoolkit.distribute(cluster, np.ones((6, 2)))  # doctest: +SKIP
    >>> (x - x.mean(axis=0)).norm()  # doctest: +SKIP
    0.0
    """

    kind = "Dense array"

    def __init__(
        self,
        cluster: Cluster,
        layout: Layout,
        shape: Sequence[int],
        dtype: torch.dtype,
        remote: Remote | Callable[[], Remote],
    ) -> None:
        super().__init__(cluster, layout, shape, dtype, remote)
        self._transpose_of: tuple[DistDense, int] | None = None
        self._asked: list[weakref.ref[DistDense]] = []  # transposes that are not made yet

    @property
    def nbytes_by_rank(self) -> NDArray[np.int64]:
        """Bytes that each rank holds: int64 array of shape (ranks,)."""
        row = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        return self.layout.sizes * row

    # --------------------------------------------------------------------- to and from here

    def to_numpy(self) -> NDArray[Any]:
        """Bring the whole array here (bfloat16 as float32)."""
        return to_host(self.to_torch())

    def to_torch(self) -> torch.Tensor:
        """Bring the whole array here, as a tensor on the CPU."""
        return bring(self)

    def to_dask(self) -> Any:
        """A Dask array whose chunks lie on the same workers; see :mod:`~dtoolkit.arrays.dask_io`.

        Returns
        -------
        dask.array.Array
            One chunk a rank, copied on its worker (bfloat16 as float32). An array that does not lie
            in contiguous pieces in the order of ranks is redistributed to blocks first.
        """
        from dtoolkit.arrays.dask_io import to_dask

        return to_dask(self)

    def item(self) -> Any:
        """The element of an array that has only one."""
        if self.size != 1:
            raise ValueError(f"item: {self!r} has {self.size} elements, wanted one")
        return self.to_torch().item()

    # ---------------------------------------------------------------------- same elements

    def copy(self) -> DistDense:
        """A copy on the same layout."""
        return self._like(computed(self.cluster, _convert, self, self.dtype))

    def astype(self, dtype: Any) -> DistDense:
        """A copy in another dtype.

        Parameters
        ----------
        dtype : torch.dtype, or NumPy's or Python's name of one
            float32, float64, bfloat16, complex64, complex128, bool or int64. Imaginary parts are
            never dropped: take ``.real``.
        """
        target = as_dtype(dtype)
        if self.dtype.is_complex and not target.is_complex and target != torch.bool:
            raise TypeError(f"astype: {target} would drop imaginary parts; take .real or abs()")
        return self._like(computed(self.cluster, _convert, self, target), dtype=target)

    def redistribute(self, layout: Layout | str | Any) -> DistDense:
        """The same array on another layout.

        Parameters
        ----------
        layout : Layout, "block", "cyclic" or part vector

        Returns
        -------
        DistDense
            The array itself where the layout is equal. Else rows that change owner are sent once,
            in one ``all_to_all_v`` (phase "redistribute"): their number times the bytes of a row.
            :func:`dtoolkit.arrays.moved_bytes` says beforehand what that is.
        """
        return redistribute(self, layout)

    def transpose(self, layout: Layout | str | Any = "block") -> DistDense:
        """The transpose, whose rows (this array's columns) are laid out anew.

        The exchange, one all-to-all in which each element that changes owner is sent once (phase
        "transpose"), takes place when the elements are needed. ``x.T @ y`` needs none: see
        :meth:`__matmul__`.

        Parameters
        ----------
        layout : Layout, "block", "cyclic" or part vector
        """
        if self.ndim == 1:
            return self
        target = as_layout(layout, self.shape[1], self.layout.parts)
        source, version = self, self.version

        def make() -> Remote:
            if source.version != version:
                raise LayoutError(
                    "the array was changed by a function before its transpose was made"
                )
            return transposing(source, target)

        result = DistDense(self.cluster, target, self.shape[::-1], self.dtype, make)
        result._transpose_of = (self, version)
        self._asked.append(weakref.ref(result))
        return result

    @property
    def T(self) -> DistDense:  # noqa: N802 - NumPy's name
        """The transpose in blocks of rows; see :meth:`transpose`."""
        return self.transpose()

    def reshape(self, *shape: Any) -> DistDense:
        """A copy in another shape with the same rows: a vector as one column, or the reverse."""
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if wanted.count(-1) == 1 and self.size:
            rest = -int(np.prod(wanted))
            wanted = tuple(self.size // rest if n == -1 and rest else n for n in wanted)
        if wanted == self.shape:
            return self.copy()
        if wanted == (len(self), 1) and self.ndim == 1:
            return self[:, None]
        if wanted == (len(self),) and self.shape[1] == 1:
            return self[:, 0]
        raise ValueError(
            f"reshape: {self.shape} to {shape} would move elements between rows, which is not "
            "supported: a vector becomes one column, one column a vector"
        )

    # ------------------------------------------------------------------------------ products

    def __matmul__(self, other: Any) -> Any:
        """Multiply.

        Parameters
        ----------
        other : array, tensor or DistDense
            For a matrix ``x`` (n, k) an array (k, m) or (k,), of which every rank gets a copy:
            nothing else moves. A DistDense (k, m) is gathered on all ranks (phase "gather").

        Returns
        -------
        DistDense of shape (n, m) or (n,)
            On the layout of ``x``. For a vector ``x``, and for ``x.T @ y``, a sum over the rows: an
            array for the caller, from one all-reduce of that size (phase "inner").
        """
        if isinstance(other, DistArray) and other.is_sparse:
            return NotImplemented  # a DistSparse knows how
        return products.product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return products.left_product(other, self)

    def dot(self, other: Any) -> Any:
        """Product with a number, element by element, else ``self @ other``."""
        return self * other if np.ndim(other) == 0 else self @ other

    # ------------------------------------------------------------------------------ indexing

    def __getitem__(self, key: Any) -> Any:
        """Choose rows, columns or both.

        Parameters
        ----------
        key : int, slice, integer array or boolean mask, or a pair of these
            A mask may be distributed: a vector with as many rows (one bit a row comes to the
            client, which keeps the layout). ``x[:, None]`` makes a column of a vector.

        Returns
        -------
        DistDense
            A copy; chosen rows stay on their rank. One row (``x[i]``) or element (``x[i, j]``)
            comes here, as NumPy's.

        Raises
        ------
        IndexError
            Out of range, or an index that NumPy would read as a choice of single elements.
        """
        return indexing.choose(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write into rows, columns or both.

        Parameters
        ----------
        key
            As for :meth:`__getitem__`; with a number as value also a mask of the array's shape.
        value : number, array or DistDense
            Broadcast to what is chosen. A DistDense must have its shape; its rows move to where
            the chosen ones are (phase "redistribute").
        """
        indexing.assign(self, key, value)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"{self!r} has no one truth value: use any() or all()")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return f"<DistDense {self.shape} {name}, {self.layout!r}>"

    # ------------------------------------------------------------------------------- helpers

    def _like(
        self,
        remote: Remote,
        *,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        layout: Layout | None = None,
    ) -> DistDense:
        """An array of other shards that is like this one in all that is not said."""
        return DistDense(
            self.cluster,
            self.layout if layout is None else layout,
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            remote,
        )

    def _lay_out(self, whole: torch.Tensor, layout: Layout | None = None) -> DistDense:
        layout = self.layout if layout is None else layout
        return distribute_dense(self.cluster, whole, layout, operand=True)

    def _source(self) -> DistDense | None:
        """What this is the transpose of, as long as neither has changed."""
        if self._transpose_of is None:
            return None
        source, version = self._transpose_of
        return source if source.version == version else None

    def _settle(self) -> None:
        """Make the transposes that were asked for, before the elements change."""
        for reference in self._asked:
            transpose = reference()
            if transpose is not None:
                transpose.remote  # noqa: B018 - made by being looked at
        self._asked.clear()
        self._transpose_of = None


def distribute_dense(
    cluster: Cluster, x: Any, layout: Layout, *, operand: bool = False
) -> DistDense:
    """Lay a dense array over the ranks.

    Parameters
    ----------
    cluster : Cluster
    x : array, tensor or nested lists, of 1 or 2 dimensions
        Copied, so that lost shards can be made again. Dtypes as
        :mod:`dtoolkit.arrays.convert` says.
    layout : Layout
    operand : bool
        `x` is a tensor that an operation takes: its dtype stays, be it of a mask or of positions,
        and its copy is held by what is computed from it.

    Returns
    -------
    DistDense

    Raises
    ------
    TypeError
        `x` is no dense array of numbers.
    ValueError
        It has no dimension, or more than 2.
    LayoutError
        The layout has other rows.
    MemoryError
        A rank's share does not fit its worker.
    """
    whole = x if operand else to_tensor(x)
    if whole.dim() not in (1, 2):
        raise ValueError(f"x has {whole.dim()} dimensions; wanted a vector or a matrix")
    if layout.n != len(whole):
        raise LayoutError(f"the layout has {layout.n} rows and x has {len(whole)}")
    row = math.prod(whole.shape[1:]) * whole.dtype.itemsize
    check_memory(cluster, list(layout.sizes * row), f"an array of shape {tuple(whole.shape)}")
    return DistDense(
        cluster, layout, whole.shape, whole.dtype, place(cluster, whole, layout, operand=operand)
    )


def _convert(ctx: Context, shard: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return shard.to(dtype, copy=True)
