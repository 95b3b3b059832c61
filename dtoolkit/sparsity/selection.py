"""The largest of many numbers: exactly as many as asked, ties by index, tensors of any size.

A threshold alone keeps too many where values are equal, and the usual tools have limits:
``torch.quantile`` stops at 16 million elements. Here numbers become integers of the same order,
the k-th largest is found some bits at a time by counting (a radix selection), and of those equal to
it the first by index are taken. Only a piece of the data is looked at once, so that memory stays
small, and all positions are 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

__all__ = ["largest", "largest_of_all", "ranks"]

_PIECE = 1 << 17  # what is made of so many elements stays in the cache


def largest(values: torch.Tensor, count: int, among: torch.Tensor | None = None) -> torch.Tensor:
    """Mark the `count` largest values.

    Parameters
    ----------
    values : tensor of any shape; floating or integer
        NaN is not ordered: whoever calls has checked for it.
    count : int
        From 0 to the number of candidates.
    among : bool tensor of that shape, optional
        The candidates; default: all.

    Returns
    -------
    bool tensor, shape of `values`
        Exactly `count` are True. Of equal values those with the lowest index (in row-major order)
        come first; 0.0 and -0.0 are equal.

    Raises
    ------
    ValueError
        There are fewer candidates than asked for.
    """
    return largest_of_all([values], count, None if among is None else [among])[0]


def largest_of_all(
    values: Sequence[torch.Tensor], count: int, among: Sequence[torch.Tensor] | None = None
) -> list[torch.Tensor]:
    """Mark the `count` largest values of several tensors of one dtype, as if they were one.

    Parameters
    ----------
    values : sequence of tensors
    count : int
    among : sequence of bool tensors, optional

    Returns
    -------
    list of bool tensor
        Together exactly `count` are True; of equal values those of earlier tensors come first.

    Raises
    ------
    ValueError
        There are fewer candidates than asked for.
    """
    candidates: list[torch.Tensor | None] = [None] * len(values) if among is None else [*among]
    there = sum(
        value.numel() if mask is None else int(mask.sum())
        for value, mask in zip(values, candidates, strict=True)
    )
    if not 0 <= count <= there:
        raise ValueError(f"count={count}: wanted 0 to {there}, the number of candidates")
    if count == there:
        return [
            torch.ones_like(value, dtype=torch.bool) if mask is None else mask.clone()
            for value, mask in zip(values, candidates, strict=True)
        ]
    marked = [torch.zeros(v.shape, dtype=torch.bool, device=v.device) for v in values]
    if count == 0:
        return marked
    threshold, equal = _threshold(values, candidates, count, there)
    for value, mask, out in zip(values, candidates, marked, strict=True):
        flat = out.view(-1)
        for start, keys, allowed in _pieces(value, mask):
            piece = keys > threshold
            tied = keys == threshold
            if allowed is not None:
                piece &= allowed
                tied &= allowed
            if equal:
                first = tied.nonzero().view(-1)[:equal]
                piece[first] = True
                equal -= len(first)
            flat[start : start + len(keys)] = piece
    return marked


def ranks(values: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    """Place of each value within its row: 0 for the largest, ties by index, non-candidates last.

    Parameters
    ----------
    values : tensor, shape (rows, columns)
    among : bool tensor of that shape

    Returns
    -------
    int64 tensor of that shape
    """
    keys = _ordered(values).masked_fill_(~among, torch.iinfo(torch.int64).min)
    order = keys.argsort(dim=1, descending=True, stable=True)
    places = torch.arange(values.shape[1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places)


def _threshold(
    values: Sequence[torch.Tensor],
    candidates: Sequence[torch.Tensor | None],
    count: int,
    there: int,
) -> tuple[int, int]:
    """The count-th largest key, and how many of those equal to it are to be taken."""
    width = 64 if values[0].dtype in (torch.float64, torch.int64) else 32
    # Few passes over what is large; small tables for what is small.
    digit = 16 if sum(value.numel() for value in values) > _PIECE else 8
    middle, last = 1 << (digit - 1), (1 << digit) - 1
    prefix, left = 0, count
    for shift in range(width - digit, -1, -digit):
        top = shift == width - digit
        counts = torch.zeros(1 << digit, dtype=torch.int64, device=values[0].device)
        for value, mask in zip(values, candidates, strict=True):
            for _, keys, allowed in _pieces(value, mask):
                if top:
                    places = (keys >> shift) + middle
                    if allowed is not None:  # 0 stands for the others too, and is mended below
                        places *= allowed
                else:
                    here = keys >> (shift + digit) == prefix
                    places = keys[here if allowed is None else here & allowed] >> shift & last
                counts += torch.bincount(places, minlength=1 << digit).to(counts.device)
        if top:
            counts[0] -= int(counts.sum()) - there
        down = counts.flip(0).cumsum(0)
        place = int((down < left).sum())
        left -= int(down[place - 1]) if place else 0
        prefix = last - place - middle if top else prefix << digit | (last - place)
    return prefix, left


def _pieces(
    values: torch.Tensor, among: torch.Tensor | None
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor | None]]:
    """Start, keys and candidates of one piece after the other, in row-major order."""
    flat = values.reshape(-1)
    allowed = None if among is None else among.reshape(-1)
    for start in range(0, flat.numel(), _PIECE):
        stop = start + _PIECE
        yield start, _ordered(flat[start:stop]), None if allowed is None else allowed[start:stop]


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """int64 numbers in the order of the values; 32 bits wide, or 64 for float64 and int64."""
    if not values.is_floating_point():
        return values.to(torch.int64)
    if values.dtype == torch.float64:
        bits = (values + 0.0).view(torch.int64)
        return bits ^ (bits >> 63 & 0x7FFFFFFFFFFFFFFF)
    # Adding 0 makes -0.0 the same as 0.0; what is narrower than float32 converts exactly.
    bits = (values.float() + 0.0).view(torch.int32).to(torch.int64)
    return bits ^ (bits >> 31 & 0x7FFFFFFF)
