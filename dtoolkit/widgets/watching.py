"""The workers of a run as they are now: read from the system, several times a second."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import psutil

__all__ = ["Braking", "Seat", "Watch", "last_steps", "strike"]

_SIGNALS = {"kill": signal.SIGKILL, "hang": signal.SIGSTOP, "continue": signal.SIGCONT}
_SLICE, _STOPPED = 0.1, 0.08  # seconds, and how much of them a braked process is stopped


@dataclass(frozen=True)
class Seat:
    """One worker as it was seen.

    Attributes
    ----------
    rank, pid : int
    state : str
        "alive", "slow", "hung", "dead" or "joining".
    memory : int
        Bytes that are resident; 0 of a dead one.
    step : int
        Steps that it has reported; -1 for none.
    """

    rank: int
    pid: int
    state: str = "alive"
    memory: int = 0
    step: int = -1


class Watch:
    """What was seen of the workers of one run, from its beginning.

    Parameters
    ----------
    pids : sequence of int
        Process of each rank.
    slow : iterable of int
        Ranks that are slow on purpose.

    Attributes
    ----------
    seats : list of Seat
        As they were last seen.
    spans : list of (int, str, float, float)
        Rank, state, and seconds from and to; states in a row of one rank follow each other.
    strikes : list of (int, str, float)
        Rank, what was done to it by hand, and when, in seconds.
    """

    def __init__(self, pids: list[int], slow: set[int] | None = None) -> None:
        self.began = time.perf_counter()
        self.seats = [Seat(rank, pid) for rank, pid in enumerate(pids)]
        self.spans: list[tuple[int, str, float, float]] = []
        self.strikes: list[tuple[int, str, float]] = []
        self.slow = set(slow or ())
        self._joined: dict[int, int] = {}  # rank to the step that others had when it came

    @property
    def now(self) -> float:
        """Seconds from the beginning."""
        return time.perf_counter() - self.began

    @property
    def missing(self) -> bool:
        """Whether a worker is dead, and nobody has come in its place."""
        return any(seat.state == "dead" for seat in self.seats)

    def restart(self) -> None:
        """Let the run begin now."""
        self.began = time.perf_counter()
        self.spans.clear()

    def look(self, steps: dict[int, int]) -> None:
        """Look at all workers.

        Parameters
        ----------
        steps : dict of int to int
            Rank to the steps that it has reported.
        """
        at = self.now
        for place, seat in enumerate(self.seats):
            state, memory = _state(seat.pid)
            step = max(steps.get(seat.rank, -1), seat.step if state != "dead" else -1)
            if state == "alive" and seat.rank in self._joined:
                if steps.get(seat.rank, -1) > self._joined[seat.rank]:
                    del self._joined[seat.rank]
                else:
                    state = "joining"
            if state in ("alive", "hung") and seat.rank in self.slow:
                state = "slow"
            self.seats[place] = replace(seat, state=state, memory=memory, step=step)
            self._note(seat.rank, state, at)

    def replaced(self, pids: list[int]) -> None:
        """Take in who has come in the place of dead workers."""
        most = max((seat.step for seat in self.seats), default=-1)
        for place, (seat, pid) in enumerate(zip(self.seats, pids, strict=False)):
            if pid != seat.pid:
                self._joined[seat.rank] = max(most, seat.step)
                self.seats[place] = Seat(seat.rank, pid, "joining", 0, -1)

    def finished(self) -> None:
        """Take the run to be over: who waits to join is a worker like all others."""
        self._joined.clear()
        self.slow.clear()

    def struck(self, rank: int, what: str) -> None:
        """Note what was done to a worker by hand."""
        self.strikes.append((rank, what, self.now))

    def _note(self, rank: int, state: str, at: float) -> None:
        for place in range(len(self.spans) - 1, -1, -1):
            one, was, start, _ = self.spans[place]
            if one == rank:
                self.spans[place] = (rank, was, start, at)
                if was != state:
                    self.spans.append((rank, state, at, at))
                return
        self.spans.append((rank, state, 0.0, at))


class Braking:
    """Makes a process slow for real: it is stopped for four fifths of each tenth of a second.

    Parameters
    ----------
    pid : int
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._brake, name="dtoolkit-brake", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let it go on at full speed."""
        self._over.set()
        self._thread.join(1.0)

    def _brake(self) -> None:
        try:
            while not self._over.is_set():
                os.kill(self._pid, signal.SIGSTOP)
                self._over.wait(_STOPPED)
                os.kill(self._pid, signal.SIGCONT)
                self._over.wait(_SLICE - _STOPPED)
        except ProcessLookupError:  # it has ended
            return
        finally:
            if _state(self._pid)[0] == "hung":
                os.kill(self._pid, signal.SIGCONT)


def strike(what: str, pid: int) -> None:
    """Send a worker's process a signal: "kill", "hang" or "continue".

    Raises
    ------
    ValueError
        It has ended already.
    """
    try:
        os.kill(pid, _SIGNALS[what])
    except ProcessLookupError as error:
        raise ValueError(f"process {pid} has ended already") from error


def last_steps(history: pd.DataFrame) -> dict[int, int]:
    """Rank to the steps that it has reported, of a run's history."""
    found: dict[int, int] = {}
    if not len(history):
        return found
    steps = history["step"].to_numpy()
    for name in history.columns:
        if str(name).startswith("end_"):
            known = np.flatnonzero(history[name].notna().to_numpy())
            if len(known):
                found[int(str(name)[4:])] = int(steps[known[-1]]) + 1
    return found


def _state(pid: int) -> tuple[str, int]:
    try:
        process: Any = psutil.Process(pid)
        with process.oneshot():
            status, memory = process.status(), process.memory_info().rss
    except psutil.Error:
        return "dead", 0
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return "dead", 0
    return ("hung" if status == psutil.STATUS_STOPPED else "alive"), int(memory)
