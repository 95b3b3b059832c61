"""Reductions as methods of dense arrays, in NumPy's words or in torch's.

``x.sum(axis=0)`` answers with NumPy's array, ``x.sum(dim=0)`` with a tensor, and so on for all of
them; ``dim=`` also brings torch's defaults: ``std`` and ``var`` divide by n - 1, ``max`` and
``min`` give values and positions.
"""

from __future__ import annotations

from typing import Any, cast

from dtoolkit.arrays.array import DistArray
from dtoolkit.arrays.extremes import extreme_position, extremes
from dtoolkit.arrays.reductions import deviation, length, reduction

__all__ = ["Summaries"]

_NUMPY: Any = object()  # dim was not given: NumPy's words


class Summaries(DistArray):
    """What becomes of all elements, of each column (axis 0), or of each row (axis 1).

    Over columns nothing moves, and the result is a DistDense on the same layout. Over rows or over
    everything the parts of the ranks are combined by an all-reduce in the order of ranks (phase
    "reduce"), and the result, a number or an array of shape (k,), comes to the caller.

    All methods take ``axis`` (0, 1, negative, a tuple, or None for everything) and ``keepdims``,
    or ``dim`` and ``keepdim``.
    """

    def sum(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Sums; of booleans int64."""
        return self._reduced("sum", axis, dim, keep)

    def prod(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Products."""
        return self._reduced("prod", axis, dim, keep)

    def mean(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Means; of booleans and integers float64."""
        return self._reduced("mean", axis, dim, keep)

    def any(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Whether any element is not zero."""
        return self._reduced("any", axis, dim, keep)

    def all(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Whether no element is zero."""
        return self._reduced("all", axis, dim, keep)

    def min(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Smallest elements; NaN where there is one. With ``dim``: values and positions."""
        return self._extreme("min", axis, dim, keep)

    def max(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Largest elements; NaN where there is one. With ``dim``: values and positions."""
        return self._extreme("max", axis, dim, keep)

    def amin(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Smallest elements, without positions."""
        return self._reduced("min", axis, dim, keep)

    def amax(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """Largest elements, without positions."""
        return self._reduced("max", axis, dim, keep)

    def argmin(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """First positions of the smallest elements."""
        return self._position("argmin", axis, dim, keep)

    def argmax(self, axis: Any = None, *, dim: Any = _NUMPY, **keep: Any) -> Any:
        """First positions of the largest elements."""
        return self._position("argmax", axis, dim, keep)

    def var(
        self,
        axis: Any = None,
        *,
        ddof: float = 0,
        dim: Any = _NUMPY,
        correction: float | None = None,
        **keep: Any,
    ) -> Any:
        """Variances, in two passes; divided by n - `ddof`, in torch's words n - `correction`."""
        return self._deviation(False, axis, ddof, dim, correction, keep)

    def std(
        self,
        axis: Any = None,
        *,
        ddof: float = 0,
        dim: Any = _NUMPY,
        correction: float | None = None,
        **keep: Any,
    ) -> Any:
        """Standard deviations; see :meth:`var`."""
        return self._deviation(True, axis, ddof, dim, correction, keep)

    def norm(
        self, ord: Any = None, axis: Any = None, *, p: Any = None, dim: Any = _NUMPY, **keep: Any
    ) -> Any:
        """Norms, as ``numpy.linalg.norm`` has them.

        Parameters
        ----------
        ord, p : float or "fro"
            By default the root of the sum of squares. The array as a whole has "fro", 1 and inf.
        """
        axis, words = _words(axis, dim)
        order = ord if p is None else p
        return length(cast(Any, self), order, axis, keepdims=_keep("norm", keep), torch_words=words)

    def _reduced(self, name: str, axis: Any, dim: Any, keep: dict[str, Any]) -> Any:
        axis, words = _words(axis, dim)
        return reduction(cast(Any, self), name, axis, keepdims=_keep(name, keep), torch_words=words)

    def _extreme(self, name: str, axis: Any, dim: Any, keep: dict[str, Any]) -> Any:
        if dim is _NUMPY or dim is None:
            return self._reduced(name, axis, dim, keep)
        return extremes(cast(Any, self), name, dim, keepdims=_keep(name, keep))

    def _position(self, name: str, axis: Any, dim: Any, keep: dict[str, Any]) -> Any:
        axis, words = _words(axis, dim)
        return extreme_position(
            cast(Any, self), name, axis, keepdims=_keep(name, keep), torch_words=words
        )

    def _deviation(
        self,
        root: bool,
        axis: Any,
        ddof: float,
        dim: Any,
        correction: float | None,
        keep: dict[str, Any],
    ) -> Any:
        axis, words = _words(axis, dim)
        if correction is None:
            correction = 1 if words else ddof
        name = "std" if root else "var"
        return deviation(
            cast(Any, self),
            axis,
            correction=correction,
            root=root,
            keepdims=_keep(name, keep),
            torch_words=words,
        )


def _words(axis: Any, dim: Any) -> tuple[Any, bool]:
    """The axis, and whether it was given in torch's words."""
    if dim is _NUMPY:
        return axis, False
    if axis is not None:
        raise TypeError("give axis= or dim=, not both")
    return dim, True


def _keep(name: str, given: dict[str, Any]) -> bool:
    for word in given:
        if word not in ("keepdims", "keepdim"):
            raise TypeError(f"{name}() has no argument {word!r}: known are axis, keepdims")
    return bool(given.get("keepdims", given.get("keepdim", False)))
