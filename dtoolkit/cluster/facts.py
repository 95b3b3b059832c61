"""What client and workers find out about the process they run in."""

from __future__ import annotations

import platform
from typing import Any

import torch

__all__ = ["boot_id", "nbytes_of", "versions"]


def nbytes_of(value: Any) -> int:
    """Bytes of the tensors and arrays in an object, by its own word where it has one."""
    own = getattr(value, "nbytes", None)
    if isinstance(own, int):
        return own
    if isinstance(value, dict):
        return sum(map(nbytes_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(nbytes_of, value))
    return 0


def versions() -> dict[str, str]:
    """Versions that client and workers must share."""
    import dtoolkit

    python = platform.python_version_tuple()
    return {
        "python": f"{python[0]}.{python[1]}",
        "torch": torch.__version__.split("+")[0],
        "dtoolkit": dtoolkit.__version__,
    }


def boot_id() -> str:
    """What tells hosts apart: equal on processes that share a monotonic clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
