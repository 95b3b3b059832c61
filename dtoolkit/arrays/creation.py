"""Arrays made on the workers: nothing is sent but what to make.

Random numbers come from the seed and the global row and column alone, so that an array is the same
on any number of ranks and any layout.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.arrays.array import check_memory
from dtoolkit.arrays.convert import as_dtype
from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.arrays.philox import normal_rows, uniform_rows
from dtoolkit.cluster import Cluster, Context
from dtoolkit.philox import seed_key

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["arange", "empty", "full", "like", "ones", "random", "standard_normal", "zeros"]

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128)


def zeros(
    cluster: Cluster, shape: Any, *, layout: Layout | str | Any = "block", dtype: Any = "float64"
) -> DistDense:
    """An array of zeros.

    Parameters
    ----------
    cluster : Cluster
    shape : int or tuple of 1 or 2 int
    layout : Layout, "block", "cyclic" or part vector
    dtype : torch.dtype, or NumPy's or Python's name of one

    Returns
    -------
    DistDense
    """
    return full(cluster, shape, 0, layout=layout, dtype=dtype)


def ones(
    cluster: Cluster, shape: Any, *, layout: Layout | str | Any = "block", dtype: Any = "float64"
) -> DistDense:
    """An array of ones; parameters as for :func:`zeros`."""
    return full(cluster, shape, 1, layout=layout, dtype=dtype)


def empty(
    cluster: Cluster, shape: Any, *, layout: Layout | str | Any = "block", dtype: Any = "float64"
) -> DistDense:
    """An array of whatever the memory held; parameters as for :func:`zeros`."""
    return _make(cluster, shape, layout, dtype, _full, None)


def full(
    cluster: Cluster,
    shape: Any,
    fill_value: bool | int | float | complex,
    *,
    layout: Layout | str | Any = "block",
    dtype: Any = "float64",
) -> DistDense:
    """An array of one number; other parameters as for :func:`zeros`."""
    found = as_dtype(dtype)
    truth = found == torch.bool and fill_value in (0, 1)
    if not truth and not torch.can_cast(torch.tensor(fill_value).dtype, found):
        raise TypeError(f"fill_value={fill_value!r} does not fit dtype={dtype!r}")
    return _make(cluster, shape, layout, dtype, _full, fill_value)


def arange(
    cluster: Cluster,
    start: int | float,
    stop: int | float | None = None,
    step: int | float = 1,
    *,
    layout: Layout | str | Any = "block",
    dtype: Any = "float64",
) -> DistDense:
    """Evenly spaced numbers, as ``numpy.arange`` counts them.

    Parameters
    ----------
    cluster : Cluster
    start, stop, step : number
        One of them alone is the stop.
    layout, dtype
        As for :func:`zeros`.
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("step must not be 0")
    count = max(0, -int((start - stop) // step))
    return _make(cluster, count, layout, dtype, _arange, start, step)


def random(
    cluster: Cluster,
    shape: Any,
    *,
    seed: int = 0,
    layout: Layout | str | Any = "block",
    dtype: Any = "float64",
) -> DistDense:
    """Uniform random numbers in [0, 1), the same on any number of ranks and any layout.

    Parameters
    ----------
    cluster : Cluster
    shape, layout
        As for :func:`zeros`.
    seed : int
        Equal seeds give equal numbers; a number depends on seed, row and column alone
        (Philox 4x32-10, see :mod:`dtoolkit.philox`).
    dtype : torch.dtype, or NumPy's or Python's name of one
        Narrower dtypes have the leading bits of the same numbers; real and imaginary parts of
        complex ones are independent.
    """
    return _make(cluster, shape, layout, _float(dtype), _random, "uniform", seed_key(seed))


def standard_normal(
    cluster: Cluster,
    shape: Any,
    *,
    seed: int = 0,
    layout: Layout | str | Any = "block",
    dtype: Any = "float64",
) -> DistDense:
    """Normal random numbers of mean 0 and variance 1; otherwise like :func:`random`.

    Real and imaginary parts of complex numbers each have variance 1/2. On a GPU the last bits can
    differ from a CPU's.
    """
    return _make(cluster, shape, layout, _float(dtype), _random, "normal", seed_key(seed))


def like(
    fill_value: Any, x: DistDense, dtype: Any = None, *, shape: Any = None, **words: Any
) -> DistDense:
    """An array of one number with the shape, layout and dtype of another (None: uninitialised)."""
    if shape is not None:
        raise TypeError("shape= has no distributed form here: use dtoolkit.arrays.full")
    wanted = x.dtype if dtype is None else dtype
    if fill_value is None:
        return empty(x.cluster, x.shape, layout=x.layout, dtype=wanted)
    return full(x.cluster, x.shape, fill_value, layout=x.layout, dtype=wanted)


def _make(
    cluster: Cluster, shape: Any, layout: Any, dtype: Any, function: Any, *args: Any
) -> DistDense:
    from dtoolkit.arrays.dense import DistDense

    wanted, found = _shape(shape), as_dtype(dtype)
    rows = as_layout(layout, wanted[0], cluster.size)
    row = found.itemsize * (wanted[1] if len(wanted) == 2 else 1)
    check_memory(cluster, list(rows.sizes * row), f"an array of shape {wanted}")
    remote = computed(cluster, function, rows, wanted[1:], found, *args)
    return DistDense(cluster, rows, wanted, found, remote)


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    try:
        wanted = tuple(operator.index(n) for n in sizes)
    except TypeError:
        wanted = ()
    if len(wanted) not in (1, 2) or any(n < 0 for n in wanted):
        raise ValueError(f"shape={shape!r}: wanted one or two sizes of at least 0")
    return wanted


def _float(dtype: Any) -> torch.dtype:
    found = as_dtype(dtype)
    if found not in _FLOATS:
        raise TypeError(f"dtype={dtype!r}: random numbers are floats or complex numbers")
    return found


def _full(
    ctx: Context, layout: Layout, width: tuple[int, ...], dtype: torch.dtype, value: Any
) -> torch.Tensor:
    shape = (int(layout.sizes[ctx.rank]), *width)
    if value is None:
        return torch.empty(shape, dtype=dtype, device=ctx.device)
    return torch.full(shape, value, dtype=dtype, device=ctx.device)


def _arange(
    ctx: Context,
    layout: Layout,
    width: tuple[int, ...],
    dtype: torch.dtype,
    start: int | float,
    step: int | float,
) -> torch.Tensor:
    rows = torch.from_numpy(layout.indices(ctx.rank).copy()).to(ctx.device)
    exact = torch.int64 if isinstance(start, int) and isinstance(step, int) else torch.float64
    return (rows.to(exact) * step + start).to(dtype)


def _random(
    ctx: Context,
    layout: Layout,
    width: tuple[int, ...],
    dtype: torch.dtype,
    kind: str,
    key: tuple[int, int],
) -> torch.Tensor:
    rows = torch.from_numpy(layout.indices(ctx.rank).copy()).to(ctx.device)
    k = width[0] if width else 1
    make = uniform_rows if kind == "uniform" else normal_rows
    return make(rows, k, key, dtype).reshape(len(rows), *width)
