"""Choosing rows and columns, and writing into them.

Chosen rows stay on the rank that has them: nothing moves, and the result is laid out by a part
vector that follows the choice; ``redistribute`` spreads it evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays.array import DistArray, ask
from dtoolkit.arrays.convert import RESULTS, as_index, is_scalar, plain_scalar, to_host, to_tensor
from dtoolkit.arrays.elementwise import change, elementwise
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.cluster import Context
from dtoolkit.errors import LayoutError

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["assign", "choose", "numbers_of"]

_ALL = slice(None)
_WANTED = "wanted an integer, a slice, an integer array or a boolean mask"


@dataclass(frozen=True)
class _Choice:
    """What a key chooses.

    `rows` are global numbers, None for all; `columns` are what torch indexes a shard with, None
    for a vector; `width` is the shape of a chosen row.
    """

    rows: NDArray[np.int64] | None
    columns: Any
    width: tuple[int, ...]
    one_row: bool = False
    new_axis: bool = False


def choose(x: DistDense, key: Any) -> Any:
    """``x[key]``; see :meth:`dtoolkit.arrays.DistDense.__getitem__`."""
    choice = _read(x, key)
    if choice.one_row:
        assert choice.rows is not None
        owner, place = int(x.layout.owner(choice.rows)[0]), int(x.layout.local(choice.rows)[0])
        return to_host(ask(x, _row, owner, place, choice.columns)[owner])[()]
    if choice.rows is None:
        remote = computed(x.cluster, _take, x, choice.columns, choice.new_axis, _ALL)
        return x._like(remote, shape=(len(x), *choice.width))
    layout, places = _placed(x, choice.rows)
    remote = computed(
        x.cluster, _take, x, choice.columns, choice.new_axis, per_rank=[(p,) for p in places]
    )
    return x._like(remote, shape=(len(choice.rows), *choice.width), layout=layout)


def assign(x: DistDense, key: Any, value: Any) -> None:
    """``x[key] = value``; see :meth:`dtoolkit.arrays.DistDense.__setitem__`."""
    if _is_mask(key) and is_scalar(value) and tuple(key.shape) in (x.shape, x.shape[:1]):
        mask = key if key.ndim == x.ndim else key[:, None]
        elementwise("where", mask, value, x, out=x)
        return
    choice = _read(x, key)
    if choice.new_axis:
        raise IndexError("x[:, None] = value: write x[:] = value")
    rows = np.arange(len(x)) if choice.rows is None else choice.rows
    layout, places = (x.layout, None) if choice.rows is None else _placed(x, rows)
    shape = (len(rows), *choice.width)
    shared, pieces = _value(x, value, shape, layout)
    per_rank = [
        (_ALL if places is None else places[rank], None if pieces is None else pieces[rank])
        for rank in range(layout.parts)
    ]
    change(x, _put, choice.columns, shared, per_rank=per_rank)


def numbers_of(key: Any, n: int, what: str = "rows") -> NDArray[np.int64]:
    """Numbers that a slice, an integer array or a boolean mask chooses, in its order.

    Raises
    ------
    IndexError
        The key is of another kind, or out of range.
    """
    if isinstance(key, slice):
        return np.arange(*key.indices(n), dtype=np.int64)
    array = to_host(key) if isinstance(key, torch.Tensor) else np.asarray(key)
    if array.ndim != 1:
        raise IndexError(f"an index of {array.ndim} dimensions chooses no {what}: {_WANTED}")
    if array.dtype == np.bool_:
        if len(array) != n:
            raise IndexError(f"a mask of {len(array)} does not fit {n} {what}")
        return np.flatnonzero(array)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise IndexError(f"an index of dtype {array.dtype} chooses no {what}: {_WANTED}")
    return _wrapped(array.astype(np.int64), n, what)


def _wrapped(numbers: NDArray[np.int64], n: int, what: str) -> NDArray[np.int64]:
    """Count negative numbers from the end; refuse what is out of range."""
    if len(numbers):
        for extreme in (int(numbers.min()), int(numbers.max())):
            if not -n <= extreme < n:
                raise IndexError(f"index {extreme} is out of range: there are {n} {what}")
    return np.where(numbers < 0, numbers + n, numbers)


def _read(x: DistDense, key: Any) -> _Choice:
    keys = list(key) if isinstance(key, tuple) else [key]
    dots = [place for place, one in enumerate(keys) if one is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can have one ... only")
    if dots:
        missing = x.ndim - sum(one is not None for one in keys) + 1
        keys[dots[0] : dots[0] + 1] = [_ALL] * missing
    if x.ndim == 1 and len(keys) == 2 and keys[1] is None:
        rows, one_row = _rows(x, keys[0])
        return _Choice(rows, None, () if one_row else (1,), one_row, not one_row)
    if len(keys) > x.ndim or any(one is None for one in keys):
        raise IndexError(f"{len(keys)} indices for an array of shape {x.shape}")
    rows, one_row = _rows(x, keys[0] if keys else _ALL)
    if x.ndim == 1:
        return _Choice(rows, None, (), one_row)
    second = keys[1] if len(keys) == 2 else _ALL
    columns, width = _columns(second, x.shape[1])
    if isinstance(columns, torch.Tensor) and not (one_row or isinstance(keys[0], slice)):
        raise IndexError(
            "arrays for both rows and columns choose single elements in NumPy, which is not "
            "supported: write x[rows][:, columns] for all pairs"
        )
    return _Choice(rows, columns, width, one_row)


def _rows(x: DistDense, key: Any) -> tuple[NDArray[np.int64] | None, bool]:
    if _is_integer(key):
        return _wrapped(np.array([key], np.int64), len(x), "rows"), True
    if isinstance(key, DistArray):
        if not _is_mask(key) or key.ndim != 1 or key.shape[0] != len(x):
            raise IndexError(
                f"{key!r} chooses no rows of {x!r}: wanted a boolean vector with as many rows; for "
                "single elements use where()"
            )
        return _masked(key), False  # type: ignore[arg-type]
    if isinstance(key, slice) and key == _ALL:
        return None, False
    return numbers_of(key, len(x)), False


def _columns(key: Any, k: int) -> tuple[Any, tuple[int, ...]]:
    if _is_integer(key):
        return int(_wrapped(np.array([key], np.int64), k, "columns")[0]), ()
    if isinstance(key, DistArray):
        raise IndexError(f"{key!r} chooses no columns: {_WANTED}")
    numbers = numbers_of(key, k, "columns")
    if isinstance(key, slice) and (key.step is None or key.step > 0):
        return slice(*key.indices(k)), (len(numbers),)
    return torch.from_numpy(numbers), (len(numbers),)


def _masked(mask: DistDense) -> NDArray[np.int64]:
    """Rows that a distributed mask chooses: one bit a row comes here, for the new layout."""
    whole = np.zeros(len(mask), np.bool_)
    for rank, bits in enumerate(ask(mask, _bits)):
        size = int(mask.layout.sizes[rank])
        whole[mask.layout.indices(rank)] = np.unpackbits(bits, count=size).astype(np.bool_)
    return np.flatnonzero(whole)


def _placed(
    x: DistDense, rows: NDArray[np.int64]
) -> tuple[Layout, list[NDArray[np.int64] | slice]]:
    """Layout of chosen rows that stay where they are, and where each rank finds its own."""
    layout = Layout.from_parts(x.layout.owner(rows), x.layout.parts)
    places = [x.layout.local(rows[layout.indices(rank)]) for rank in range(layout.parts)]
    return layout, [_compact(place) for place in places]


def _compact(places: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """A slice for a run with a positive step: shorter to send, faster to follow."""
    if len(places) == 0:
        return slice(0, 0)
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step > 0 and np.all(np.diff(places) == step):
        return slice(int(places[0]), int(places[-1]) + 1, step)
    return places


def _value(x: DistDense, value: Any, shape: tuple[int, ...], layout: Layout) -> tuple[Any, Any]:
    """What to write: the same for all ranks or a distributed array, and pieces by rank."""
    if value is None:
        raise TypeError("None is no value for an element")
    if is_scalar(value):
        number = plain_scalar(value)
        _fits(torch.tensor(number).dtype, x)
        return number, None
    if isinstance(value, DistArray):
        if value.shape != shape:
            raise ValueError(f"a value of shape {value.shape} does not fill {shape}")
        _fits(value.dtype, x)
        if value.cluster is not x.cluster:
            raise LayoutError("the value is on another cluster: distribute both on one")
        return value.redistribute(layout), None  # type: ignore[attr-defined]
    tensor = to_tensor(value, name="the value", keep=RESULTS)
    _fits(tensor.dtype, x)
    try:
        fits = tuple(torch.broadcast_shapes(tensor.shape, shape)) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"a value of shape {tuple(tensor.shape)} does not fill {shape}")
    if tensor.dim() < len(shape) or (tensor.shape[0] == 1 and shape[0] != 1):
        return tensor, None
    return None, [tensor[as_index(layout.indices(p))].clone() for p in range(layout.parts)]


def _fits(dtype: torch.dtype, x: DistDense) -> None:
    if not torch.can_cast(dtype, x.dtype):
        raise TypeError(f"{x!r} cannot hold values of {dtype}: convert with astype()")


def _row(ctx: Context, shard: torch.Tensor, owner: int, place: int, columns: Any) -> Any:
    if ctx.rank != owner:
        return None
    row = shard[place]
    return (row if columns is None else row[_on(shard, columns)]).cpu().clone()


def _take(
    ctx: Context, shard: torch.Tensor, columns: Any, new_axis: bool, rows: Any
) -> torch.Tensor:
    found = shard[_on(shard, rows)]
    if columns is not None:
        found = found[:, _on(shard, columns)]
    if new_axis:
        found = found[:, None]
    return found.clone(memory_format=torch.contiguous_format)


def _put(
    ctx: Context, shard: torch.Tensor, columns: Any, shared: Any, rows: Any, piece: Any
) -> torch.Tensor:
    value = shared if piece is None else piece
    if not isinstance(value, torch.Tensor):
        value = torch.tensor(value, dtype=shard.dtype)
    value = value.to(shard.device, shard.dtype)
    if not isinstance(rows, slice):
        # Of rows that are chosen twice the last value counts, as in NumPy.
        last = len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]
        if len(last) < len(rows):
            rows = rows[last]
            if value.dim() == (1 if columns is None or isinstance(columns, int) else 2):
                value = value[torch.from_numpy(last).to(shard.device)] if len(value) > 1 else value
    index = _on(shard, rows)
    if columns is None:
        shard[index] = value
    else:
        shard[index, _on(shard, columns)] = value
    return shard


def _bits(ctx: Context, mask: torch.Tensor) -> NDArray[np.uint8]:
    return np.packbits(mask.cpu().numpy())


def _on(shard: torch.Tensor, index: Any) -> Any:
    if isinstance(index, np.ndarray):
        index = torch.from_numpy(index)
    return index.to(shard.device) if isinstance(index, torch.Tensor) else index


def _is_integer(key: Any) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool | np.bool_)


def _is_mask(key: Any) -> bool:
    if isinstance(key, DistArray):
        return key.dtype == torch.bool
    return isinstance(key, np.ndarray | torch.Tensor) and key.dtype in (np.bool_, torch.bool)
