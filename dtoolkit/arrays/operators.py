"""Operators and element-wise methods of dense arrays, under the names of NumPy and torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.arrays.array import DistArray
from dtoolkit.arrays.elementwise import elementwise

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["Operators"]


class Operators(DistArray):
    """What works element by element; see :func:`dtoolkit.arrays.elementwise.elementwise`."""

    def __add__(self, other: Any) -> DistDense:
        return elementwise("add", self, other)

    def __radd__(self, other: Any) -> DistDense:
        return elementwise("add", self, other)

    def __iadd__(self, other: Any) -> DistDense:
        return self._into("add", other)

    def __sub__(self, other: Any) -> DistDense:
        return elementwise("sub", self, other)

    def __rsub__(self, other: Any) -> DistDense:
        return elementwise("sub", other, self)

    def __isub__(self, other: Any) -> DistDense:
        return self._into("sub", other)

    def __mul__(self, other: Any) -> DistDense:
        return elementwise("mul", self, other)

    def __rmul__(self, other: Any) -> DistDense:
        return elementwise("mul", self, other)

    def __imul__(self, other: Any) -> DistDense:
        return self._into("mul", other)

    def __truediv__(self, other: Any) -> DistDense:
        return elementwise("true_divide", self, other)

    def __rtruediv__(self, other: Any) -> DistDense:
        return elementwise("true_divide", other, self)

    def __itruediv__(self, other: Any) -> DistDense:
        return self._into("true_divide", other)

    def __floordiv__(self, other: Any) -> DistDense:
        return elementwise("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> DistDense:
        return elementwise("floor_divide", other, self)

    def __ifloordiv__(self, other: Any) -> DistDense:
        return self._into("floor_divide", other)

    def __mod__(self, other: Any) -> DistDense:
        return elementwise("remainder", self, other)

    def __rmod__(self, other: Any) -> DistDense:
        return elementwise("remainder", other, self)

    def __imod__(self, other: Any) -> DistDense:
        return self._into("remainder", other)

    def __pow__(self, other: Any) -> DistDense:
        return elementwise("pow", self, other)

    def __rpow__(self, other: Any) -> DistDense:
        return elementwise("pow", other, self)

    def __ipow__(self, other: Any) -> DistDense:
        return self._into("pow", other)

    def __and__(self, other: Any) -> DistDense:
        return elementwise("bitwise_and", self, other)

    def __or__(self, other: Any) -> DistDense:
        return elementwise("bitwise_or", self, other)

    def __xor__(self, other: Any) -> DistDense:
        return elementwise("bitwise_xor", self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> DistDense:
        return elementwise("bitwise_not", self)

    def __neg__(self) -> DistDense:
        return elementwise("neg", self)

    def __pos__(self) -> DistDense:
        return elementwise("positive", self)

    def __abs__(self) -> DistDense:
        return elementwise("abs", self)

    def __eq__(self, other: object) -> DistDense:  # type: ignore[override]
        return elementwise("eq", self, other)

    def __ne__(self, other: object) -> DistDense:  # type: ignore[override]
        return elementwise("ne", self, other)

    def __lt__(self, other: Any) -> DistDense:
        return elementwise("lt", self, other)

    def __le__(self, other: Any) -> DistDense:
        return elementwise("le", self, other)

    def __gt__(self, other: Any) -> DistDense:
        return elementwise("gt", self, other)

    def __ge__(self, other: Any) -> DistDense:
        return elementwise("ge", self, other)

    __hash__ = object.__hash__  # by identity, as torch's tensors

    def abs(self) -> DistDense:
        """Absolute values; of complex numbers, real."""
        return elementwise("abs", self)

    def exp(self) -> DistDense:
        """Exponentials."""
        return elementwise("exp", self)

    def log(self) -> DistDense:
        """Natural logarithms; of negative numbers NaN."""
        return elementwise("log", self)

    def sqrt(self) -> DistDense:
        """Square roots; of negative numbers NaN."""
        return elementwise("sqrt", self)

    def square(self) -> DistDense:
        """Squares."""
        return elementwise("square", self)

    def tanh(self) -> DistDense:
        """Hyperbolic tangents."""
        return elementwise("tanh", self)

    def sigmoid(self) -> DistDense:
        """Logistic function, 1 / (1 + exp(-x))."""
        return elementwise("sigmoid", self)

    def relu(self) -> DistDense:
        """The elements, and 0 where they are negative."""
        return elementwise("relu", self)

    def round(self, decimals: int = 0) -> DistDense:
        """Round to so many decimals, halves to even."""
        return elementwise("round", self, decimals=int(decimals))

    def clip(self, min: Any = None, max: Any = None, *, out: DistDense | None = None) -> DistDense:
        """Limit the elements.

        Parameters
        ----------
        min, max : number, array or DistDense, optional
            None for no limit; at least one is needed.
        out : DistDense, optional
        """
        if min is None and max is None:
            raise ValueError("clip: give min=, max= or both")
        return elementwise("clamp", self, min, max, out=out)

    clamp = clip

    def conj(self) -> DistDense:
        """Complex conjugates."""
        return elementwise("conj_physical", self)

    @property
    def real(self) -> DistDense:
        """A copy of the real parts."""
        return elementwise("real", self)

    @property
    def imag(self) -> DistDense:
        """A copy of the imaginary parts; zeros where the array is real."""
        if not self.dtype.is_complex:
            return elementwise("zeros_like", self)
        return elementwise("imag", self)

    def fill_(self, value: bool | int | float | complex) -> DistDense:
        """Set every element, in place."""
        one = torch.tensor(value)
        if not torch.can_cast(one.dtype, self.dtype):
            raise TypeError(f"fill_: {self.dtype} cannot hold {value!r}")
        return elementwise("full_like", self, out=self, fill_value=value)  # type: ignore[arg-type]

    def copy_(self, source: Any) -> DistDense:
        """Take the elements of another array or a number, in place."""
        return self._into("asarray", source, alone=True)

    def _into(self, name: str, other: Any, alone: bool = False) -> DistDense:
        operands = (other,) if alone else (self, other)
        return elementwise(name, *operands, out=self)  # type: ignore[arg-type]
