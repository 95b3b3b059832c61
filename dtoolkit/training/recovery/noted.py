"""What the client notes while a run goes on, and the report that is made of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtoolkit.errors import CommunicationError, RankError, ReplicaMismatch, WipeOut, WorkerLost
from dtoolkit.training.records import FIELDS
from dtoolkit.training.recovery.matching import matched
from dtoolkit.training.recovery.report import Recovery, RecoveryReport

if TYPE_CHECKING:
    from dtoolkit.faults.injection import Injection
    from dtoolkit.training.state import RunState

__all__ = ["Noted", "kind_of"]

_START = FIELDS.index("start")
_CAME = "joined"


class Noted:
    """Failures that were seen and got over, by the client and by the ranks.

    Parameters
    ----------
    policy : str
    began : float
        When the run began, on the client's clock.
    injections : sequence of Injection
        What knows which faults have struck.
    """

    def __init__(self, *, policy: str, began: float, injections: Sequence[Injection] = ()) -> None:
        self._policy, self._began, self._injections = policy, began, injections
        self._guard = threading.Lock()
        self._seen: list[Recovery] = []
        self._groups: set[Any] = set()  # formed after a loss that was told of
        self._launches: dict[int, int] = {}  # which launch an entry of a restart was the end of
        self._open: int | None = None  # the entry of a restart whose first step is to come

    def take(self, event: Mapping[str, Any]) -> None:
        """Take a recovery, or the first step after one; what else a rank has logged is let pass."""
        known = "recovery" in event or "rejoined" in event
        if not known and (self._open is None or "row" not in event):
            return
        with self._guard:
            if "recovery" in event:
                self._told(event)
            elif "rejoined" in event:
                self._rejoined(event)
            else:
                self._goes_on(float(event["row"][_START]))

    def ended(self, at: float) -> None:
        """Note that the run has come through, at this time on the client's clock."""
        with self._guard:
            self._goes_on(at)

    def restarting(
        self,
        error: BaseException,
        *,
        at: float,
        reached: int,
        again: int,
        launch: int | None = None,
    ) -> None:
        """Note that the run is started again.

        Parameters
        ----------
        error : BaseException
            How it ended.
        at : float
            When, on the client's clock.
        reached, again : int
            Steps that were done, and those that it goes on from.
        launch : int, optional
            Number of the launch that ended.
        """
        kind, ranks, seen = _what(error)
        entry = Recovery(
            fault=seen,
            kind=kind,
            ranks=ranks,
            step=reached,
            detected=at - self._began,
            steps_lost=reached - again,
            steps_repeated=reached - again,
            policy=self._policy,
            how=f"started again from step {again}",
        )
        with self._guard:
            self._groups.clear()
            self._seen.append(entry)
            self._open = len(self._seen) - 1
            if launch is not None:
                self._launches[self._open] = launch

    def report(self, state: RunState | None = None) -> RecoveryReport:
        """All of it, with what was injected beside what was seen.

        Parameters
        ----------
        state : RunState, optional
            Where the run ended.
        """
        with self._guard:
            seen, launches = list(self._seen), dict(self._launches)
        fired = (one for injection in self._injections for one in injection.fired)
        struck = (one for one in fired if one.time >= self._began)
        order = matched(seen, struck, began=self._began, policy=self._policy, launches=launches)
        left = [str(fault) for injection in self._injections for fault in injection.left()]
        return RecoveryReport(order, policy=self._policy, state=state, never_fired=left)

    def _told(self, event: Mapping[str, Any]) -> None:
        """Take what ranks did by themselves; who tells of it may not be the only one."""
        group = event.get("group")
        if group is None or group not in self._groups:
            self._seen.append(_told(event, self._policy, self._began))
            self._groups.add(group)

    def _goes_on(self, at: float) -> None:
        """The run that was started again goes on."""
        if self._open is not None:
            entry = self._seen[self._open]
            self._seen[self._open] = replace(entry, recovered=at - self._began)
            self._open = None

    def _rejoined(self, event: Mapping[str, Any]) -> None:
        """Newcomers have taken the places of those that were lost."""
        for place, entry in reversed(list(enumerate(self._seen))):
            if entry.kind in ("lost", "hung") and _CAME not in entry.how:
                words = f"; newcomers {_CAME} before step {event['at']}"
                self._seen[place] = replace(
                    entry,
                    how=entry.how + words,
                    bytes_moved=entry.bytes_moved + int(event["bytes"]),
                )
                return


def _told(event: Mapping[str, Any], policy: str, began: float) -> Recovery:
    """The entry of what ranks did by themselves."""
    kind, ranks = str(event["recovery"]), tuple(int(rank) for rank in event["ranks"])
    who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    return Recovery(
        fault=str(event.get("seen") or f"{who} {kind}"),
        kind=kind,
        ranks=ranks,
        step=int(event["at"]),
        detected=float(event["detected"]) - began,
        recovered=float(event["recovered"]) - began,
        steps_lost=int(event.get("lost", 0)),
        steps_repeated=int(event.get("repeated", 0)),
        bytes_moved=int(event.get("bytes", 0)),
        policy=policy,
        how=str(event["how"]),
    )


def _what(error: BaseException) -> tuple[str, tuple[int, ...], str]:
    """Kind, ranks and words of how a launch ended."""
    if isinstance(error, WorkerLost):
        hung = bool(getattr(error, "hung", ()))
        what = "hung" if hung else "lost"
        return what, error.ranks, f"rank {', '.join(map(str, error.ranks))} {what}"
    if isinstance(error, WipeOut):
        return "wiped out", (), error.why
    if not isinstance(error, RankError):
        return "connection", (), _line(str(error))
    cause, text = error.__cause__, f"rank {error.rank}: {_line(error.cause)}"
    if isinstance(cause, CommunicationError):
        return "connection", (), text
    if isinstance(cause, ReplicaMismatch):
        return "differs", cause.ranks, _line(str(cause))
    if isinstance(cause, WipeOut):
        return "wiped out", (), cause.why
    return kind_of(cause, error.cause), (error.rank,), text


def kind_of(error: BaseException | None, text: str) -> str:
    """Kind of what a rank raised."""
    if isinstance(error, FloatingPointError):
        return "not finite"
    if isinstance(error, MemoryError) or any(words in text for words in _MEMORY):
        return "memory"
    return "raised"


_MEMORY = ("MemoryError", "OutOfMemory", "out of memory", "allocate memory")


def _line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""
