"""Rows of dense operands brought to where the nonzeros of their row or column are multiplied."""

from __future__ import annotations

import torch

from dtoolkit.cluster import Context
from dtoolkit.spmm.hops import Hop, reverse, travel
from dtoolkit.spmm.operand import Operand

__all__ = ["column_ends", "row_ends"]


def column_ends(
    ctx: Context, A: Operand, X: torch.Tensor, phase: str, *, agreed: bool = False
) -> list[torch.Tensor]:
    """For each piece of an operand the rows of X that belong to its columns.

    They travel as the rows of B do in a product.

    Parameters
    ----------
    ctx : Context
    A : Operand
    X : torch.Tensor, shape (columns here, ...)
    phase : str
        For the trace; the name of the stage follows where there are several.
    agreed : bool
        All ranks are known to pass the same dtype and width.
    """
    parcels = travel(ctx, A.hops, X, phase, agreed=agreed)
    found = [X]
    for stage, parcel in enumerate(parcels):
        found += [parcel, *[X] * len(A.partial[stage])]
    for group in A.through:
        found += [parcels[group.came]] * len(group.pieces)
    return found


def row_ends(
    ctx: Context, A: Operand, X: torch.Tensor, phase: str, *, agreed: bool = False
) -> list[torch.Tensor]:
    """For each piece of an operand the rows of X that belong to its rows.

    They travel as the partial rows of C do in a product, the other way.
    """
    back = reverse(A.hops)
    parcels = travel(ctx, back, X, phase, agreed=agreed)
    leaving = [_by_peer(parcel, hop) for parcel, hop in zip(parcels, back, strict=True)][::-1]
    found = [X]
    for rows in leaving:
        found += [X, *rows]
    for group in A.through:
        found += leaving[group.leaves]
    return found


def _by_peer(parcel: torch.Tensor, hop: Hop) -> list[torch.Tensor]:
    spans = zip(hop.starts, hop.b_in, strict=False)
    return [parcel[start : start + count] for start, count in spans]
