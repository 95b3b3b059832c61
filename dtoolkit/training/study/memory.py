"""The most memory that a worker's process takes while it trains, as the system tells it."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from dtoolkit.cluster.instrument import Site

__all__ = ["PeakMemory"]

_TOLD = 1.005  # a peak is told when it has grown by so much


class PeakMemory:
    """An instrument that tells how much memory ranks took at most in the steps of a launch.

    On the host that is the resident size of the worker's process above what it had when the launch
    began (Linux), on a GPU what torch had allocated there. It is looked at as a step begins: what
    comes after the last one (evaluation, the state that is captured) does not count, nor does the
    last step.

    Attributes
    ----------
    peak : dict of int to int
        Bytes by rank, on the client.
    """

    def __init__(self) -> None:
        self.peak: dict[int, int] = {}
        self._before: int | None = None
        self._site: Site | None = None

    def attach(self, site: Site) -> None:
        """See :class:`~dtoolkit.cluster.Instrument`."""
        self._site, self._told = site, 0
        self._before = _restart(site.comm.device)
        if self._before is not None:
            site.on_step(self._look)

    def heard(self, message: dict[str, Any]) -> None:
        """See :class:`~dtoolkit.cluster.Instrument`."""
        self.peak[message["rank"]] = message["bytes"]

    @property
    def most(self) -> int | None:
        """Bytes of the rank with most; None where no system told."""
        return max(self.peak.values(), default=None)

    def _look(self, step: int) -> None:
        assert self._site is not None
        assert self._before is not None
        peak = max(0, (_peak(self._site.comm.device) or 0) - self._before)
        if peak > self._told * _TOLD:
            self._told = peak
            self._site.announce({"rank": self._site.rank, "bytes": peak})


def _restart(device: torch.device) -> int | None:
    """Begin to count anew; bytes that are in use now, None where the system does not count."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    try:
        # What the allocator keeps for later would hide what is taken next.
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except (OSError, AttributeError):  # another system, or another C library
        return None
    return _status("VmRSS")


def _peak(device: torch.device) -> int | None:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return _status("VmHWM")


def _status(name: str) -> int | None:
    """A line of what Linux says of this process, in bytes."""
    with open(f"/proc/{os.getpid()}/status") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    return None
