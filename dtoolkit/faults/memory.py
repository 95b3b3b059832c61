"""Memory that runs out: the allocator refuses, or the kernel ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from dtoolkit.faults.fault import Fault, Moment

if TYPE_CHECKING:
    from dtoolkit.cluster.instrument import Site

__all__ = ["OutOfMemory"]

_ROOM = 256 << 20  # bytes that other threads of the process may take while the limit is low
_ASKED = 1 << 30  # bytes that are then asked for
_NOWHERE = 1 << 62  # bytes that no allocator has


@dataclass(frozen=True, repr=False)
class OutOfMemory(Fault):
    """Let a rank run out of memory.

    Parameters
    ----------
    rank : int
    kind : {"error", "kill"}
        ``"error"``: an allocation of 1 GiB on the rank's device fails, with the allocator's own
        error; on the host the limit of the process is lowered for that moment. ``"kill"``: what the
        kernel does when the machine has no memory left: SIGKILL.
    at_step, where, at_operation, after
        The point: see :class:`~dtoolkit.faults.Fault`. An error with `after` comes at the
        function's next step, operation or state.

    Notes
    -----
    The limit is that on address space (``RLIMIT_AS``), 256 MiB above what the process has; it is
    put back before the error leaves. Where a system does not enforce it (macOS), and on GPUs, more
    is asked for than any machine has.
    """

    in_thread: ClassVar[bool] = True

    rank: int
    _: KW_ONLY
    kind: str = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("rank", self._whole("rank"))
        self._one_of("kind", ("error", "kill"))

    def words(self) -> str:
        """What happens, in words."""
        if self.kind == "kill":
            return f"kill rank {self.rank} for want of memory"
        return f"refuse rank {self.rank} memory"

    def strike(self, site: Site, moment: Moment) -> None:
        """Ask for what is not there."""
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        device = site.comm.device
        if device.type == "cpu":
            with _limited(_ROOM):
                torch.empty(_ASKED, dtype=torch.uint8)
        torch.empty(_NOWHERE, dtype=torch.uint8, device=device)


@contextmanager
def _limited(room: int) -> Iterator[None]:
    """Let the process have so many bytes more of address space, where the system enforces that."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low = _address_space() + room
    try:
        if soft == resource.RLIM_INFINITY or low < soft:
            resource.setrlimit(resource.RLIMIT_AS, (low, hard))
    except (OSError, ValueError):  # there is no such limit here
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int:
    """Bytes of address space that this process has."""
    import psutil

    return int(psutil.Process().memory_info().vms)
