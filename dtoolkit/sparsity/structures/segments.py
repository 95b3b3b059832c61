"""Segments: the weights from one input to a tile of outputs, and the choice among them."""

from __future__ import annotations

import torch
from torch.nn import functional

__all__ = ["fill", "norms", "segments", "spread_segments"]

_MODULUS = 0xFFFFFFFF


def segments(mask: torch.Tensor, width: int) -> torch.Tensor:
    """Number of marked weights in each segment.

    Parameters
    ----------
    mask : bool tensor, outputs x inputs
    width : int

    Returns
    -------
    int64 tensor, tiles x inputs
        The last tile may be narrower.
    """
    return _cut(mask, width).sum(1)


def norms(scores: torch.Tensor, width: int) -> torch.Tensor:
    """Score of each segment.

    Parameters
    ----------
    scores : tensor, outputs x inputs
    width : int

    Returns
    -------
    tensor, tiles x inputs
        The l2 norm over the number of outputs, in float32 or wider; of integers, which are random
        numbers, the sum modulo 2^32.
    """
    if not scores.is_floating_point():
        return _cut(scores.to(torch.int64), width).sum(1) & _MODULUS
    wide = scores if scores.dtype == torch.float64 else scores.float()
    # Scaled by the largest: squares of small scores would all become 0.
    peak = wide.abs().amax() if wide.numel() else wide.new_ones(())
    scale = torch.where((peak > 0) & peak.isfinite(), peak, torch.ones_like(peak))
    squares = _cut(wide / scale, width).square().sum(1)
    lengths = _cut(torch.ones_like(wide[:, :1]), width).sum(1)
    return squares.sqrt() * scale / lengths


def fill(
    scores: torch.Tensor, sizes: torch.Tensor, wanted: int, *, below: bool, least: int = 0
) -> torch.Tensor:
    """Mark the best segments until together they hold what is wanted.

    Parameters
    ----------
    scores, sizes : tensor, tiles x inputs
        Those of size 0 are no candidates. Of equal scores the first in row-major order come first.
    wanted : int
        Weights.
    below : bool
        Whether no more than that may be held; if not, what comes nearest.
    least : int
        Segments to mark in any case.

    Returns
    -------
    bool tensor, tiles x inputs
    """
    places = sizes.reshape(-1).nonzero().view(-1)
    order = places[scores.reshape(-1)[places].argsort(descending=True, stable=True)]
    held = functional.pad(sizes.reshape(-1)[order].cumsum(0), (1, 0))
    count = int((held <= wanted).sum()) - 1 if below else int((held - wanted).abs().argmin())
    marked = torch.zeros(sizes.numel(), dtype=torch.bool, device=sizes.device)
    marked[order[: max(count, least)]] = True
    return marked.view(sizes.shape)


def spread_segments(
    chosen: torch.Tensor, outputs: torch.Tensor, width: int, rows: int
) -> torch.Tensor:
    """Mask of a weight, from that of its segments.

    Parameters
    ----------
    chosen : bool tensor, tiles x inputs
    outputs : int64 tensor
        Those that tiles are made of, one after the other.
    width, rows : int
        Outputs of a tile, and of the weight.

    Returns
    -------
    bool tensor, rows x inputs
    """
    mask = torch.zeros(rows, chosen.shape[1], dtype=torch.bool, device=chosen.device)
    mask[outputs] = chosen.repeat_interleave(width, 0)[: len(outputs)]
    return mask


def _cut(matrix: torch.Tensor, width: int) -> torch.Tensor:
    """Tiles x width x inputs, the last tile filled up with 0."""
    missing = -matrix.shape[0] % width
    if missing:
        matrix = functional.pad(matrix, (0, 0, 0, missing))
    return matrix.reshape(-1, width, matrix.shape[1])
