"""Asynchronous sparse averages of one replica: started in every step, used some steps later.

This is the state of a replica alone: weights, what it has given to means that are under way, and
the moving average. Whoever owns it says how a mean over replicas is started, over a network
(:mod:`dtoolkit.training.mesh.replicas`) or within a process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dtoolkit.training.mesh.merging import Rule, decay_at, merged, moved
from dtoolkit.training.mesh.partitions import Parts

__all__ = ["Averages", "Start"]

Start = Callable[[torch.Tensor], Callable[[], torch.Tensor]]
"""Starts the mean of a flat tensor over all replicas; what it returns waits and gives it."""


@dataclass
class _UnderWay:
    """An average that was started.

    Attributes
    ----------
    step : int
        When.
    places : int64 tensor
        Elements.
    then : torch.Tensor
        What this replica has given.
    mean : callable
    """

    step: int
    places: torch.Tensor
    then: torch.Tensor
    mean: Callable[[], torch.Tensor]


class Averages:
    """Averages of flat weights.

    Parameters
    ----------
    weights : torch.Tensor
        Flat; changed in place.
    tensors : sequence of (str, int)
        Name and elements of the tensors in it.
    rule : Rule
    seed : int
    steps : int
        Over which the moving average's decay changes.
    start : callable
        Starts a mean over the replicas (:data:`Start`).
    """

    def __init__(
        self,
        weights: torch.Tensor,
        tensors: Sequence[tuple[str, int]],
        rule: Rule,
        *,
        seed: int,
        steps: int,
        start: Start,
    ) -> None:
        self._weights, self._rule, self._steps, self._start = weights, rule, steps, start
        self._parts = Parts(tensors, rule.parts, seed=seed, fixed=rule.fixed)
        self._queue: deque[_UnderWay] = deque()
        self._average: torch.Tensor | None = None
        if rule.kind == "ema":
            self._average = torch.zeros_like(weights)

    def begin(self, step: int) -> None:
        """Start the average of a step, with the weights as they are after its update."""
        places = self._parts.at(step).to(self._weights.device)
        then = self._weights[places]
        self._queue.append(_UnderWay(step, places, then, self._start(then.clone())))

    def end(self, step: int) -> None:
        """Use the average that was started `delay` steps ago, if there was one."""
        if not self._queue or self._queue[0].step > step - self._rule.delay:
            return
        one = self._queue.popleft()
        now, average = self._weights[one.places], None
        if self._average is not None:
            average = moved(
                self._average[one.places],
                now,
                one.then,
                decay=decay_at(step, self._steps, self._rule),
                first=one.step < self._rule.parts,  # the first round visits each element once
            )
            self._average[one.places] = average
        self._weights[one.places] = merged(self._rule, one.mean(), now, one.then, average)

    def own_state(self) -> dict[str, Any]:
        """What is under way, its means waited for, and the moving average."""
        queue = [{"step": o.step, "then": o.then, "mean": o.mean()} for o in self._queue]
        own: dict[str, Any] = {"queue": queue}
        return own if self._average is None else {**own, "average": self._average}

    def restore(self, own: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` gave."""
        device = self._weights.device
        self._queue = deque(
            _UnderWay(
                int(one["step"]),
                self._parts.at(int(one["step"])).to(device),
                one["then"].to(device),
                _known(one["mean"].to(device)),
            )
            for one in own["queue"]
        )
        if self._average is not None:
            self._average.copy_(own["average"])


def _known(mean: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: mean
