"""What every rank does in full-batch training: the whole graph in every step, weights replicated.

Losses and gradients are summed over the ranks in their order; every rank then makes the same step
of the optimizer, so that all hold the same weights, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dtoolkit.cluster import Context
from dtoolkit.graph.seeded import at_step, place
from dtoolkit.graph.sparse_rows import SparseRows
from dtoolkit.spmm import LocalCSR, Operand

__all__ = ["Learned", "Share", "Task", "lay", "learn"]


@dataclass(frozen=True)
class Share:
    """What a rank has of the nodes.

    Attributes
    ----------
    nodes : int64 tensor, shape (rows here,)
        Their global numbers.
    features : LocalCSR or tensor, shape (rows here, features)
    labels : int64 tensor, shape (rows here,)
    splits : dict of int64 tensors
        By split, which rows here are in it.
    """

    nodes: torch.Tensor
    features: LocalCSR | torch.Tensor
    labels: torch.Tensor
    splits: dict[str, torch.Tensor]

    def to(self, device: torch.device) -> Share:
        """The same on another device."""
        splits = {name: rows.to(device) for name, rows in self.splits.items()}
        return Share(
            self.nodes.to(device), self.features.to(device), self.labels.to(device), splits
        )


@dataclass(frozen=True)
class Task:
    """What is asked of the ranks; the same for all."""

    classes: int
    counts: dict[str, int]  # nodes of each split on all ranks
    epochs: int
    lr: float
    weight_decay: float
    seed: int


@dataclass(frozen=True)
class Learned:
    """What a rank gives back; history and weights come from rank 0 alone."""

    history: list[dict[str, float]]
    state: dict[str, torch.Tensor]
    classes: torch.Tensor  # predicted for the nodes here
    right: dict[str, int]  # over all ranks, by split


def lay(ctx: Context, share: Share) -> Share:
    """Put a share where the rank computes."""
    return share.to(ctx.device)


def learn(ctx: Context, A: Operand, share: Share, model: nn.Module, task: Task) -> Learned:
    """Train a model on this rank, together with the others.

    Parameters
    ----------
    ctx : Context
    A : Operand
        This rank's part of the planned, normalised adjacency.
    share : Share
    model : nn.Module
        This rank's copy; the same weights on all ranks.
    task : Task

    Returns
    -------
    Learned

    Raises
    ------
    FloatingPointError
        The loss is not finite any more.
    RuntimeError
        Ranks ended with different weights.
    """
    rank = _Rank(ctx, A, share, model.to(ctx.device), task)
    history = [rank.epoch(number) for number in range(task.epochs)]
    scores = rank.scores(training=False)
    right = rank.right(scores, ("train", "val", "test"))
    rank.compare_weights()
    first = ctx.rank == 0
    state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()} if first else {}
    return Learned(history if first else [], state, scores.argmax(1).cpu(), right)


class _Rank:
    """One rank's side of the training."""

    def __init__(
        self, ctx: Context, A: Operand, share: Share, model: nn.Module, task: Task
    ) -> None:
        self.ctx, self.A, self.share, self.model, self.task = ctx, A, share, model, task
        kept = share.features
        self.features = (
            SparseRows(kept, threads=ctx.threads) if isinstance(kept, LocalCSR) else kept
        )
        if not getattr(model, "takes_sparse", False) and isinstance(self.features, SparseRows):
            self.features = self.features.to_dense()
        place(model, share.nodes, task.seed)
        self.learned = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self._groups(), lr=task.lr)

    def epoch(self, number: int) -> dict[str, float]:
        """One step, and what the new weights are worth."""
        self.ctx.step(number)
        at_step(self.model, number)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.scores(training=True), "train")
        loss.backward()
        self._sum_gradients()
        self.optimizer.step()
        with torch.no_grad():
            scores = self.scores(training=False)
            parts = [loss.detach(), self.loss(scores, "val")]
        parts += [self._hits(scores, name) for name in ("train", "val")]
        sums = self._sum(torch.stack([part.double() for part in parts]))
        if not torch.isfinite(sums[0]):
            raise FloatingPointError(
                f"the training loss is {float(sums[0])} at epoch {number}: take a smaller lr than "
                f"{self.task.lr:g}, or look for large numbers in the features"
            )
        return self._said(number, sums.tolist())

    def scores(self, *, training: bool) -> torch.Tensor:
        """Scores of each class for the nodes here."""
        self.model.train(training)
        with torch.set_grad_enabled(training):
            scores = self.model(self.ctx, self.A, self.features)
        wanted = (len(self.share.nodes), self.task.classes)
        found = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        if found != wanted:
            raise ValueError(f"the model gave {found} on rank {self.ctx.rank}; wanted {wanted}")
        return scores

    def loss(self, scores: torch.Tensor, split: str) -> torch.Tensor:
        """Share of this rank in the mean cross-entropy over all nodes of a split."""
        rows = self.share.splits[split]
        summed = cross_entropy(scores[rows], self.share.labels[rows], reduction="sum")
        return summed / max(self.task.counts[split], 1)

    def right(self, scores: torch.Tensor, splits: Sequence[str]) -> dict[str, int]:
        """Nodes whose class was found, over all ranks."""
        hits = self._sum(torch.stack([self._hits(scores, name) for name in splits]))
        return dict(zip(splits, map(int, hits.tolist()), strict=True))

    def compare_weights(self) -> None:
        """Hold the weights of all ranks against each other."""
        digest = hashlib.blake2b(digest_size=8)
        for parameter in self.model.parameters():
            flat = parameter.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes())
        mine = int.from_bytes(digest.digest(), "little", signed=True)
        said = self.ctx.comm.all_gather(torch.tensor([mine])).reshape(-1).tolist()
        others = [rank for rank, theirs in enumerate(said) if theirs != said[0]]
        if others:
            raise RuntimeError(
                f"rank(s) {others} ended with other weights than rank 0: something in the model "
                "depends on the rank (a random number, a branch), or the devices differ"
            )

    def _groups(self) -> list[dict[str, Any]]:
        """Weight decay is for the parameters that the model names, by default for all."""
        decayed = getattr(self.model, "decayed", self.model.parameters)
        chosen = {id(p) for p in decayed()}
        with_decay = [p for p in self.learned if id(p) in chosen]
        without = [p for p in self.learned if id(p) not in chosen]
        groups = ((with_decay, self.task.weight_decay), (without, 0.0))
        return [{"params": some, "weight_decay": decay} for some, decay in groups if some]

    def _sum_gradients(self) -> None:
        """Give every rank the sum, in rank order, of what each found; in one message a dtype."""
        for dtype in sorted({p.dtype for p in self.learned}, key=str):
            chosen = [p for p in self.learned if p.dtype == dtype]
            found = [torch.zeros_like(p) if p.grad is None else p.grad for p in chosen]
            with self.ctx.comm.phase("gradients"):
                total = self.ctx.comm.all_reduce(torch.cat([grad.reshape(-1) for grad in found]))
            for p, grad in zip(chosen, total.split([p.numel() for p in chosen]), strict=True):
                p.grad = grad.view_as(p)

    def _sum(self, numbers: torch.Tensor) -> torch.Tensor:
        with self.ctx.comm.phase("metrics"):
            # A few numbers travel in the headers of a gather; a reduction would take two rounds.
            each: torch.Tensor = self.ctx.comm.all_gather(numbers)
        return each.sum(0)

    def _hits(self, scores: torch.Tensor, split: str) -> torch.Tensor:
        rows = self.share.splits[split]
        return (scores[rows].argmax(1) == self.share.labels[rows]).sum()

    def _said(self, number: int, sums: list[float]) -> dict[str, float]:
        loss, val_loss, train, val = sums
        counts, nothing = self.task.counts, float("nan")
        said = {
            "epoch": number,
            "loss": loss,
            "val_loss": val_loss if counts["val"] else nothing,
            "train_accuracy": train / counts["train"],
            "val_accuracy": val / counts["val"] if counts["val"] else nothing,
        }
        if self.ctx.rank == 0:
            self.ctx.log({name: value for name, value in said.items() if name != "epoch"})
        return said
