"""What all layers of very many outputs share: rows of weights, loss over a set, prediction."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import nn

from dtoolkit.arrays.philox import uniform_rows
from dtoolkit.philox import seed_key
from dtoolkit.training.slide import in_torch, on_cpu
from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.gradient import RowGradient
from dtoolkit.training.slide.labels import as_labels
from dtoolkit.training.slide.softmax import Alone, Peers, active_loss
from dtoolkit.training.slide.statistics import Retrieval

__all__ = ["OutputLinear", "Predicted", "precision"]

_AT_ONCE = 1 << 24  # logits that a prediction holds at a time


class Predicted(NamedTuple):
    """The best classes of each sample, best first.

    Attributes
    ----------
    ids : int64 tensor, shape (samples, k)
        Global numbers; -1 where fewer neurons were computed.
    scores : float32 tensor, shape (samples, k)
        Their logits; minus infinity where there is none.
    """

    ids: torch.Tensor
    scores: torch.Tensor


class OutputLinear(nn.Module):
    """A linear layer of very many outputs, of which each sample computes a set.

    A subclass says which (:meth:`active`). A layer may hold a range of the rows alone, as one of
    several processes: what it makes at first, and the sets, are then exactly those rows' part of
    the whole layer's.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    seed : int
        Weights and biases are drawn row by row from it, uniform as those of ``nn.Linear``.
    rows : range or (start, stop), optional
        Neurons held here; by default all.

    Attributes
    ----------
    weight : Parameter, float32, shape (rows held, in_features)
    bias : Parameter, float32, shape (rows held,)
        Where there is none: zeros that are not learned.
    start, stop : int
        First neuron held, and the one after the last.
    retrieval : Retrieval
        What was computed in training since it was last reset.
    by_torch : bool
        Work by torch's operations on the CPU too (:mod:`~dtoolkit.training.slide.in_torch`), as
        on a GPU, instead of by compiled loops.
    """

    updates: torch.Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        seed: int = 0,
        rows: Any = None,
    ) -> None:
        super().__init__()
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}: wanted a whole number, 1 or more")
        self.in_features, self.out_features, self.seed = in_features, out_features, seed
        self.start, self.stop = _range(rows, out_features)
        held, bound = torch.arange(self.start, self.stop), 1 / math.sqrt(in_features)
        key = seed_key(seed, "rows", domain="dtoolkit.training.slide")
        drawn = uniform_rows(held, in_features, key, torch.float32).mul_(2 * bound).sub_(bound)
        self.weight = nn.Parameter(drawn)
        key = seed_key(seed, "biases", domain="dtoolkit.training.slide")
        biases = uniform_rows(held, 1, key, torch.float32).mul_(2 * bound).sub_(bound).view(-1)
        self.bias = nn.Parameter(biases if bias else torch.zeros(len(held)), requires_grad=bias)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.retrieval = Retrieval()
        self.by_torch = False

    @property
    def kernels(self) -> Any:
        """The module that does the work: ``on_cpu`` or ``in_torch``, with the same functions."""
        return in_torch if self.by_torch or self.weight.device.type != "cpu" else on_cpu

    # ------------------------------------------------------------------------------ training

    @abstractmethod
    def active(self, hidden: Any, labels: Any = None) -> ActiveSets:
        """Neurons held here that each sample computes; with its labels, where they are given."""

    def logits(self, hidden: torch.Tensor, active: ActiveSets) -> torch.Tensor:
        """Logits of active neurons.

        Parameters
        ----------
        hidden : float32 tensor, shape (samples, in_features)
        active : ActiveSets

        Returns
        -------
        float32 tensor, shape (active.entries,)
            In the order of ``active.ids``; without a graph.
        """
        values: torch.Tensor = self.kernels.logits(
            self.dense(hidden), self.weight, self.bias, active
        )
        return values

    def loss(self, hidden: Any, labels: Any, *, peers: Peers | None = None) -> torch.Tensor:
        """Cross-entropy of each sample over its active neurons, labels among them.

        ``-sum(log p[labels]) / len(labels)``, p the softmax over the active neurons. Its derivative
        by a logit is ``p - 1[label] / len(labels)``; a sample without labels has loss 0. The
        gradient by the weights is kept as ``weight.row_gradient``, a :class:`RowGradient`, for
        :class:`RowSparseAdam`; ``weight.grad`` stays None.

        Parameters
        ----------
        hidden : tensor, shape (samples, in_features)
            float32; sparse ones (torch or SciPy) are made dense.
        labels : see :func:`as_labels`
            Global numbers of classes.
        peers : Peers, optional
            Those that hold the other neurons. Each then gives the loss of the labels *held here*:
            these add up, over the peers, to the sample's loss. All-reduces, in order: the maximum
            and the sum of each sample; in backward, where `hidden` needs one, its gradient.

        Returns
        -------
        float32 tensor, shape (samples,)
            With a graph back to `hidden`.
        """
        return active_loss(
            self,
            self.dense(hidden),
            as_labels(labels, classes=self.out_features),
            peers or Alone(),
        )

    def add_gradient(self, gradient: RowGradient) -> None:
        """Keep a gradient of the weights for the optimizer, with what is there already."""
        there: RowGradient | None = getattr(self.weight, "row_gradient", None)
        total = gradient if there is None else there.plus(gradient)
        for value in (self.weight, self.bias):
            value.row_gradient = total if value.requires_grad else None  # type: ignore[attr-defined]

    def updated(self) -> None:
        """Hear that the weights were updated: called by the optimizer."""
        self.updates += 1

    # ---------------------------------------------------------------------------- prediction

    def forward(self, hidden: Any) -> torch.Tensor:
        """All logits of the neurons held here, shape (samples, rows held); with a graph."""
        return nn.functional.linear(self.dense(hidden), self.weight, self.bias)

    @torch.no_grad()
    def predict(self, hidden: Any, k: int = 1, *, hashed: bool = False) -> Predicted:
        """The best `k` of the neurons held here.

        Parameters
        ----------
        hidden : tensor, shape (samples, in_features)
        k : int
        hashed : bool
            Compute the active neurons alone, as in training, but without labels. By default all.

        Returns
        -------
        Predicted
            Of equal logits among them, the first neuron comes first.
        """
        if k < 1:
            raise ValueError(f"k={k}: wanted 1 or more")
        rows = self.dense(hidden)
        if not len(rows):
            none = torch.empty(0, k, device=rows.device)
            return Predicted(none.long(), none)
        if hashed:
            active = self.active(hidden)
            values = self.logits(rows, active)
            found = [
                _best(values[first:last], torch.from_numpy(active.ids[first:last]), k)
                for first, last in zip(active.indptr[:-1], active.indptr[1:], strict=True)
            ]
            ids, scores = (torch.stack(parts) for parts in zip(*found, strict=True))
        else:
            height = max(1, _AT_ONCE // max(1, len(self.weight)))
            parts = [_top(self(rows[i : i + height]), k) for i in range(0, len(rows), height)]
            ids, scores = (torch.cat(one) for one in zip(*parts, strict=True))
        return Predicted(torch.where(ids < 0, -1, ids + self.start), scores)

    # ------------------------------------------------------------------------------- helpers

    def dense(self, hidden: Any) -> torch.Tensor:
        """`hidden` as dense float32 rows on this layer's device.

        Raises
        ------
        ValueError
            It is of another shape.
        """
        rows = torch.as_tensor(hidden.toarray() if scipy.sparse.issparse(hidden) else hidden)
        rows = rows if rows.layout == torch.strided else rows.to_dense()
        if rows.dim() != 2 or rows.shape[1] != self.in_features:
            raise ValueError(
                f"hidden has shape {tuple(rows.shape)}: wanted (samples, {self.in_features})"
            )
        return rows.to(self.weight.device, torch.float32)

    def extra_repr(self) -> str:
        """What ``repr`` says."""
        held = (
            f", rows={self.start}:{self.stop}" if self.stop - self.start < self.out_features else ""
        )
        return f"in_features={self.in_features}, out_features={self.out_features}{held}"


def precision(predicted: torch.Tensor, labels: Any, *, classes: int) -> torch.Tensor:
    """Share of each sample's predicted classes that are labels: precision at k.

    Parameters
    ----------
    predicted : int64 tensor, shape (samples, k)
        ``Predicted.ids``; -1 is none, and wrong.
    labels : see :func:`as_labels`
    classes : int

    Returns
    -------
    float32 tensor, shape (samples,)
    """
    own = as_labels(labels, classes=classes)
    sample = np.repeat(np.arange(len(own)), own.counts)
    there = sample * classes + own.ids
    ids = predicted.cpu().numpy()
    asked = np.arange(len(ids))[:, None] * classes + ids
    right = np.isin(asked, there) & (ids >= 0)
    return torch.from_numpy(right.mean(1).astype(np.float32))


def _range(rows: Any, classes: int) -> tuple[int, int]:
    """First row held, and the one after the last."""
    if rows is None:
        return 0, classes
    if isinstance(rows, range) and rows.step == 1:
        rows = rows.start, rows.stop
    if not (isinstance(rows, tuple) and len(rows) == 2 and 0 <= rows[0] <= rows[1] <= classes):
        raise ValueError(f"rows={rows!r}: wanted a range or (start, stop) within 0 to {classes}")
    return int(rows[0]), int(rows[1])


def _top(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The best `k` of each row, and their scores; short rows are filled up with -1."""
    ids = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
    return _best(scores, ids, k)


def _best(scores: torch.Tensor, ids: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    most = min(k, scores.shape[-1])
    # Sorted by id, then by score: topk leaves open which of equal scores comes first.
    best, place = scores.topk(most, dim=-1)
    taken = ids.to(scores.device).long().gather(-1, place)
    taken, order = taken.sort(dim=-1)
    best, other = best.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    missing = (0, k - most)
    pad = torch.nn.functional.pad
    return pad(taken.gather(-1, other), missing, value=-1), pad(best, missing, value=-torch.inf)
