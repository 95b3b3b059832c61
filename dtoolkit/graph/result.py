"""What full-batch training gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from dtoolkit.spmm import Plan

__all__ = ["FullBatchResult"]


@dataclass(frozen=True, eq=False, repr=False)
class FullBatchResult:
    """A trained graph network, and how it came about (measured).

    Attributes
    ----------
    model : str
        Its class.
    graph : str
        Name of the graph.
    history : DataFrame
        A row an epoch: ``epoch``; ``loss``, the mean cross-entropy over the training nodes, with
        dropout, before the epoch's step; and, after the step and without dropout, ``val_loss``,
        ``train_accuracy``, ``val_accuracy``. The test nodes are not looked at on the way.
    accuracy : dict of float
        Share of nodes whose class was found, by split (``train``, ``val``, ``test``), at the end;
        NaN for a split without nodes.
    predictions : int64 array of shape (nodes,)
        Class found for each node.
    state : dict of tensors
        The learned weights by name, for ``load_state_dict``.
    workers : int
        Ranks that it was trained on.
    plan : Plan
        Of the products with the normalised adjacency.
    settings : dict
        Epochs, learning rate and the like, and the seed.
    seconds : float
        Time on the workers, from first to last epoch and all that is around them.
    citation : str
        What to cite; empty for a model of one's own.
    """

    model: str
    graph: str
    history: pd.DataFrame
    accuracy: dict[str, float]
    predictions: NDArray[np.int64]
    state: dict[str, torch.Tensor]
    workers: int
    plan: Plan
    settings: dict[str, Any]
    seconds: float
    citation: str = ""

    def cite(self) -> str:
        """Sources of model and plan, as text."""
        return "\n".join(line for line in (self.citation, self.plan.cite()) if line)

    def facts(self) -> list[tuple[str, str]]:
        """Names and values that text and card show."""
        found = [
            (f"{name} accuracy", "no nodes" if np.isnan(share) else f"{share:.1%}")
            for name, share in self.accuracy.items()
        ]
        losses = self.history["loss"]
        ends = f"{losses.iloc[0]:.4f} to {losses.iloc[-1]:.4f}" if len(losses) else "not trained"
        return [
            *found,
            ("loss", ends),
            ("epochs", f"{len(losses)} in {self.seconds:.1f} s"),
            ("plan", f"{self.plan.strategy}, {self.plan.volume:,} rows a product"),
            ("settings", ", ".join(f"{k} {v}" for k, v in self.settings.items())),
        ]

    @property
    def heading(self) -> str:
        """What was trained where, in a line."""
        ranks = f"{self.workers} worker{'' if self.workers == 1 else 's'}"
        return f"{self.model} on {self.graph}, whole graph in every step, {ranks} (measured)"

    def __repr__(self) -> str:
        lines = [f"  {name:<16}{value}" for name, value in self.facts()]
        return "\n".join([self.heading, *lines])

    def _repr_html_(self) -> str:
        from dtoolkit.figures.learning import full_batch_card

        return full_batch_card(self)
