"""What is kept or dropped as a whole: single weights, N of M, blocks, channels, tiles."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dtoolkit.sparsity.naming import pick
from dtoolkit.sparsity.structures.base import Structure
from dtoolkit.sparsity.structures.block import Block
from dtoolkit.sparsity.structures.channel import Channel
from dtoolkit.sparsity.structures.n_of_m import NofM
from dtoolkit.sparsity.structures.tile_wise import TEW, TW1, TW2, VW, TileWise
from dtoolkit.sparsity.structures.unstructured import Unstructured

__all__ = [
    "TEW",
    "TW1",
    "TW2",
    "VW",
    "Block",
    "Channel",
    "NofM",
    "Structure",
    "TileWise",
    "Unstructured",
    "as_structure",
]


def as_structure(value: Any) -> Structure:
    """Make a structure of a name or an object.

    Parameters
    ----------
    value : str or Structure
        ``"unstructured"``, ``"channel"``, ``"block"`` (4 x 4) or its size such as ``"16x8"``,
        ``"2:4"`` or any N:M, ``"n:m"`` or ``":4"`` for M = 4 (any M) with N by density,
        ``"tile-wise"`` (``"tw2"``), ``"tw1"``, ``"tew"``, ``"vw"``, or those with their width as in
        ``"tw1-64"`` (128 outputs a tile; for ``"vw"`` 16 inputs a vector).

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
        if tiles := re.fullmatch(r"(tw1|tw2|tew|vw)\W*(\d+)", value.strip().lower()):
            return _TILES[tiles[1]](int(tiles[2]))
    also = (
        ", a pattern such as '2:4', the size of blocks such as '16x16', or tiles such as 'tw1-64'"
    )
    return pick("structure", value, _STRUCTURES, Structure, also=also)


_TILES: dict[str, Callable[..., Structure]] = {"tw1": TW1, "tw2": TW2, "tew": TEW, "vw": VW}
_STRUCTURES: dict[str, Callable[[], Structure]] = {
    "unstructured": Unstructured,
    "block": Block,
    "channel": Channel,
    "n:m": lambda: NofM(None, 4),
    "tile wise": TileWise,
    **_TILES,
}
