"""Joining arrays: rows and columns stay on the ranks that have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dtoolkit.arrays.array import DistArray
from dtoolkit.arrays.convert import to_tensor
from dtoolkit.arrays.elementwise import align
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.cluster import Context
from dtoolkit.errors import LayoutError

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["concatenate"]


def concatenate(arrays: Sequence[Any], axis: int = 0, *, dim: int | None = None) -> DistDense:
    """Join arrays along their rows or their columns.

    Parameters
    ----------
    arrays : sequence of DistDense, arrays or tensors
        At least one is distributed. Dtypes are promoted.
    axis, dim : int
        0: rows below each other; each stays on its rank, and the result is laid out by a part
        vector. 1: columns side by side, on the layout of the first distributed array.

    Returns
    -------
    DistDense
    """
    axis = axis if dim is None else dim
    lead: DistDense = next(a for a in arrays if isinstance(a, DistArray))  # type: ignore[assignment]
    if not -lead.ndim <= axis < lead.ndim:
        raise ValueError(f"concatenate: axis={axis} of arrays with {lead.ndim} dimensions")
    axis %= lead.ndim
    parts = [_distributed(lead, a, axis) for a in arrays]
    other = 1 - axis
    if any(
        a.ndim != lead.ndim or (a.ndim == 2 and a.shape[other] != lead.shape[other]) for a in parts
    ):
        shapes = ", ".join(str(a.shape) for a in parts)
        raise ValueError(f"concatenate: shapes {shapes} do not fit along axis {axis}")
    dtype = parts[0].dtype
    for a in parts[1:]:
        dtype = torch.promote_types(dtype, a.dtype)
    remote = computed(lead.cluster, _join, axis, dtype, *parts)
    total = sum(a.shape[axis] for a in parts)
    if axis == 1:
        return lead._like(remote, shape=(len(lead), total), dtype=dtype)
    owners = [a.layout.owner(np.arange(len(a))) for a in parts]
    layout = Layout.from_parts(np.concatenate(owners), lead.layout.parts)
    return lead._like(remote, shape=(total, *lead.shape[1:]), dtype=dtype, layout=layout)


def _distributed(lead: DistDense, value: Any, axis: int) -> DistDense:
    if not isinstance(value, DistArray):
        whole = to_tensor(value, name="concatenate: an array")
        layout = Layout.block(len(whole), lead.layout.parts) if axis == 0 else lead.layout
        return lead._lay_out(whole, layout)
    if axis == 1:
        return align(lead, value, lead.layout, "concatenate")  # type: ignore[arg-type]
    if value.cluster is not lead.cluster:
        raise LayoutError("concatenate: the arrays are on different clusters")
    return value  # type: ignore[return-value]


def _join(ctx: Context, axis: int, dtype: torch.dtype, *shards: torch.Tensor) -> torch.Tensor:
    return torch.cat([shard.to(dtype) for shard in shards], dim=axis)
