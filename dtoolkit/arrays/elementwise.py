"""Element-wise operations: every rank computes on its rows, and nothing moves.

Operands are distributed arrays on one layout, numbers, rows that every rank gets a copy of, and
undistributed arrays with as many rows as the distributed ones, of which every rank gets its share.
Results have torch's dtypes: a number does not widen an array, whether it is Python's or NumPy's.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.arrays.array import DistArray, RedistributionWarning
from dtoolkit.arrays.convert import RESULTS, is_scalar, plain_scalar, to_tensor
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.cluster import Context
from dtoolkit.errors import LayoutError

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["align", "change", "elementwise", "evaluate"]

# Of these, torch takes a number for the second operand, and results have the dtype that a number
# gives them; elsewhere numbers become tensors without dimensions, which widen nothing either.
_ARITHMETIC = "add sub mul true_divide floor_divide remainder fmod pow eq ne lt le gt ge"
_OTHERS_WITH_OUT = (
    "neg abs exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin "
    "acos atan sinh cosh tanh asinh acosh atanh sgn floor ceil trunc round sigmoid erf erfc "
    "maximum minimum fmax fmin hypot atan2 copysign logaddexp clamp where"
)
_NUMBER_SECOND = frozenset(_ARITHMETIC.split())
_WITH_OUT = _NUMBER_SECOND | frozenset(_OTHERS_WITH_OUT.split())


def elementwise(
    name: str, *operands: Any, out: DistDense | None = None, **options: Any
) -> DistDense:
    """Apply a function of torch to every element.

    Parameters
    ----------
    name : str
        Of a function in ``torch`` or ``torch.nn.functional`` that works element by element, or
        along the columns of each row.
    *operands : DistDense, array, tensor, number or None
        Broadcast as NumPy does, with two limits: all distributed operands have the same number of
        rows, and a distributed vector is never stretched along the columns.
    out : DistDense, optional
        Where the result goes; may be one of the operands.
    **options
        Further arguments of the function, numbers or strings.

    Returns
    -------
    DistDense
        `out`, or a new array on the layout of the first distributed operand.

    Raises
    ------
    TypeError
        The function is not defined for these dtypes, or `out` cannot hold the result.
    ValueError
        Shapes do not broadcast.
    LayoutError
        Operands are on different clusters.

    Warns
    -----
    RedistributionWarning
        A distributed operand is on another layout than the result, and is moved first.
    """
    lead = _lead(name, operands, out)
    prepared = [_prepare(name, lead, value) for value in operands]
    shape = _shape(name, lead, prepared, out)
    dtype = _dtype(name, lead.ndim, prepared, options)
    if out is None:
        remote = computed(lead.cluster, _apply, name, options, *prepared)
        return lead._like(remote, shape=shape, dtype=dtype)
    if not torch.can_cast(dtype, out.dtype):
        raise TypeError(
            f"{name}: out holds {_short(out.dtype)}; the result is {_short(dtype)}: convert with "
            "astype()"
        )
    change(out, _write, name, options, *prepared)
    return out


def change(
    array: DistDense,
    function: Any,
    *args: Any,
    per_rank: Sequence[tuple[Any, ...]] | None = None,
) -> None:
    """Run a function that writes into an array's shards and returns them.

    Transposes that were asked for and not made yet are made first; the array's version grows, so
    that nothing is made again from what it was.
    """
    array._settle()
    try:
        array.cluster.keep(function, array, *args, per_rank=per_rank, into=array.remote)
    finally:
        array.changed()


def evaluate(
    name: str, operands: Sequence[Any], options: dict[str, Any], out: torch.Tensor | None = None
) -> torch.Tensor:
    """Apply the function to what one rank has; a result never shares memory with an operand."""
    values = list(operands)
    tensors = [v for v in (*values, out) if isinstance(v, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    for place, value in enumerate(values):
        if not isinstance(value, torch.Tensor) and value is not None:
            if place and name in _NUMBER_SECOND:
                continue
            values[place] = _number(value).to(device)
    if out is not None and name in _WITH_OUT and _fills(values, out):
        _function(name)(*values, **options, out=out)
        return out
    result = _function(name)(*values, **options)
    if out is not None:
        return out.copy_(result)
    shared = any(_same_memory(result, v) for v in tensors)
    return result.clone() if shared else result.resolve_conj().resolve_neg().contiguous()


def align(x: DistArray, value: DistDense, layout: Layout, what: str) -> DistDense:
    """Bring an operand onto a layout, and say so where it has to move."""
    if value.cluster is not x.cluster:
        raise LayoutError(f"{what}: the operands are on different clusters: distribute both on one")
    if value.layout == layout:
        return value
    warnings.warn(
        f"{what}: an operand is laid out as {value.layout!r}, the other as {layout!r}; it is "
        "redistributed first (phase 'redistribute' of the trace). redistribute() it once to avoid "
        "this.",
        RedistributionWarning,
        stacklevel=_depth(),
    )
    return value.redistribute(layout)


def _apply(ctx: Context, name: str, options: dict[str, Any], *operands: Any) -> torch.Tensor:
    return evaluate(name, [_here(ctx, value) for value in operands], options)


def _write(
    ctx: Context, out: torch.Tensor, name: str, options: dict[str, Any], *operands: Any
) -> torch.Tensor:
    return evaluate(name, [_here(ctx, value) for value in operands], options, out)


def _here(ctx: Context, value: Any) -> Any:
    return value.to(ctx.device) if isinstance(value, torch.Tensor) else value


def _function(name: str) -> Any:
    found = getattr(torch, name, None)
    return getattr(torch.nn.functional, name) if found is None else found


def _fills(values: Sequence[Any], out: torch.Tensor) -> bool:
    """Whether the result has the shape of `out`: torch would resize a larger one."""
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    return torch.broadcast_shapes(*shapes) == out.shape


def _number(value: bool | int | float | complex) -> torch.Tensor:
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return torch.tensor(value, dtype=torch.complex128 if isinstance(value, complex) else None)


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.numel() > 0


def _lead(name: str, operands: Sequence[Any], out: DistDense | None) -> DistDense:
    """The array whose rows and layout the result has."""
    for value in (out, *operands):
        if isinstance(value, DistArray) and value.is_sparse:
            raise TypeError(
                f"{name}: {value!r} is sparse, and a result with every element would not be; use "
                "its own operations, or to_scipy()"
            )
    found = [value for value in (out, *operands) if isinstance(value, DistArray)]
    rows = {value.shape[0] for value in found}
    if len(rows) > 1 or len({value.ndim for value in found}) > 1:
        shapes = " and ".join(str(value.shape) for value in found)
        raise ValueError(
            f"{name}: distributed operands of shapes {shapes} do not go together: they must have "
            "the same rows and as many dimensions (x[:, None] makes a column of a vector)"
        )
    return found[0]  # type: ignore[return-value]


def _prepare(name: str, lead: DistDense, value: Any) -> Any:
    """An operand as it goes into the launch: shards, a row for all ranks, or a number."""
    if value is None:
        return None
    if isinstance(value, DistArray):
        return align(lead, value, lead.layout, name)  # type: ignore[arg-type]
    if is_scalar(value):
        return plain_scalar(value)
    tensor = to_tensor(value, name=f"{name}: an operand", keep=RESULTS[:-1])
    if tensor.dim() == lead.ndim and tensor.shape[0] == len(lead) != 1:
        return lead._lay_out(tensor)
    if tensor.dim() == 1 and (lead.ndim == 2 or len(tensor) == 1):
        return tensor.contiguous().clone()
    if tensor.dim() == lead.ndim and tensor.shape[0] == 1:
        return tensor.contiguous().clone()
    raise ValueError(
        f"{name}: an operand of shape {tuple(tensor.shape)} does not go with {lead.shape}: wanted "
        "a number, a row, or an array with as many rows"
    )


def _shape(
    name: str, lead: DistDense, operands: Sequence[Any], out: DistDense | None
) -> tuple[int, ...]:
    """The result's shape; with `out`, which may be larger, its shape."""
    shapes = [tuple(v.shape) for v in operands if hasattr(v, "shape")]
    listed = " and ".join(map(str, shapes))
    try:
        shape = tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        raise ValueError(f"{name}: shapes {listed} do not broadcast") from None
    if out is not None:
        if len(shape) > out.ndim or not _broadcasts(shape, out.shape):
            raise ValueError(f"{name}: out has shape {out.shape}; the result has {shape}")
        return out.shape
    if len(shape) != lead.ndim or shape[0] != len(lead):
        raise ValueError(f"{name}: {listed} would give {shape}, with other rows than {lead!r}")
    return shape


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(a in (1, b) for a, b in pairs)


def _dtype(name: str, ndim: int, operands: Sequence[Any], options: dict[str, Any]) -> torch.dtype:
    """The result's dtype, by trying the function on one element of each operand."""
    one = (1,) * ndim
    tried = [torch.ones(one, dtype=v.dtype) if hasattr(v, "dtype") else v for v in operands]
    try:
        dtype = evaluate(name, tried, options).dtype
    except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
        kinds = ", ".join(
            _short(v.dtype) if hasattr(v, "dtype") else type(v).__name__ for v in operands
        )
        raise TypeError(f"{name} is not defined for {kinds}: {error}") from None
    if dtype not in RESULTS:
        raise TypeError(f"{name} would give {_short(dtype)}, which distributed arrays do not have")
    return dtype


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _depth() -> int:
    """How many frames to go up for the line that a person wrote, for a warning."""
    depth, frame = 2, sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("dtoolkit."):
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    return depth
