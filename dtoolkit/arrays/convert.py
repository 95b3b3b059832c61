"""What a person passes for an array, a number or a dtype, as torch has it; and the way back.

One rule for dtypes, that of :func:`dtoolkit.data.working_dtype`: float32, float64, bfloat16,
complex64 and complex128 stay; booleans, integers of 8 and 16 bits and float16 become float32,
which holds them exactly; larger integers and wider floats become float64.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.data import working_dtype

__all__ = ["as_dtype", "as_index", "is_scalar", "plain_scalar", "to_host", "to_tensor"]

KEPT = (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128)
# Comparisons give booleans, and positions and counts are int64: arrays of both exist as results.
RESULTS = (*KEPT, torch.bool, torch.int64)

_NARROW = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.float16}


def to_tensor(x: Any, *, name: str = "x", keep: tuple[torch.dtype, ...] = KEPT) -> torch.Tensor:
    """Take what a person passes for a dense array.

    Parameters
    ----------
    x : array, tensor or nested lists
        Any dimensions, strides and device; never modified. NaN and Inf stay.
    name : str
        The argument's name, for errors.
    keep : tuple of torch.dtype
        Dtypes that stay; others are converted by the rule above.

    Returns
    -------
    torch.Tensor
        On the CPU, detached; it may share memory with `x`.

    Raises
    ------
    TypeError
        `x` is no dense array of numbers.
    ValueError
        Nested lists are ragged.
    """
    if isinstance(x, torch.Tensor):
        return _from_torch(x, name, keep)
    if hasattr(x, "__dtoolkit_remote__"):
        raise TypeError(f"{name} is distributed already")
    if type(x).__module__.startswith("scipy.sparse"):
        raise TypeError(f"{name} is sparse; wanted a dense array: {name}.toarray() makes one")
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill it first, {name}.filled(0)")
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{name} is no array: {error}") from None
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"{name} has dtype {array.dtype} (from {type(x).__name__}); wanted booleans, integers, "
            "floats or complex numbers"
        )
    if array.dtype != np.bool_ or torch.bool not in keep:
        array = array.astype(working_dtype(array.dtype), copy=False)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch has neither read-only tensors nor negative strides
    return torch.from_numpy(array)


def _from_torch(x: torch.Tensor, name: str, keep: tuple[torch.dtype, ...]) -> torch.Tensor:
    if x.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor; wanted a dense one: {name}.to_dense()")
    if x.is_quantized or x.is_meta:
        raise TypeError(f"{name} is a tensor without plain values; wanted a dense tensor")
    x = x.detach().resolve_conj().resolve_neg().cpu()
    return x if x.dtype in keep else x.to(_converted(x.dtype))


def _converted(dtype: torch.dtype) -> torch.dtype:
    if dtype in KEPT:
        return dtype
    if dtype.is_complex:
        return torch.complex64
    if dtype in _NARROW or dtype.is_floating_point:  # float8 formats are narrower still
        return torch.float32
    return torch.float64


def as_dtype(dtype: Any) -> torch.dtype:
    """Take torch's, NumPy's or Python's name of a dtype that distributed arrays have.

    Raises
    ------
    TypeError
        They have no such dtype.
    """
    found = dtype
    if not isinstance(dtype, torch.dtype):
        name = dtype.removeprefix("torch.") if isinstance(dtype, str) else dtype
        if name in ("bfloat16", "float"):
            found = torch.bfloat16 if name == "bfloat16" else torch.float64
        else:
            try:
                found = torch.from_numpy(np.empty(0, np.dtype(name))).dtype
            except TypeError:
                found = None
    if found not in RESULTS:
        known = ", ".join(str(d).removeprefix("torch.") for d in RESULTS)
        raise TypeError(f"dtype={dtype!r}: distributed arrays have {known}")
    return found


def is_scalar(x: Any) -> bool:
    """Whether a person means one number: Python's, NumPy's, or an array without dimensions."""
    if isinstance(x, numbers.Number | np.generic):
        return True
    return isinstance(x, np.ndarray | torch.Tensor) and x.ndim == 0


def plain_scalar(x: Any) -> Any:
    """One number as Python has it: it does not widen an array's dtype, as in torch."""
    value = x.item() if hasattr(x, "item") else x
    if not isinstance(value, bool | int | float | complex):
        if isinstance(value, numbers.Real):  # fractions and decimals
            return float(value)
        raise TypeError(f"{x!r} is no number that arrays compute with")
    # Integers beyond 64 bits have no tensor; as floats they are what NumPy makes of them.
    return float(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def as_index(
    numbers: NDArray[np.int64], device: torch.device | str = "cpu"
) -> torch.Tensor | slice:
    """Row numbers as torch indexes with them: a run as a slice, which copies several times faster.

    Parameters
    ----------
    numbers : int64 array
        May be read-only; not modified.
    device : torch.device
        Where the rows are.
    """
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1 and _rises(numbers):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return torch.from_numpy(np.array(numbers, np.int64)).to(device)


def _rises(numbers: NDArray[np.int64]) -> bool:
    return bool(np.all(numbers[1:] - numbers[:-1] == 1))


def to_host(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor's values in NumPy; bfloat16, which NumPy lacks, as float32."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
