"""The functions of NumPy and torch that have a distributed form, in one table."""

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

__all__ = ["Namespace", "call", "supported"]

# Functions of torch that work element by element, under torch's names.
_ONE_BY_ONE = (
    "abs acos acosh add angle asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or "
    "bitwise_xor ceil conj_physical copysign cos cosh deg2rad div elu eq erf erfc erfinv exp exp2 "
    "expm1 floor floor_divide fmax fmin fmod ge gelu gt heaviside hypot isfinite isinf isnan "
    "le leaky_relu log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or "
    "logical_xor logit lt maximum minimum mul nan_to_num ne neg positive pow rad2deg real "
    "reciprocal relu relu6 remainder round rsqrt sgn sigmoid signbit silu sin sinc sinh softplus "
    "sqrt square sub tan tanh true_divide trunc where xlogy"
)
_REDUCING = "sum prod mean any all min max amin amax argmin argmax var std count_nonzero"
_ELEMENTWISE = frozenset(_ONE_BY_ONE.split())
_AXIS_SECOND = frozenset(_REDUCING.split())
# Along the columns of each row, which lie on one rank.
_ROWWISE = frozenset({"softmax", "log_softmax", "cumsum", "cumprod"})

_NUMPY_NAMES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "around": "round",
    "bitwise_invert": "bitwise_not",
    "concat": "concatenate",
    "conj": "conj_physical",
    "conjugate": "conj_physical",
    "degrees": "rad2deg",
    "divide": "true_divide",
    "equal": "eq",
    "fabs": "abs",
    "float_power": "pow",
    "greater": "gt",
    "greater_equal": "ge",
    "invert": "bitwise_not",
    "less": "lt",
    "less_equal": "le",
    "linalg.matmul": "matmul",
    "linalg.norm": "norm",
    "linalg.vector_norm": "norm",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "permute_dims": "transpose",
    "power": "pow",
    "radians": "deg2rad",
    "rint": "round",
    "sign": "sgn",
    "subtract": "sub",
}
_TORCH_NAMES = {
    "absolute": "abs",
    "arctan2": "atan2",
    "cat": "concatenate",
    "clone": "copy",
    "concat": "concatenate",
    "conj": "conj_physical",
    "divide": "div",
    "floordiv": "floor_divide",
    "linalg_norm": "norm",
    "linalg_vector_norm": "norm",
    "matrix_norm": "norm",
    "mm": "matmul",
    "mul": "mul",
    "multiply": "mul",
    "mv": "matmul",
    "negative": "neg",
    "sign": "sgn",
    "special_exp2": "exp2",
    "special_expit": "sigmoid",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "special_xlogy": "xlogy",
    "subtract": "sub",
    "t": "transpose",
    "truediv": "true_divide",
}


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
    own = {*_ELEMENTWISE, *_ROWWISE, *_AXIS_SECOND, *_FUNCTIONS}
    return sorted(own | set(_NUMPY_NAMES))


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
    if name in _AXIS_SECOND or name == "norm":
        return _reduce(words, name, *args, **given)
    return function(*args, **given)


def _canonical(words: str, name: str) -> str:
    if words == "torch":
        name = name.removeprefix("__").removesuffix("__")
        return _TORCH_NAMES.get(name, name)
    return _NUMPY_NAMES.get(name, name)


def _find(name: str) -> Callable[..., Any] | None:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name in _ELEMENTWISE:
        return partial(_each, name)
    if name in _ROWWISE:
        return partial(_along_rows, name)
    return partial(_reduce, "numpy", name) if name in _AXIS_SECOND else None


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
    near = (
        elementwise("sub", a, b).abs() <= elementwise("abs", b) * rtol + atol
        if isinstance(b, DistArray)
        else elementwise("sub", a, b).abs() <= rtol * abs(_plain(b)) + atol
    )
    near = near | elementwise("eq", a, b)
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
