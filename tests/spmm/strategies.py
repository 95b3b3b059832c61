"""Every strategy, with what it needs beside its name, for any number of ranks."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

FLAT = ("oblivious", "column", "row", "joint")
OVER_NODES = ("hier-column", "hier-row", "hier-joint", "node-pair")
OVER_GRID = ("1.5d", "2d")
EVERY = (*FLAT, *OVER_NODES, *OVER_GRID)


def options(strategy: str, parts: int, nodes: Any = None) -> dict[str, Any]:
    """Arguments of ``dt.plan``; nodes of two ranks by default, 1.5d where there is no square."""
    if strategy == "2d" and isqrt(parts) ** 2 != parts:
        return {"strategy": "1.5d", "replication": parts}
    if strategy in OVER_NODES:
        return {"strategy": strategy, "nodes": np.arange(parts) // 2 if nodes is None else nodes}
    return {"strategy": strategy}
