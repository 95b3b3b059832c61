"""The server of a parameter server: gradients come in, versions of the model go out.

It runs in the thread of a :class:`~dtoolkit.training.service.Service` on rank 0 and does what
:mod:`dtoolkit.training.serving_rule` says. The optimizer is its own; workers only compute.

A push is the gradient of the sum of a worker's losses, divided by the samples of the whole batch
that its own are a share of: pushes of a whole batch's shares, in whatever order, move the model
about as far as one synchronous step (exactly so far where they are applied together).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from dtoolkit.training.averaging import average, batch_statistics, kept_buffers
from dtoolkit.training.compression import elements
from dtoolkit.training.message import Message
from dtoolkit.training.serving_rule import (
    Action,
    Apply,
    Closed,
    Grant,
    Opened,
    Pushed,
    Serving,
    react,
)

if TYPE_CHECKING:
    from dtoolkit.training.compression import Stream
    from dtoolkit.training.replica import Replica

__all__ = ["DISMISS", "GRANT", "NOTED", "OPEN", "PUSH", "STOP", "Server", "computing"]

OPEN, STOP, PUSH = 0, 1, 2
"""What is asked: more pushes (numbers: how many); no more pushes; to take a push (numbers: samples,
samples of the batch, count of the worker's steps; tensors: gradient, empty for zeros, compressed
where there is a stream and not divided then; which parameters are used; buffers)."""

NOTED, GRANT, DISMISS = 3, 4, 5
"""What is answered: done (numbers: ranks that compute now); the model and another push; the model,
and that it is over (numbers: staleness, seconds that the push was held, learning rates; tensors:
parameters, buffers)."""


@dataclass(frozen=True)
class _Push:
    flat: torch.Tensor
    used: torch.Tensor
    buffers: dict[str, torch.Tensor]
    samples: int
    planned: int
    came: float


def computing(replica: Replica) -> Replica:
    """A replica that computes gradients on a model of its own: the given one is the server's.

    The model is the task's, made again, with the hooks that the task puts on it. Where its function
    gives the same module at each call, or one with the same parameters, it is a copy.

    Raises
    ------
    ValueError
        Such a module has hooks, which a copy would lose, or which would speak of the first.
    """
    other = copy.copy(replica)
    other.model = replica.make_model()
    held = {id(value) for value in _tensors(replica.model)}
    if other.model is replica.model or any(id(one) in held for one in _tensors(other.model)):
        if _hooked(replica.model):
            raise ValueError(
                "task.model() gave the same module twice (or one with the same parameters), with "
                "hooks, which a copy would lose, and a parameter server needs two models: wanted "
                "a function that makes a new module, and its hooks, at each call"
            )
        other.model = copy.deepcopy(replica.model)
    other.model.load_state_dict(replica.model.state_dict())
    other.parameters = [
        (name, value) for name, value in other.model.named_parameters() if value.requires_grad
    ]
    return other


class Server:
    """What the thread does.

    Parameters
    ----------
    replica : Replica
        Its model, optimizer and schedule are the server's while workers compute.
    state : Serving
        Where the rule begins.
    members : tuple of int
        Ranks that push.
    stream : Stream or None
        What pushes are compressed by.

    Attributes
    ----------
    state : Serving
    staleness : int
        The largest so far.
    """

    def __init__(
        self,
        replica: Replica,
        state: Serving,
        members: tuple[int, ...],
        stream: Stream | None = None,
    ) -> None:
        self.state, self.members = state, members
        self.staleness = 0
        self._replica, self._stream = replica, stream
        self._applied = state.granted
        self._pushes: dict[int, _Push] = {}
        self._told: dict[int, tuple[int, float]] = {}  # of pushes that were applied just now
        self._like = replica.flat_parameters()  # what pushes are like

    def answer(self, source: int, message: Message) -> list[tuple[int, Message]]:
        """Answer one message; see :data:`~dtoolkit.training.service.Answer`."""
        if message.kind == PUSH:
            self._pushes[source] = self._read(source, message)
            self.state, actions = react(self.state, Pushed(source))
            return [reply for action in actions for reply in self._do(action)]
        if message.kind == OPEN:
            self.state, _ = react(self.state, Opened(self.members, int(message.numbers[0])))
        else:
            self.state, _ = react(self.state, Closed())
        return [(source, Message(NOTED, tuple(map(float, sorted(self.state.computing)))))]

    def _read(self, source: int, message: Message) -> _Push:
        samples, planned, count = map(int, message.numbers)
        data, used, *buffers = message.tensors
        if self._stream is not None:
            where = elements(self._replica.parameters, used)
            data = self._stream.decode(data, self._like, step=count, item=source, where=where)
            data = data / planned
        device = self._replica.device
        names = kept_buffers(self._replica.model)
        return _Push(
            data.to(device),
            used,
            {name: value.to(device) for name, value in zip(names, buffers, strict=True)},
            samples,
            planned,
            time.perf_counter(),
        )

    def _do(self, action: Action) -> list[tuple[int, Message]]:
        if isinstance(action, Apply):
            self._apply(action.staleness)
            return []
        rates = tuple(float(group["lr"]) for group in self._replica.optimizer.param_groups)
        buffers = [value.clone() for value in kept_buffers(self._replica.model).values()]
        tensors = (self._replica.flat_parameters(), *buffers)
        kind = GRANT if isinstance(action, Grant) else DISMISS
        return [
            (rank, Message(kind, (*self._told.pop(rank), *rates), tensors)) for rank in action.ranks
        ]

    def _apply(self, staleness: Mapping[int, int]) -> None:
        """Make one update of some pushes, in the order of their ranks."""
        now = time.perf_counter()
        pushes = [self._pushes.pop(rank) for rank in staleness]
        for (rank, behind), push in zip(staleness.items(), pushes, strict=True):
            self._told[rank] = (behind, now - push.came)
            self.staleness = max(self.staleness, behind)
        replica, share = self._replica, _share(pushes)
        if share:
            used = torch.stack([push.used for push in pushes]).any(0)
            replica.load_gradients(self._sum(pushes), used)
            replica.update(1, share=share, scheduled=False)
            self._pool(pushes, share)
        before, self._applied = self._applied, self._applied + len(pushes)
        if replica.schedule is not None:
            # As often as synchronous training would have stepped it after as many pushes.
            for _ in range(self._applied // len(self.members) - before // len(self.members)):
                replica.schedule.step()

    def _sum(self, pushes: list[_Push]) -> torch.Tensor:
        total: torch.Tensor | None = None
        for push in pushes:
            if push.flat.numel():
                total = push.flat.clone() if total is None else total.add_(push.flat)
        return torch.zeros_like(self._like) if total is None else total

    def _pool(self, pushes: list[_Push], share: float) -> None:
        """Pool the buffers of workers, and the server's for what is missing of a whole batch."""
        mine = kept_buffers(self._replica.model)
        if not mine:
            return
        weights = [push.samples / push.planned for push in pushes]
        states = [dict(mine), *(push.buffers for push in pushes)]
        known = batch_statistics(self._replica.model)
        pooled = average(states, [max(0.0, 1.0 - share), *weights], statistics=known)
        with torch.no_grad():
            for name, value in pooled.items():
                mine[name].copy_(value)


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _hooked(model: nn.Module) -> bool:
    """Whether a model, a part of it or a parameter has hooks, of whatever kind."""
    parts = [vars(module) for module in model.modules()]
    if any(value for one in parts for name, value in one.items() if name.endswith("_hooks")):
        return True
    kinds = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return any(getattr(value, kind, None) for value in model.parameters() for kind in kinds)


def _share(pushes: list[_Push]) -> float:
    """Part of a whole batch that some pushes make, exactly 1 for a whole one."""
    parts: dict[int, int] = {}
    for push in pushes:
        parts[push.planned] = parts.get(push.planned, 0) + push.samples
    return sum(samples / planned for planned, samples in parts.items())
