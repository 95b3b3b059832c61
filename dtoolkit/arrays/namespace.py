"""The functions of NumPy and torch that have a distributed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from dtoolkit.arrays.array import DistArray
from dtoolkit.arrays.creation import like
from dtoolkit.arrays.elementwise import elementwise
from dtoolkit.arrays.joining import concatenate
from dtoolkit.arrays.names import ELEMENTWISE, NUMPY_NAMES, REDUCING, ROWWISE, TORCH_NAMES

__all__ = ["Namespace", "call", "supported"]


class Namespace:
    """The functions as attributes, as the array API wants: ``xp = x.__array_namespace__()``.

    Those that exist follow the standard's names; creation needs a cluster and is found in
    :mod:`dtoolkit.arrays`.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if _find(_canonical("numpy", name)) is None:
            raise AttributeError(_unsupported(name))
        return lambda *args, **kwargs: call("numpy", name, args, kwargs)

    def __dir__(self) -> list[str]:
        return supported()


def supported() -> list[str]:
    """Names of the functions that exist, torch's and NumPy's."""
    own = {*ELEMENTWISE, *ROWWISE, *REDUCING, *_FUNCTIONS}
    return sorted(own | set(NUMPY_NAMES))


def call(words: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function of NumPy or torch on distributed arrays.

    Parameters
    ----------
    words : {"numpy", "torch"}
        Whose name, arguments and defaults these are, and in whose kind to answer.
    name : str
    args, kwargs
        As the function got them.

    Raises
    ------
    TypeError
        It has no distributed form, or not with these arguments.
    """
    name = _canonical(words, name)
    given = {key: value for key, value in kwargs.items() if value is not np._NoValue}
    function = _find(name)
    if function is None:
        raise TypeError(_unsupported(name))
    if name in REDUCING or name == "norm":
        return _reduce(words, name, *args, **given)
    return function(*args, **given)


def _canonical(words: str, name: str) -> str:
    if words == "torch":
        name = name.removeprefix("__").removesuffix("__")
        return TORCH_NAMES.get(name, name)
    return NUMPY_NAMES.get(name, name)


def _find(name: str) -> Callable[..., Any] | None:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name in ELEMENTWISE:
        return partial(_each, name)
    if name in ROWWISE:
        return partial(_along_rows, name)
    return partial(_reduce, "numpy", name) if name in REDUCING else None


def _unsupported(name: str) -> str:
    return (
        f"{name} has no distributed form, and the array is not brought here unasked: use "
        f"to_numpy() or to_torch(), or one of {', '.join(supported())}"
    )


def _each(name: str, *args: Any, out: Any = None, dtype: Any = None, **options: Any) -> Any:
    """Apply an element-wise function with the arguments that NumPy or torch take."""
    operands = list(args)
    for key in ("input", "other"):
        if key in options:
            operands.append(options.pop(key))
    if options.pop("inplace", False):
        out = operands[0]
    options = {key: value for key, value in options.items() if value is not None}
    if options.pop("where", True) is not True or options.pop("order", "K") != "K":
        raise TypeError(f"{name}: where= and order= have no distributed form; use np.where")
    options.pop("casting", None), options.pop("subok", None)
    if isinstance(out, tuple):
        (out,) = out
    if out is not None and not isinstance(out, DistArray):
        raise TypeError(f"{name}: out= must be a distributed array, got {type(out).__name__}")
    if name == "round" and len(operands) == 2:
        options["decimals"] = operands.pop()
    result = elementwise(name, *operands, out=out, **options)  # type: ignore[arg-type]
    return result if dtype is None else result.astype(dtype)


def _along_rows(name: str, x: Any, axis: Any = None, **given: Any) -> Any:
    axis = given.pop("dim", axis)
    given.pop("_stacklevel", None)
    dtype = given.pop("dtype", None)
    if given:
        raise TypeError(f"{name}: {', '.join(given)} has no distributed form")
    if x.ndim != 2 or axis not in (1, -1):
        raise TypeError(f"{name} works along the columns only: axis=1 of a matrix, not axis={axis}")
    return elementwise(name, x if dtype is None else x.astype(dtype), dim=1)


def _reduce(words: str, name: str, x: Any, *args: Any, **given: Any) -> Any:
    """Call the method of that name, in NumPy's or torch's words."""
    if not isinstance(x, DistArray) or x.is_sparse:
        raise TypeError(
            f"{name}: the first argument must be a dense distributed array, got {type(x).__name__}"
        )
    if name in ("min", "max") and args and not isinstance(args[0], int | tuple):
        return elementwise(f"{name}imum", x, args[0])
    dtype = given.pop("dtype", None)
    for key in ("out", "initial", "where", "mean"):
        value = given.pop(key, None)
        if value is not None and value is not True:
            raise TypeError(f"{name}: {key}= has no distributed form")
    axis = "dim" if words == "torch" else "axis"
    places = {"norm": ("ord", axis)}.get(name, (axis, "keepdim"))
    given.update(zip(places, args, strict=False))
    if words == "torch":
        given["dim"] = given.pop("axis", given.pop("dim", None))
        if name in ("var", "std") and "unbiased" in given:
            given["correction"] = int(given.pop("unbiased"))
    x = x if dtype is None else _astype(x, dtype)
    if name == "count_nonzero":
        return (x != 0).sum(**given)
    return getattr(x, name)(**given)


def _clip(x: Any, *args: Any, out: Any = None, **given: Any) -> Any:
    low = given.pop("min", given.pop("a_min", args[0] if args else None))
    high = given.pop("max", given.pop("a_max", args[1] if len(args) > 1 else None))
    if given:
        raise TypeError(f"clip: {', '.join(given)} has no distributed form")
    if not isinstance(x, DistArray):
        raise TypeError("clip: the first argument must be distributed")
    return elementwise("clamp", x, low, high, out=out)


def _matmul(a: Any, b: Any, out: Any = None) -> Any:
    if out is not None:
        raise TypeError("matmul: out= has no distributed form")
    return a @ b if isinstance(a, DistArray) else b.__rmatmul__(a)


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    return a * b if np.ndim(a) == 0 or np.ndim(b) == 0 else _matmul(a, b, out)


def _where(condition: Any, *values: Any) -> Any:
    if len(values) != 2:
        raise TypeError("where(condition) alone has no distributed form: give both values")
    return elementwise("where", condition, *values)


def _isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    size = elementwise("abs", b) if isinstance(b, DistArray) else abs(_plain(b))
    distance = elementwise("sub", a, b).abs()
    near = distance <= size * rtol + atol
    near = (near & elementwise("isfinite", distance)) | elementwise("eq", a, b)
    if equal_nan:
        near = near | (_call_isnan(a) & _call_isnan(b))
    return near


def _call_isnan(x: Any) -> Any:
    return elementwise("isnan", x) if isinstance(x, DistArray) else np.isnan(_plain(x))


def _plain(x: Any) -> Any:
    return x.numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def _allclose(a: Any, b: Any, *args: Any, **given: Any) -> bool:
    return bool(_isclose(a, b, *args, **given).all())


def _array_equal(a: Any, b: Any) -> bool:
    return tuple(a.shape) == tuple(b.shape) and bool(elementwise("eq", a, b).all())


def _astype(x: Any, dtype: Any, **_: Any) -> Any:
    return x.astype(dtype)


def _transpose(x: Any, *axes: Any, **_: Any) -> Any:
    return x.T


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "allclose": _allclose,
    "array_equal": _array_equal,
    "astype": _astype,
    "clamp": _clip,
    "clip": _clip,
    "concatenate": concatenate,
    "copy": lambda x, **_: x.copy(),
    "dot": _dot,
    "empty_like": partial(like, None),
    "full_like": lambda x, fill_value, **given: like(fill_value, x, **given),
    "imag": lambda x: x.imag,
    "isclose": _isclose,
    "matmul": _matmul,
    "ndim": lambda x: x.ndim,
    "norm": partial(_reduce, "numpy", "norm"),
    "numel": lambda x: x.size,
    "ones_like": partial(like, 1),
    "reshape": lambda x, shape, **_: x.reshape(shape),
    "rsub": lambda x, other: elementwise("sub", other, x),
    "shape": lambda x: x.shape,
    "size": lambda x, axis=None: x.size if axis is None else x.shape[axis],
    "transpose": _transpose,
    "where": _where,
    "zeros_like": partial(like, 0),
}
