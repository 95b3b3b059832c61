"""The faults of a list on one rank in one launch: when which of them strikes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.faults.fault import Fault, Moment

if TYPE_CHECKING:
    from dtoolkit.cluster.instrument import Site

__all__ = ["Striker"]


class Striker:
    """Holds each moment of a rank against the faults that wait, and lets those strike that are due.

    Ranks may get other numbers when a group is formed again: each rank knows all faults, and looks
    at its number of now.

    Parameters
    ----------
    name : str
        Of the injection.
    faults : mapping
        Number in the list to fault: those that have not fired, and those that last.
    began : float or None
        When the launch began, on the client's clock, where this rank has entered it later; None
        where nobody knows, or where it was there from the beginning.
    site : Site
    """

    def __init__(
        self, name: str, faults: Mapping[int, Fault], began: float | None, site: Site
    ) -> None:
        self._name = name
        self._site = site
        self._began = began
        self._waiting = dict(faults)
        self._lasting: dict[int, tuple[Fault, float]] = {}  # and since when
        self._overdue: set[int] = set()  # their time has come, and no moment of their thread
        self._step: int | None = None
        self._untouched = False  # nothing has been exchanged in this step
        self._guard = threading.RLock()  # timers and operations come from several threads

    def begin(self) -> None:
        """Watch the rank from now on; faults of the beginning strike here."""
        site = self._site
        site.on_step(self._stepped)
        site.on_operation(self._operated)
        site.on_state(self._exposed)
        site.on_rebuild(self._moved)
        self._set_timers()

    # ----------------------------------------------------------------------- what the rank tells

    def _stepped(self, step: int) -> None:
        self._step, self._untouched = step, True
        now = self._site.clock()
        for number, (fault, since) in tuple(self._lasting.items()):
            if not fault.holds(step, now - since):
                self._end(number)
        self._meet(Moment("step", step))

    def _operated(self, operation: str, phase: str, number: int) -> None:
        first, self._untouched = self._untouched, False
        self._meet(Moment("operation", self._step, operation, number, first))

    def _exposed(self, name: str, get: Callable[[], Mapping[str, torch.Tensor]]) -> None:
        self._meet(Moment("state", self._step, name, tensors=get))

    def _moved(self) -> None:
        """The rank is in another group: what lasts is laid on that, or waits for its rank again."""
        with self._guard:
            for number, (fault, _) in tuple(self._lasting.items()):
                if fault.rank == self._site.rank:
                    fault.strike(self._site, Moment("step", self._step))
                else:
                    del self._lasting[number]
                    self._waiting[number] = fault

    # ------------------------------------------------------------------------------- striking

    def _set_timers(self) -> None:
        site = self._site
        if site.joined and self._began is None:  # nobody knows which times have passed
            for number, fault in tuple(self._waiting.items()):
                if fault.after is not None and not fault.lasts:
                    del self._waiting[number]
        began = site.started if self._began is None else self._began
        for after in sorted({f.after for f in self._waiting.values() if f.after is not None}):
            left = began + after - site.clock()
            if left > 0:
                site.at(left, partial(self._meet, Moment("time", seconds=after)))
            else:
                self._meet(Moment("time", seconds=after), ago=-left)

    def _meet(self, moment: Moment, *, ago: float = 0.0) -> None:
        """Let those faults strike whose moment this is, or was so many seconds ago."""
        rank = self._site.rank
        for number, fault in tuple(self._waiting.items()):
            if fault.rank != rank or not self._is_due(number, fault, moment):
                continue
            if ago and self._site.joined and not (fault.lasts and fault.holds(None, ago)):
                continue  # it was its predecessor's, or nobody's
            if fault.in_thread and moment.kind == "time" and not ago:
                self._overdue.add(number)
            else:
                self._strike(number, fault, moment)

    def _is_due(self, number: int, fault: Fault, moment: Moment) -> bool:
        if number in self._overdue:
            return moment.kind != "time"
        return fault.due(moment)

    def _strike(self, number: int, fault: Fault, moment: Moment) -> None:
        detail = fault.detail(self._site, moment)
        with self._guard:
            if self._waiting.pop(number, None) is None:  # another thread was first
                return
        # Others may have had this rank, or this step, before: the cluster knows.
        first = self._site.claim(f"{self._name}/{number}")
        if not (first or fault.lasts):  # of what lasts every launch tells
            return
        self._site.announce(self._message(number, moment) | {"detail": detail})
        if fault.lasts:
            with self._guard:
                self._lasting[number] = (fault, self._site.clock())
            if fault.span is not None:
                self._site.at(fault.span, partial(self._end, number))
        fault.strike(self._site, moment)

    def _end(self, number: int) -> None:
        """End a fault that lasts; it may begin again, where a step is repeated."""
        with self._guard:
            fault, _ = self._lasting.pop(number, (None, 0.0))
            if fault is not None:
                self._waiting[number] = fault
                fault.end(self._site)

    def _message(self, number: int, moment: Moment) -> dict[str, Any]:
        site = self._site
        return {
            "injection": self._name,
            "fault": number,
            "rank": site.rank,
            "launch": site.launch,
            "began": site.started if self._began is None else self._began,
            "time": site.clock(),
            "step": self._step,
            "operation": moment.name if moment.kind == "operation" else "",
        }
