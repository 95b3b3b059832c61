"""How NumPy's and torch's own functions reach distributed arrays.

``np.exp(x)``, ``np.sum(x, axis=0)``, ``torch.relu(x)`` and ``torch.sum(x, dim=0)`` run on the
ranks, so that a function written for NumPy or torch works on a distributed array. What has no
distributed form raises TypeError and says what has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtoolkit.arrays.array import DistArray

__all__ = ["Protocols"]

_UFUNC_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_or": "any",
    "logical_and": "all",
}


class Protocols(DistArray):
    """The protocols of NumPy, torch and the array API."""

    __array_priority__ = 1000.0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        from dtoolkit.arrays.namespace import call

        if any(isinstance(value, DistArray) and value.is_sparse for value in args):
            return NotImplemented
        name = ufunc.__name__
        if method == "reduce" and name in _UFUNC_REDUCTIONS:
            axis = kwargs.pop("axis", args[1] if len(args) > 1 else 0)
            return call("numpy", _UFUNC_REDUCTIONS[name], (args[0],), {"axis": axis, **kwargs})
        return call("numpy", name if method == "__call__" else f"{name}.{method}", args, kwargs)

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        from dtoolkit.arrays.namespace import call

        module = function.__module__.removeprefix("numpy").lstrip(".")
        name = f"{module}.{function.__name__}" if module else function.__name__
        return call("numpy", name, args, kwargs)

    @classmethod
    def __torch_function__(
        cls,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        from dtoolkit.arrays.namespace import call

        return call("torch", function.__name__, args, kwargs or {})

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions that distributed arrays have, under the names of the array API."""
        from dtoolkit.arrays.namespace import Namespace

        return Namespace()
