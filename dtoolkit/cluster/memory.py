"""Memory that is free, given back to the system: several processes share a small machine."""

from __future__ import annotations

import ctypes

__all__ = ["give_back"]

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it


def give_back() -> None:
    """Return what was freed to the system; glibc keeps most of it otherwise.

    It takes some milliseconds, and what is needed again costs time: for moments in which nothing
    goes on.
    """
    if _TRIM is not None:
        _TRIM(0)
