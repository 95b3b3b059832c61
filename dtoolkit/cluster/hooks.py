"""What is told of one rank's part of a launch while it runs: to instruments, and as signs of life.

There is one :class:`Hooks` for each launch on each worker, and none at all where nobody asked: the
communicator, the context and the loop around them look whether there is one, and that is the whole
cost.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Hooks", "OperationHook", "StateHook", "StepHook"]

StepHook = Callable[[int], object]
OperationHook = Callable[[str, str, int], object]
StateHook = Callable[[str, Callable[[], Any]], object]


class Hooks:
    """Callbacks of one rank in one launch, and a count of its signs of life.

    Attributes
    ----------
    signs : int
        Grows with everything that the rank does: what is counted does not matter, that it has
        changed does.
    steps, operations, states, rebuilds : list of callable
        See :class:`~dtoolkit.cluster.instrument.Site`, which fills them.
    """

    def __init__(self) -> None:
        self.signs = 0
        self.steps: list[StepHook] = []
        self.operations: list[OperationHook] = []
        self.states: list[StateHook] = []
        self.rebuilds: list[Callable[[], object]] = []
        self._begun: dict[str, Iterator[int]] = {}
        self._timers: list[threading.Timer] = []
        self._over = False

    def beat(self) -> None:
        """The rank is alive."""
        self.signs += 1

    def step(self, number: int) -> None:
        """A step begins."""
        self.signs += 1
        for callback in self.steps:
            callback(number)

    def begins(self, operation: str, phase: str) -> None:
        """An operation of the communicator is about to begin; called in its thread."""
        self.signs += 1
        number = next(self._begun.setdefault(operation, itertools.count()))
        for callback in self.operations:
            callback(operation, phase, number)

    def ended(self) -> None:
        """An operation has ended; called on any thread."""
        self.signs += 1

    def expose(self, name: str, get: Callable[[], Any]) -> None:
        """State can be looked at, and changed, here."""
        self.signs += 1
        for callback in self.states:
            callback(name, get)

    def rebuilt(self) -> None:
        """The rank goes on in another group."""
        self.signs += 1
        for callback in self.rebuilds:
            callback()

    def at(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call back after so many seconds, on a thread of its own, unless the launch is over."""
        timer = threading.Timer(seconds, callback)
        timer.name, timer.daemon = "dtoolkit-timer", True
        if not self._over:
            self._timers.append(timer)
            timer.start()

    def close(self) -> None:
        """The launch is over: no timer rings any more."""
        self._over = True
        for timer in self._timers:
            timer.cancel()
