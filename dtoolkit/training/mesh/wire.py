"""Activations and gradients between neighbouring stages: point to point, nobody waits to send."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator
    from dtoolkit.comm.pending import Pending

__all__ = ["Coming", "Wire"]

_ACTIVATIONS, _GRADIENTS = 1, 2  # tags


class Coming:
    """A message that is expected, or that has come already."""

    def __init__(self, wire: Wire | None, pending: Pending | None, tensor: Any = None) -> None:
        self._wire, self._pending, self._tensor = wire, pending, tensor

    def take(self) -> torch.Tensor:
        """Wait for it; taking it again gives the same."""
        if self._pending is not None:
            assert self._wire is not None
            start = time.perf_counter()
            self._tensor = self._pending.wait()[0]
            self._wire.waited += time.perf_counter() - start
            self._pending = None
        assert isinstance(self._tensor, torch.Tensor)
        return self._tensor


class Wire:
    """A stage's connections to the stages before and after.

    Parameters
    ----------
    comm : Communicator
        Of the stages of one pipeline, in order.

    Attributes
    ----------
    waited : float
        Seconds spent waiting for messages, what they take to travel included.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm, self.waited = comm, 0.0
        self._before: list[Pending] = []  # sent in the step before, and in this one
        self._now: list[Pending] = []

    def expect_activation(self) -> Coming:
        """The next message of the stage before."""
        with self._comm.phase("activations"):
            return self._expect(self._comm.rank - 1, _ACTIVATIONS)

    def expect_gradient(self) -> Coming:
        """The next message of the stage after."""
        with self._comm.phase("gradients"):
            return self._expect(self._comm.rank + 1, _GRADIENTS)

    def send_activation(self, tensor: torch.Tensor) -> None:
        """Send to the stage after."""
        with self._comm.phase("activations"):
            self._send(tensor, self._comm.rank + 1, _ACTIVATIONS)

    def send_gradient(self, tensor: torch.Tensor) -> None:
        """Send to the stage before."""
        with self._comm.phase("gradients"):
            self._send(tensor, self._comm.rank - 1, _GRADIENTS)

    def turn(self) -> None:
        """Begin a step: what was sent two steps ago is in the trace, and does not pile up.

        The other end has used it by now, so that this does not wait.
        """
        for one in self._before:
            one.wait()
        self._before, self._now = self._now, []

    def drain(self) -> None:
        """Wait until all that was sent has left."""
        self.turn()
        self.turn()

    def _expect(self, source: int, tag: int) -> Coming:
        return Coming(self, self._comm.recv(source, tag, wait=False))

    def _send(self, tensor: torch.Tensor, target: int, tag: int) -> None:
        self._now.append(self._comm.send(tensor, target, tag, wait=False))
