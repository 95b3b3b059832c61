"""Arithmetic and reductions of sparse matrices: stored values change, the pattern stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dtoolkit.arrays.array import DistArray, ask
from dtoolkit.arrays.convert import KEPT, as_dtype, is_scalar, plain_scalar, to_host, to_tensor
from dtoolkit.arrays.creation import ones
from dtoolkit.arrays.dense import DistDense, distribute_dense
from dtoolkit.arrays.elementwise import align, evaluate
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.arrays.reductions import combine
from dtoolkit.cluster import Context

if TYPE_CHECKING:
    from dtoolkit.arrays.sparse import DistSparse
    from dtoolkit.spmm.planned import Plan

__all__ = ["SparseValues"]


class SparseValues(DistArray):
    """What works on the stored values of each rank."""

    if TYPE_CHECKING:  # what DistSparse adds
        plan: Plan
        transposed: bool
        _like: Callable[..., DistSparse]

        @property
        def nnz(self) -> int: ...  # noqa: D102
        @property
        def columns(self) -> Layout: ...  # noqa: D102
        @property
        def T(self) -> DistSparse: ...  # noqa: D102, N802

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> DistSparse:
        """Apply a function to the stored values, keeping the pattern.

        Parameters
        ----------
        function : callable
            Takes a tensor of stored values, in whatever order a rank holds them, and returns one of
            the same shape; runs on the ranks and may be defined in a notebook.
        """
        probe = function(torch.ones(1, dtype=self.dtype))
        if not isinstance(probe, torch.Tensor) or probe.shape != (1,) or probe.dtype not in KEPT:
            raise TypeError("map: the function must return a floating tensor of the same shape")
        return self._like(computed(self.cluster, _map, self, function), dtype=probe.dtype)

    def astype(self, dtype: Any) -> DistSparse:
        """A copy with values in another floating or complex dtype."""
        target = as_dtype(dtype)
        if target not in KEPT or (self.dtype.is_complex and not target.is_complex):
            raise TypeError(f"astype: values of {self.dtype} do not become {target}")
        return self._values("asarray", dtype=target)

    def multiply(self, other: Any) -> DistSparse:
        """Multiply element by element.

        Parameters
        ----------
        other : number, array or DistDense
            Of shape (n,) or (1, n): a factor for each column; (m, 1): for each row. A DistDense
            (n,) must lie as ``A.columns``, (m, 1) as ``A.layout``, else it is moved first, with a
            `RedistributionWarning`. Factors of rows and columns that lie elsewhere travel as the
            plan's rows do (phase "scale").
        """
        return self._scaled(other, divide=False)

    __mul__ = __rmul__ = multiply

    def __truediv__(self, other: Any) -> DistSparse:
        return self._scaled(other, divide=True)

    def __neg__(self) -> DistSparse:
        return self._values("neg")

    def __abs__(self) -> DistSparse:
        return self._values("abs")

    def abs(self) -> DistSparse:
        """Absolute values; of complex numbers, real."""
        return self._values("abs")

    def conj(self) -> DistSparse:
        """Complex conjugates."""
        return self._values("conj_physical")

    def __pow__(self, other: Any) -> DistSparse:
        if not is_scalar(other) or not plain_scalar(other) > 0:
            raise TypeError("A ** p: p must be a number above 0, else zeros would not stay zeros")
        return self._values("pow", plain_scalar(other))

    def __add__(self, other: Any) -> DistSparse:
        raise TypeError(
            "A + x has another pattern than A, and would need another plan: add in SciPy, "
            "A.to_scipy() + x, and distribute the sum"
        )

    __radd__ = __sub__ = __rsub__ = __add__

    # ---------------------------------------------------------------------------- reductions

    def sum(self, axis: int | None = None) -> Any:
        """Sums: of all values (a number), or of each column (axis 0) or row (axis 1).

        Returns
        -------
        number or DistDense
            For axis 0 of shape (n,) on the layout of the columns, for axis 1 of shape (m,) on the
            layout of the rows: a product with ones, and the traffic of one.
        """
        if axis is None:
            return to_host(ask(self, _reduce, "sum")[0])[()]
        if axis not in (0, 1, -1, -2):
            raise ValueError(f"axis={axis!r}: a matrix has axes 0 and 1")
        turned = self.T if axis in (0, -2) else self.T.T
        factor = ones(self.cluster, turned.shape[1], layout=turned.columns, dtype=self.dtype)
        return turned @ factor

    def mean(self, axis: int | None = None) -> Any:
        """Means, zeros included; otherwise like :meth:`sum`."""
        count = self.size if axis is None else self.shape[0 if axis in (0, -2) else 1]
        with np.errstate(all="ignore"):
            return self.sum(axis) / count

    def max(self) -> Any:
        """Largest element; zeros that are not stored count."""
        return self._extreme("max")

    def min(self) -> Any:
        """Smallest element; zeros that are not stored count."""
        return self._extreme("min")

    def norm(self) -> Any:
        """Root of the sum of squares (Frobenius)."""
        square = ask(self, _reduce, "norm")[0]
        return to_host(square.sqrt())[()]

    # ------------------------------------------------------------------------------- helpers

    def _values(self, name: str, *numbers: Any, **options: Any) -> DistSparse:
        dtype = evaluate(name, [torch.ones(1, dtype=self.dtype), *numbers], options).dtype
        remote = computed(self.cluster, _apply, self, name, options, *numbers)
        return self._like(remote, dtype=dtype)

    def _scaled(self, other: Any, *, divide: bool) -> DistSparse:
        if is_scalar(other):
            return self._values("true_divide" if divide else "mul", plain_scalar(other))
        shape = tuple(np.shape(other) if not hasattr(other, "shape") else other.shape)
        m, n = self.shape
        by_row = shape == (m, 1) and (n != 1 or m == 1 or shape != (1, n))
        if not by_row and shape not in ((n,), (1, n)):
            raise TypeError(
                f"an operand of shape {shape} does not scale a matrix of shape {self.shape}: "
                "wanted a number, (n,) for the columns or (m, 1) for the rows"
            )
        layout = self.layout if by_row else self.columns
        if isinstance(other, DistArray):
            if not isinstance(other, DistDense) or (shape != (n,) and not by_row):
                raise TypeError("a distributed operand must be dense, (n,) or (m, 1)")
            vector = align(other, other if other.ndim == 1 else other[:, 0], layout, "scaling")
        else:
            whole = to_tensor(other, name="the factor").reshape(-1)
            vector = distribute_dense(self.cluster, whole, layout, operand=True)
        dtype = torch.promote_types(self.dtype, vector.dtype)
        rows = by_row != self.transposed
        return self._like(computed(self.cluster, _scale, self, vector, rows, divide), dtype=dtype)

    def _extreme(self, name: str) -> Any:
        if self.dtype.is_complex:
            raise TypeError(f"{name} is not defined for complex numbers")
        if self.size == 0:
            raise ValueError(f"{name} of no elements: A has shape {self.shape}")
        value = ask(self, _reduce, name)[0]
        if self.nnz < self.size:
            zero = torch.zeros((), dtype=value.dtype)
            value = (torch.maximum if name == "max" else torch.minimum)(value, zero)
        return to_host(value)[()]


def _apply(ctx: Context, A: Any, name: str, options: dict[str, Any], *numbers: Any) -> Any:
    return A.with_values(evaluate(name, [A.values, *numbers], options))


def _map(ctx: Context, A: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return A.with_values(function(A.values))


def _scale(ctx: Context, A: Any, vector: torch.Tensor, rows: bool, divide: bool) -> Any:
    return A.scaled(ctx, **{"rows" if rows else "columns": vector}, divide=divide)


def _reduce(ctx: Context, A: Any, name: str) -> torch.Tensor | None:
    values = A.values
    if name == "norm":
        values, name = values.abs().square(), "sum"
    result = combine(ctx, values, name)
    return result.cpu() if ctx.rank == 0 else None
