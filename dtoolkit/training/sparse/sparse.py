"""What makes a replica sparse while it learns: the protocol of masks and of cuts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["Sparse"]


class Sparse(ABC):
    """Keeps one rank's model sparse; equal on all ranks that hold the same weights.

    Attributes
    ----------
    changes : int
        How often masks or shapes have changed.
    agreed : bool
        Ranks know without a message that they have changed alike.
    wants_gradients : bool
        The next step looks at the gradients of all weights, masked ones too.
    """

    agreed = True
    wants_gradients = False

    def __init__(self) -> None:
        self.changes = 0
        self._counted: tuple[int, tuple[int, float]] | None = None

    @property
    def masks(self) -> dict[str, torch.Tensor]:
        """Masks by name of the parameter."""
        return {}

    @property
    def live(self) -> int:
        """Learned values that are alive: those of which gradients are exchanged."""
        return self._count()[0]

    @property
    def density(self) -> float:
        """Share of the weights of the sparse layers, or of all there were, that is alive."""
        return self._count()[1]

    def note(self, loss: float, samples: int) -> None:  # noqa: B027  -- most need no losses
        """Hear a sum of losses of this rank, and of how many samples."""

    def begin(self) -> None:  # noqa: B027
        """An update begins; collective."""

    def penalty(self, model: nn.Module) -> torch.Tensor | None:
        """A scalar that is added to the mean loss once an update; None: nothing."""
        return None

    @abstractmethod
    def stepped(self) -> None:
        """The optimizer has made a step, and gradients are still there."""

    def finish(self, step: int) -> None:  # noqa: B027  -- masks are changed in `stepped`
        """The update of a step is over, whether it had samples or not."""

    def prepare(self, state: Mapping[str, Any]) -> None:  # noqa: B027  -- masks need nothing
        """Give a fresh model the shapes of a saved one, before its content is loaded."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What is needed to go on, beside model, masks and optimizer; plain values."""

    @abstractmethod
    def load(self, state: Mapping[str, Any], masks: Mapping[str, torch.Tensor]) -> None:
        """Go on from what :meth:`state` gave, once model and optimizer are loaded."""

    @abstractmethod
    def _counts(self) -> tuple[int, float]:
        """Live values and density, counted anew."""

    def _count(self) -> tuple[int, float]:
        if self._counted is None or self._counted[0] != self.changes:
            self._counted = self.changes, self._counts()
        return self._counted[1]
