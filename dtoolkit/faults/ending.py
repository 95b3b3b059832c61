"""Processes that end, stop, or raise: real signals and real exceptions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from dtoolkit.faults.fault import Fault, Moment

if TYPE_CHECKING:
    from dtoolkit.cluster.instrument import Site

__all__ = ["Hang", "Kill", "Raise"]


@dataclass(frozen=True, repr=False)
class Kill(Fault):
    """Kill a rank's worker: it sends itself SIGKILL, and nothing of it runs after that.

    Parameters
    ----------
    rank : int
    at_step, where, at_operation, after
        The point: see :class:`~dtoolkit.faults.Fault`.

    Examples
    --------
    >>> from dtoolkit.faults import Kill
    >>> print(Kill(rank=2, at_step=5))
    kill rank 2 at step 5
    """

    rank: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("rank", self._whole("rank"))

    def words(self) -> str:
        """What happens, in words."""
        return f"kill rank {self.rank}"

    def strike(self, site: Site, moment: Moment) -> None:
        """End this process."""
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, repr=False)
class Hang(Fault):
    """Freeze a rank's worker: its whole process is stopped (SIGSTOP), connections stay open.

    Nobody hears of it: the others wait. A ``deadline=`` of a launch finds it, and ends it.

    Parameters
    ----------
    rank : int
    seconds : float, optional
        Continue after so long (SIGCONT), where nobody has ended the process before; never by
        default.
    at_step, where, at_operation, after
        The point: see :class:`~dtoolkit.faults.Fault`.
    """

    rank: int
    _: KW_ONLY
    seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("rank", self._whole("rank"))
        if self.seconds is not None:
            self._number("seconds")

    def words(self) -> str:
        """What happens, in words."""
        long = "" if self.seconds is None else f" for {self.seconds:g} s"
        return f"hang rank {self.rank}{long}"

    def strike(self, site: Site, moment: Moment) -> None:
        """Stop this process; returns when it goes on."""
        if self.seconds is None:
            _stop()
            return
        # Only another process can continue a stopped one. It ends by itself with this one, whose
        # end of the pipe the system closes; until then it goes on, since a short time may be over
        # before the stop has come.
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WAKE, str(os.getpid()), str(self.seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as waker:
            assert waker.stdout is not None
            waker.stdout.readline()  # it is there: its seconds begin now
            _stop()


def _stop() -> None:
    """Stop the process here: a signal to all of it would let this thread run on for a moment."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


_WAKE = """
import os, select, signal, sys
print(flush=True)
seconds = float(sys.argv[2])
while not select.select([0], [], [], seconds)[0]:
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    seconds = 0.02
"""


@dataclass(frozen=True, repr=False)
class Raise(Fault):
    """Raise an exception on a rank, in its function.

    With `after`, it is raised as the function comes to its next step, operation or state: nothing
    can be raised in the middle of a computation.

    Parameters
    ----------
    rank : int
    error : type of Exception
        Called with the message.
    message : str, optional
        By default the fault in words.
    at_step, where, at_operation, after
        The point: see :class:`~dtoolkit.faults.Fault`.
    """

    in_thread: ClassVar[bool] = True

    rank: int
    _: KW_ONLY
    error: type[Exception] = RuntimeError
    message: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("rank", self._whole("rank"))
        if not (isinstance(self.error, type) and issubclass(self.error, Exception)):
            raise TypeError(f"Raise: error={self.error!r} is no class of exceptions")
        if self.message is not None and not isinstance(self.message, str):
            raise TypeError(f"Raise: message={self.message!r} is no text")

    def words(self) -> str:
        """What happens, in words."""
        return f"raise {self.error.__name__} on rank {self.rank}"

    def strike(self, site: Site, moment: Moment) -> None:
        """Raise it."""
        raise self.error(f"injected: {self}" if self.message is None else self.message)
