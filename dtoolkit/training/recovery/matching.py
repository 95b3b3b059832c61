"""Which injected fault it was that was seen: what a report says of both together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dtoolkit.faults.corrupt import Corrupt
from dtoolkit.faults.ending import Hang, Kill, Raise
from dtoolkit.faults.fault import Fault
from dtoolkit.faults.links import CutLink, SlowLink
from dtoolkit.faults.memory import OutOfMemory
from dtoolkit.training.recovery.report import Recovery

if TYPE_CHECKING:
    from dtoolkit.faults.injection import Fired

__all__ = ["matched"]

_ENDS = ("lost", "hung", "wiped out")
_CORRUPTION = ("not finite", "differs", "wiped out")


def matched(
    seen: Sequence[Recovery],
    fired: Iterable[Fired],
    *,
    began: float,
    policy: str,
    launches: Mapping[int, int] | None = None,
) -> list[Recovery]:
    """Entries of what was seen, with the faults behind them, and of faults that nobody saw.

    Parameters
    ----------
    seen : sequence of Recovery
    fired : iterable of Fired
    began : float
        When the run began, on the client's clock.
    policy : str
    launches : mapping of int to int, optional
        Places in `seen` of what ended a launch, and the numbers of those launches: other faults
        that struck in them were got over by the same restart.

    Returns
    -------
    list of Recovery
        In the order in which they were noticed, or struck.
    """
    left = sorted(fired, key=lambda one: one.time)
    order = sorted(range(len(seen)), key=lambda place: seen[place].detected or 0.0)
    entries, ended = [seen[place] for place in order], launches or {}
    causes: list[list[Fired]] = [[] for _ in entries]
    for exactly in (True, False):  # ranks are numbered anew in between: then the kind must do
        for entry, mine in zip(entries, causes, strict=True):
            room = len(entry.ranks) - len(mine) if entry.ranks else len(left)
            may_be = [one for one in left if _may_be(one, entry, began, exactly)]
            for one in may_be[: max(0, room)]:
                mine.append(one)
                left.remove(one)
    for place, mine in zip(order, causes, strict=True):
        undone = [one for one in left if _undone(one, seen[place], ended.get(place))]
        mine += undone
        left = [one for one in left if one not in undone]
    found = [
        one
        for entry, mine in zip(entries, causes, strict=True)
        for one in ([_joined(cause, entry, began) for cause in mine] or [entry])
    ]
    found += [_unnoticed(one, began, policy) for one in left]
    return sorted(found, key=lambda one: one.detected or one.injected or 0.0)


def _may_be(one: Fired, entry: Recovery, began: float, exactly: bool) -> bool:
    """Whether a fault may be what was seen."""
    if exactly and entry.ranks and one.rank not in entry.ranks:
        return False
    if entry.kind not in _kinds(one.fault):
        return False
    end = entry.detected if entry.recovered is None else entry.recovered
    return end is None or one.time - began <= end


def _undone(one: Fired, entry: Recovery, launch: int | None) -> bool:
    """Whether a fault struck in the launch that ended so, after what it was started again from."""
    again = (entry.step or 0) - entry.steps_lost
    since = one.step is None or one.step >= again  # else it may be in the checkpoint
    return one.launch == launch and since and not one.fault.lasts


def _kinds(fault: Fault) -> Sequence[str]:
    """What is seen of a fault; whatever it be of one that is not known here."""
    if isinstance(fault, OutOfMemory):
        return _ENDS if fault.kind == "kill" else ("memory", "wiped out")
    if isinstance(fault, Corrupt):
        return _CORRUPTION
    for kind, seen in _SEEN.items():
        if isinstance(fault, kind):
            return seen
    return ("lost", "hung", "raised", "memory", "not finite", "differs", "connection", "wiped out")


_SEEN: dict[type[Fault], Sequence[str]] = {
    Kill: _ENDS,
    Hang: _ENDS,
    Raise: ("raised", "memory", "not finite", "connection", "wiped out"),
    CutLink: ("connection", "wiped out", "lost"),
    SlowLink: ("hung",),
}


def _joined(one: Fired, entry: Recovery, began: float) -> Recovery:
    step, injected = entry.step if one.step is None else one.step, one.time - began
    detected = entry.detected
    if detected is not None:  # others may have been noticed before, and got over together with it
        detected = max(detected, injected)
    ranks = entry.ranks if not entry.ranks or one.rank in entry.ranks else (one.rank,)
    return replace(
        entry, fault=str(one), ranks=ranks, injected=injected, detected=detected, step=step
    )


def _unnoticed(one: Fired, began: float, policy: str) -> Recovery:
    return Recovery(
        fault=str(one),
        kind="unnoticed",
        ranks=(one.rank,),
        step=one.step,
        injected=one.time - began,
        policy=policy,
        how="nothing noticed it",
    )
