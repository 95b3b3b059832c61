"""The two pipelines: with a flush after each update, or without any."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from dtoolkit.training.mesh.order import delay_of, one_forward_one_backward
from dtoolkit.training.mesh.stage import Stage
from dtoolkit.training.mesh.wire import Coming, Wire

__all__ = ["Asynchronous", "Pipeline", "Synchronous"]


class Pipeline(ABC):
    """One stage's work in the steps of a run; it leaves a gradient a step.

    Parameters
    ----------
    stage : Stage
    wire : Wire
    share : callable
        ``share(step)`` gives the samples of each micro-batch of this copy of the model, int64.
    weight : callable
        ``weight(step)`` is what the sum of a step's losses is multiplied by.
    """

    def __init__(
        self,
        stage: Stage,
        wire: Wire,
        share: Callable[[int], list[torch.Tensor]],
        weight: Callable[[int], float],
    ) -> None:
        self._stage, self._wire, self._share, self._weight = stage, wire, share, weight

    @abstractmethod
    def step(self, step: int) -> int:
        """Compute the gradient of a step; by how many updates its weights are behind."""

    def own_state(self) -> dict[str, Any]:
        """What this stage holds between two steps."""
        return {"stage": self._stage.own_state()}

    def restore(self, own: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` gave."""
        self._stage.restore(own["stage"], lambda step, micro: self._share(step)[micro])

    def _through(
        self, key: tuple[int, int], ids: torch.Tensor, coming: Coming | None, weight: float
    ) -> None:
        """A forward, and on the last stage its backward."""
        stage = self._stage
        hidden = None if coming is None else coming.take().to(stage.weights.device)
        if not stage.last:
            self._wire.send_activation(stage.forward(key, ids, hidden))
            return
        before = stage.finish(key, ids, hidden, weight=weight)
        if before is not None:
            self._wire.send_gradient(before)

    def _back(self, coming: Coming) -> None:
        before = self._stage.backward(coming.take().to(self._stage.weights.device))
        if before is not None:
            self._wire.send_gradient(before)


class Synchronous(Pipeline):
    """Micro-batches of a step one after the other (1F1B), then the pipeline is empty.

    Equal to the model in one piece, to rounding.
    """

    def step(self, step: int) -> int:
        """See :meth:`Pipeline.step`."""
        stage, wire = self._stage, self._wire
        micros = [(micro, ids) for micro, ids in enumerate(self._share(step)) if len(ids)]
        forward = deque(wire.expect_activation() for _ in micros) if not stage.first else None
        back = deque(wire.expect_gradient() for _ in micros) if not stage.last else None
        for work, place in one_forward_one_backward(stage.number, stage.stages, len(micros)):
            if work == "forward":
                micro, ids = micros[place]
                coming = None if forward is None else forward.popleft()
                self._through((step, micro), ids, coming, self._weight(step))
            elif back is not None:
                self._back(back.popleft())
        return 0


class Asynchronous(Pipeline):
    """One micro-batch a step, and no flush: forwards run ahead by the stage's delay.

    Also at the end of a run: a run that stops and goes on does what one does that goes on at once.
    The message that a stage has not read where a run stops is a part of its state.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._delay = delay_of(self._stage.number, self._stage.stages)
        self._ahead = 0  # steps whose forward is done
        self._coming: Coming | None = None  # what the next forward takes

    def step(self, step: int) -> int:
        """See :meth:`Pipeline.step`."""
        stage = self._stage
        gradient = None
        if not stage.last and self._has(step):
            gradient = self._wire.expect_gradient()
        while self._ahead <= step + self._delay:
            self._forward(self._ahead)
            self._ahead += 1
        if gradient is not None:
            self._back(gradient)
        return min(step, self._delay)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Pipeline.own_state`."""
        unread = None if self._coming is None else self._coming.take()
        return {**super().own_state(), "ahead": self._ahead, "unread": unread}

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Pipeline.restore`."""
        super().restore(own)
        self._ahead = int(own["ahead"])
        unread = own["unread"]
        self._coming = None if unread is None else Coming(None, None, unread)

    def _forward(self, step: int) -> None:
        if self._has(step):
            coming, self._coming = self._coming, None
            if coming is None and not self._stage.first:  # the very first
                coming = self._wire.expect_activation()
            self._through((step, 0), self._share(step)[0], coming, self._weight(step))
        # The next is on its way, or is sent within the same step of the stage before.
        if not self._stage.first and self._has(step + 1):
            self._coming = self._wire.expect_activation()

    def _has(self, step: int) -> bool:
        return len(self._share(step)[0]) > 0
