"""Random scores that depend on seed, name and step: the same on every process, without traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dtoolkit.philox import philox, seed_key

__all__ = ["draw"]

_AT_ONCE = 1 << 15  # counters that stay in the cache through all rounds
_LOW = 0xFFFFFFFF


def draw(
    shape: Sequence[int],
    *,
    seed: int,
    name: str,
    step: int,
    purpose: str,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Uniform random integers, to be ranked.

    Parameters
    ----------
    shape : sequence of int
    seed, name, step, purpose : int, str, int, str
        What the numbers depend on, beside the position: Philox 4x32-10 under a key that a stable
        hash makes of them. No process id, worker count or hash seed of Python comes in.
    device : torch.device or str

    Returns
    -------
    int32 tensor of that shape
        Equal on every device, to the bit.
    """
    key = seed_key(seed, name, str(step), purpose, domain="dtoolkit.sparsity")
    count = math.prod(shape)
    numbers = torch.empty(count, dtype=torch.int32, device=device)
    for start in range(0, -(-count // 4), _AT_ONCE):
        counter = torch.arange(start, min(start + _AT_ONCE, -(-count // 4)), device=device)
        words = [counter & _LOW, counter >> 32, torch.zeros_like(counter)]
        words.append(torch.zeros_like(counter))
        made = torch.stack(philox(words, key), dim=1).view(-1) - (1 << 31)
        piece = numbers[4 * start : 4 * start + len(made)]
        piece.copy_(made[: len(piece)])
    return numbers.view(*shape)
