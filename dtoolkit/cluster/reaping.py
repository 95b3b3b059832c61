"""Processes that must not outlive this one, whatever ends it and whatever they do then."""

from __future__ import annotations

import contextlib
import subprocess
import sys

from dtoolkit.cluster import reaper

__all__ = ["Reaping"]

_PATIENCE = 10.0  # seconds until the reaper, which has nothing left to do, must have ended


class Reaping:
    """A reaper (:mod:`dtoolkit.cluster.reaper`) on a pipe that this process alone holds."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__],
            stdin=subprocess.PIPE,
            start_new_session=True,  # an interrupt of the terminal is not for it
            text=True,
        )

    def register(self, pid: int) -> None:
        """Have a process killed, should it be there when this one has ended."""
        self._say(str(pid))

    def remove(self, folder: str, *, in_use: bool = False) -> None:
        """Have a temporary folder removed, should it be there when this process has ended.

        Parameters
        ----------
        folder : str
            Its absolute path.
        in_use : bool
            It belongs to this process, not to what :meth:`end` ends, and stays after that.
        """
        self._say(f"?{folder}" if in_use else folder)

    def end(self) -> None:
        """Kill what is left of the registered processes, remove the folders, and end."""
        with contextlib.suppress(BrokenPipeError):  # somebody has ended the reaper
            self._say(reaper.GOOD_ORDER)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=_PATIENCE)

    def _say(self, line: str) -> None:
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:
            pipe.write(f"{line}\n")
            pipe.flush()
