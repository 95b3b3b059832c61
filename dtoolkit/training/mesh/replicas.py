"""What the replicas of a stage tell each other: gradients, parts of their weights, or changes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.comm.standing import StandingSum
from dtoolkit.training.mesh.averages import Averages
from dtoolkit.training.mesh.flat import FlatWeights
from dtoolkit.training.mesh.merging import Rule

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator

__all__ = ["Gradients", "Replicas", "Rounds", "Sparse"]


class Replicas(ABC):
    """What one replica of a stage does with the others, around its update.

    Parameters
    ----------
    comm : Communicator
        Of the replicas of one stage.
    weights : FlatWeights

    Attributes
    ----------
    joint : bool
        Whether all take the same step with the gradient of the whole batch; else each takes one of
        its own with that of its share.
    waited : float
        Seconds spent waiting for the others, what messages take to travel included.
    """

    joint = False

    def __init__(self, comm: Communicator, weights: FlatWeights) -> None:
        self._comm, self._weights, self.waited = comm, weights, 0.0

    def combine(self) -> None:  # noqa: B027  -- most leave gradients alone
        """Before the update: make one gradient of all."""

    @abstractmethod
    def settle(self, step: int) -> None:
        """After the update of a step."""

    def own_state(self) -> dict[str, Any]:
        """What is needed to go on."""
        return {}

    def restore(self, own: dict[str, Any]) -> None:  # noqa: B027  -- most have nothing
        """Take back what :meth:`own_state` gave."""

    def _start(self, values: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Start the mean of a flat tensor, which is overwritten; without headers, all know it."""
        if not values.numel() or self._comm.size == 1:
            return lambda: values
        pending = StandingSum(self._comm, values, agreed=True).start()

        def mean() -> torch.Tensor:
            if not pending.finished:
                start = time.perf_counter()
                pending.wait()
                self.waited += time.perf_counter() - start
                values.div_(self._comm.size)
            return values

        return mean


class Gradients(Replicas):
    """Synchronous data parallel: the gradients of all are summed in every step."""

    joint = True

    def combine(self) -> None:
        """See :meth:`Replicas.combine`."""
        if self._comm.size == 1:
            return
        flats = self._weights.gradients()
        start = time.perf_counter()
        for flat in flats.values():
            StandingSum(self._comm, flat, agreed=True).start().wait()
        self.waited += time.perf_counter() - start
        self._weights.load_gradients(flats)

    def settle(self, step: int) -> None:
        """See :meth:`Replicas.settle`."""


class Sparse(Replicas):
    """Asynchronous sparse averages of the weights (AsyncMesh; SPARTA with a delay of 0).

    Parameters
    ----------
    comm, weights
        As of :class:`Replicas`.
    rule : Rule
    seed : int
    steps : int
        Of the run: over them the moving average's decay changes.
    """

    def __init__(
        self, comm: Communicator, weights: FlatWeights, rule: Rule, *, seed: int, steps: int
    ) -> None:
        super().__init__(comm, weights)
        self._averages = {
            dtype: Averages(
                flat, weights.tensors[dtype], rule, seed=seed, steps=steps, start=self._start
            )
            for dtype, flat in weights.buffers.items()
        }

    def settle(self, step: int) -> None:
        """See :meth:`Replicas.settle`."""
        for one in self._averages.values():
            one.begin(step)
        for one in self._averages.values():
            one.end(step)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Replicas.own_state`."""
        return {str(dtype): one.own_state() for dtype, one in self._averages.items()}

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Replicas.restore`."""
        for dtype, one in self._averages.items():
            one.restore(own[str(dtype)])


class Rounds(Replicas):
    """Rounds of local steps, each ended by a step of an outer optimizer (DiLoCo).

    The outer gradient is what the replicas have moved in the round, on average; it is descended
    with Nesterov's momentum (Douillard et al. 2023, arXiv 2311.08105). With rate 1 and momentum 0
    that is the mean of the models.

    Parameters
    ----------
    comm, weights
        As of :class:`Replicas`.
    local_steps : int
    rate, momentum : float
        Of the outer optimizer.
    """

    def __init__(
        self,
        comm: Communicator,
        weights: FlatWeights,
        *,
        local_steps: int,
        rate: float,
        momentum: float,
    ) -> None:
        super().__init__(comm, weights)
        self._local_steps, self._rate, self._momentum = local_steps, rate, momentum
        self._start_of_round = {dtype: flat.clone() for dtype, flat in weights.buffers.items()}
        self._speed = {dtype: torch.zeros_like(flat) for dtype, flat in weights.buffers.items()}

    def settle(self, step: int) -> None:
        """See :meth:`Replicas.settle`."""
        if (step + 1) % self._local_steps:
            return
        means = {d: self._start(flat.clone()) for d, flat in self._weights.buffers.items()}
        for dtype, flat in self._weights.buffers.items():
            begun, speed = self._start_of_round[dtype], self._speed[dtype]
            way = begun - means[dtype]()
            speed.mul_(self._momentum).add_(way)
            flat.copy_(begun - self._rate * (way + self._momentum * speed))
            begun.copy_(flat)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Replicas.own_state`."""
        return {
            str(dtype): {"start": start, "speed": self._speed[dtype]}
            for dtype, start in self._start_of_round.items()
        }

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Replicas.restore`."""
        for dtype, start in self._start_of_round.items():
            start.copy_(own[str(dtype)]["start"])
            self._speed[dtype].copy_(own[str(dtype)]["speed"])
