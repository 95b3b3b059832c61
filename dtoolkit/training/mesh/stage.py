"""One stage of a model on its worker: forwards, backwards, and the versions they use."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.func import functional_call

from dtoolkit.training.mesh.flat import FlatWeights
from dtoolkit.training.seeds import seeded
from dtoolkit.training.task import check_values

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Stage"]


@dataclass
class _Flight:
    """A micro-batch between its forward and its backward.

    Attributes
    ----------
    key : (int, int)
        Step and micro-batch.
    hidden : torch.Tensor or None
        What came from the stage before.
    weights : list of torch.Tensor
        What its gradient is taken by: a version, or the parameters themselves.
    version : int
        Updates that were made before.
    output : torch.Tensor
    kept : dict of tensors
        Buffers before the forward, where versions are kept.
    seconds : float
        That the forward took.
    """

    key: tuple[int, int]
    hidden: torch.Tensor | None
    weights: list[torch.Tensor]
    version: int
    output: torch.Tensor
    kept: dict[str, torch.Tensor] = field(default_factory=dict)
    seconds: float = 0.0


class Stage:
    """A stage of a replica.

    Parameters
    ----------
    replica : Replica
        Whose task, examples and faults are used.
    module : nn.Module
        The stage.
    number, stages, lane : int
        Place in the pipeline, how many stages there are, and which copy of the model this is.
    keeps : bool
        Forward with copies of the weights (weight stashing), so that updates may come before the
        backward.

    Attributes
    ----------
    weights : FlatWeights
        Named as in the whole model.
    loss, samples : float, int
        Sums on the last stage, until :meth:`taken`.
    updates : int
        That the newest weights have seen: the version that forwards use.
    """

    def __init__(
        self,
        replica: Replica,
        module: nn.Module,
        *,
        number: int,
        stages: int,
        lane: int,
        keeps: bool,
    ) -> None:
        self._replica, self.module, self._lane = replica, module, lane
        self.number, self.stages, self._keeps = number, stages, keeps
        self.first, self.last = number == 0, number == stages - 1
        names = {id(value): name for name, value in replica.parameters}
        learned = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if not learned:
            raise ValueError("the model learns nothing: wanted parameters that require gradients")
        self._local = list(learned)
        self.weights = FlatWeights([(names[id(p)], p) for p in learned.values()])
        self._flights: deque[_Flight] = deque()
        self._version: tuple[int, list[torch.Tensor]] = (-1, [])  # the last one that was copied
        self.loss, self.samples, self.updates = 0.0, 0, 0

    @property
    def versions(self) -> int:
        """Versions of the weights that are held, the newest included."""
        return len({flight.version for flight in self._flights} | {self.updates})

    def forward(
        self, key: tuple[int, int], ids: torch.Tensor, hidden: torch.Tensor | None
    ) -> torch.Tensor:
        """What goes to the next stage.

        Parameters
        ----------
        key : (int, int)
            Step and micro-batch.
        ids : int64 tensor
            Samples.
        hidden : torch.Tensor or None
            What came from the stage before; None on the first.
        """
        start = time.perf_counter()
        flight = self._fly(key, ids, hidden, self._weights(), self._buffers())
        self._flights.append(flight)
        flight.seconds = time.perf_counter() - start
        return flight.output.detach()

    def backward(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """Add the gradient of the oldest forward to ``.grad``; what goes to the stage before.

        Parameters
        ----------
        gradient : torch.Tensor
            By what went to the next stage.
        """
        start = time.perf_counter()
        flight = self._flights.popleft()
        before = self._differentiate(flight, flight.output, gradient)
        self._slow(flight, time.perf_counter() - start)
        return before

    def finish(
        self, key: tuple[int, int], ids: torch.Tensor, hidden: torch.Tensor | None, *, weight: float
    ) -> torch.Tensor | None:
        """Forward, loss and backward of the last stage, with its newest weights.

        Parameters
        ----------
        key, ids, hidden
            As of :meth:`forward`.
        weight : float
            Of the sum of the samples' losses.

        Returns
        -------
        torch.Tensor or None
            As of :meth:`backward`.

        Raises
        ------
        FloatingPointError
            A loss is not finite.
        ValueError
            The loss is not one value a sample.
        """
        replica, start = self._replica, time.perf_counter()
        inputs, targets = replica.examples.take(ids)
        if hidden is not None:
            inputs = hidden = hidden.requires_grad_()
        with self._seeded(key):
            losses = check_values(replica.task.loss(self.module, inputs, targets), len(ids), "loss")
        total = float(losses.detach().double().sum())
        if not math.isfinite(total):
            raise FloatingPointError(
                f"the loss is {total} on rank {replica.rank} at step {key[0]} "
                f"(micro-batch {key[1]})"
            )
        weights: list[torch.Tensor] = [value for _, value in self.weights.parameters]
        flight = _Flight(key, hidden, weights, self.updates, losses)
        before = self._differentiate(flight, losses.sum() * weight, None)
        self.loss, self.samples = self.loss + total, self.samples + len(ids)
        self._slow(flight, time.perf_counter() - start)
        return before

    def taken(self) -> tuple[float, int]:
        """Loss and samples since the last call."""
        said, self.loss, self.samples = (self.loss, self.samples), 0.0, 0
        return said

    def own_state(self) -> dict[str, Any]:
        """Micro-batches between forward and backward, with their versions; and the buffers."""
        flights = [
            {
                "step": flight.key[0],
                "micro": flight.key[1],
                "hidden": flight.hidden,
                "version": flight.version,
                "weights": list(flight.weights),
                "buffers": flight.kept,
            }
            for flight in self._flights
        ]
        return {"updates": self.updates, "flights": flights}

    def restore(self, own: dict[str, Any], ids: Any) -> None:
        """Take back what :meth:`own_state` gave: forwards are made again, to the same bits.

        `ids` gives the samples of a step and micro-batch.
        """
        self.updates = int(own["updates"])
        device, after = self._replica.device, self._buffers()
        for one in own["flights"]:
            key = int(one["step"]), int(one["micro"])
            weights = [value.to(device).requires_grad_() for value in one["weights"]]
            hidden = None if one["hidden"] is None else one["hidden"].to(device)
            kept = {name: value.to(device) for name, value in one["buffers"].items()}
            flight = self._fly(key, ids(*key), hidden, weights, kept)
            flight.version = int(one["version"])
            self._version = flight.version, weights
            self._flights.append(flight)
        self._load_buffers(after)

    # ------------------------------------------------------------------------------- helpers

    def _weights(self) -> list[torch.Tensor]:
        if not self._keeps:
            return [value for _, value in self.weights.parameters]
        if self._version[0] != self.updates:
            self._version = self.updates, self.weights.copies()
        return self._version[1]

    def _buffers(self) -> dict[str, torch.Tensor]:
        if not self._keeps:
            return {}
        return {name: value.detach().clone() for name, value in self.module.named_buffers()}

    def _load_buffers(self, buffers: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, value in self.module.named_buffers():
                if name in buffers:
                    value.copy_(buffers[name])

    def _fly(
        self,
        key: tuple[int, int],
        ids: torch.Tensor,
        hidden: torch.Tensor | None,
        weights: list[torch.Tensor],
        kept: dict[str, torch.Tensor],
    ) -> _Flight:
        """The forward of a stage that is not the last."""
        if hidden is None:
            inputs = self._replica.examples.take(ids)[0]
        else:
            inputs = hidden = hidden.requires_grad_()
        with self._seeded(key):
            if self._keeps:
                # Buffers of its own too: those of the module change before the backward.
                changed = {name: value.clone() for name, value in kept.items()}
                given = dict(zip(self._local, weights, strict=True)) | changed
                output = functional_call(self.module, given, (inputs,))
                self._load_buffers(changed)
            else:
                output = self.module(inputs)
        if not isinstance(output, torch.Tensor) or not output.is_floating_point():
            kind = output.dtype if isinstance(output, torch.Tensor) else type(output).__name__
            raise TypeError(
                f"stage {self.number} gave {kind}: wanted one tensor of floating point for the "
                "next stage"
            )
        return _Flight(key, hidden, weights, self.updates, output, kept)

    def _differentiate(
        self, flight: _Flight, output: torch.Tensor, gradient: torch.Tensor | None
    ) -> torch.Tensor | None:
        by = flight.weights if flight.hidden is None else [*flight.weights, flight.hidden]
        grads = list(torch.autograd.grad(output, by, gradient, allow_unused=True))
        before = None
        if flight.hidden is not None:
            before = grads.pop()
            before = torch.zeros_like(flight.hidden) if before is None else before
        for (_, value), grad in zip(self.weights.parameters, grads, strict=True):
            if grad is not None:
                value.grad = grad if value.grad is None else value.grad + grad
        return before

    def _seeded(self, key: tuple[int, int]) -> Any:
        """What is random in a stage; a model of one stage draws as it does without stages."""
        step, micro = key
        items = (step, self._lane, micro, *([self.number] if self.stages > 1 else []))
        return seeded(self._replica.settings.seed, "forward", *items, device=self._replica.device)

    def _slow(self, flight: _Flight, seconds: float) -> None:
        self._replica.slow(*flight.key, seconds + flight.seconds)
        self._replica.expose_gradients()
