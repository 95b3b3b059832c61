"""A replica that keeps masks: static ones, or such as change while it learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.sparsity import Sparsifier
from dtoolkit.training.sparse.sparse import Sparse

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Masked"]


class Masked(Sparse):
    """A Sparsifier of a replica's model and optimizer.

    Gradients are reduced over ranks before the optimizer's step, and so are those that it ranks.

    Parameters
    ----------
    replica : Replica
    settings : mapping
        Keywords of :class:`~dtoolkit.sparsity.Sparsifier`.
    """

    def __init__(self, replica: Replica, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._learned = replica.parameters
        self._sparsifier = Sparsifier(replica.model, replica.optimizer, **settings)

    @property
    def wants_gradients(self) -> bool:  # type: ignore[override]
        """As of :attr:`dtoolkit.sparsity.Sparsifier.wants_gradients`."""
        return self._sparsifier.wants_gradients

    @property
    def masks(self) -> dict[str, torch.Tensor]:
        """See :attr:`Sparse.masks`."""
        return self._sparsifier.masks

    def stepped(self) -> None:
        """See :meth:`Sparse.stepped`."""
        self.changes += self._sparsifier.step()

    def state(self) -> dict[str, Any]:
        """See :meth:`Sparse.state`."""
        return {n: value for n, value in self._sparsifier.state_dict().items() if n != "masks"}

    def load(self, state: Mapping[str, Any], masks: Mapping[str, torch.Tensor]) -> None:
        """See :meth:`Sparse.load`."""
        self._sparsifier.load_state_dict({**state, "masks": dict(masks)})
        self.changes += 1

    def _counts(self) -> tuple[int, float]:
        masks = self.masks.values()
        dead = sum(mask.numel() - int(mask.sum()) for mask in masks)
        learned = sum(value.numel() for _, value in self._learned)
        return learned - dead, 1 - dead / sum(mask.numel() for mask in masks)
