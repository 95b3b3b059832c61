"""What is kept or dropped as a whole: single weights, N of M, blocks, channels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dtoolkit.sparsity.naming import pick
from dtoolkit.sparsity.structures.base import Structure
from dtoolkit.sparsity.structures.block import Block
from dtoolkit.sparsity.structures.channel import Channel
from dtoolkit.sparsity.structures.n_of_m import NofM
from dtoolkit.sparsity.structures.unstructured import Unstructured

__all__ = ["Block", "Channel", "NofM", "Structure", "Unstructured", "as_structure"]


def as_structure(value: Any) -> Structure:
    """Make a structure of a name or an object.

    Parameters
    ----------
    value : str or Structure
        ``"unstructured"``, ``"channel"``, ``"block"`` (4 x 4) or its size such as ``"16x8"``,
        ``"2:4"`` or any N:M, ``"n:m"`` or ``":4"`` for M = 4 (any M) with N by density.

    Raises
    ------
    ValueError, TypeError
        None of these.
    """
    if isinstance(value, str):
        if pattern := re.fullmatch(r"(\d*):(\d+)", value.strip()):
            n, m = pattern.groups()
            return NofM(int(n) if n else None, int(m))
        if size := re.fullmatch(r"(?:block\W*)?(\d+)\s*[x×]\s*(\d+)", value.strip().lower()):
            return Block(int(size[1]), int(size[2]))
    also = ", a pattern such as '2:4', or the size of blocks such as '16x16'"
    return pick("structure", value, _STRUCTURES, Structure, also=also)


_STRUCTURES: dict[str, Callable[[], Structure]] = {
    "unstructured": Unstructured,
    "block": Block,
    "channel": Channel,
    "n:m": lambda: NofM(None, 4),
}
