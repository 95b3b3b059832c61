"""PruneTrain around a training loop: penalty, cuts every few epochs, a batch that grows."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dtoolkit.sparsity.batch_growth import grown_batch, memory_use
from dtoolkit.sparsity.channels import Reconfiguration, reconfigure
from dtoolkit.sparsity.citing import Cited
from dtoolkit.sparsity.group_lasso import GroupLasso

__all__ = ["PruneTrain"]


class PruneTrain(Cited):
    """Trains a dense model into a smaller dense one, which every epoch after a cut is faster for.

    ::

        pruner = dt.sparsity.PruneTrain(model, optimizer, images[:2], every=5)
        for epoch in range(epochs):
            for inputs, labels in batches(pruner.batch):
                optimizer.zero_grad()
                loss = cross_entropy(model(inputs), labels)
                (loss + pruner.penalty(loss)).backward()
                optimizer.step()
            pruner.end_epoch()

    Every worker of a data-parallel run that does this with equal weights cuts alike, without a
    message; what is all-reduced shrinks with the parameters.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments
        What the model is called with; a small batch will do.
    every : int
        Epochs between two cuts.
    threshold : float
        A channel goes when none of the weights that make or read it is as large.
    ratio : float
        Share of the first loss that the penalty is.
    multiple : int
        What numbers of channels are rounded up to; 8 or 16 is fastest on most processors.
    batch : int, optional
        Samples of a batch, which then grows into the memory that cuts free; learning rates grow
        with it. Default: the batch is left alone.
    batch_multiple : int
        What the grown batch is to be a multiple of.
    limit : int, optional
        Largest batch.
    scheduler : torch.optim.lr_scheduler.LRScheduler, optional
        Its base rates are raised as well when the batch grows.
    verify : bool
        Try every cut out on a copy (see :func:`~dtoolkit.sparsity.plan_cuts`).

    Attributes
    ----------
    penalty : GroupLasso
        To be called with the loss.
    batch : int or None
        Samples of a batch now.
    epochs : int
        Epochs done.
    reports : list of Reconfiguration
        One a cut, in order.

    Raises
    ------
    ValueError
        A number is out of range, or the model cannot be traced.

    Notes
    -----
    S. Lym et al., SC 2019; there a cut comes every 10 epochs on CIFAR and every 5 on ImageNet, and
    the ratio is 0.2.
    """

    citation = GroupLasso.citation

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        example_inputs: Any,
        *,
        every: int = 10,
        threshold: float = 1e-4,
        ratio: float = 0.2,
        multiple: int = 1,
        batch: int | None = None,
        batch_multiple: int = 1,
        limit: int | None = None,
        scheduler: Any = None,
        verify: bool = True,
    ) -> None:
        if every < 1:
            raise ValueError(f"every={every}: wanted 1 or more epochs")
        if batch is not None and batch < 1:
            raise ValueError(f"batch={batch}: wanted 1 or more samples")
        self.model, self.optimizer, self.example_inputs = model, optimizer, example_inputs
        self.every, self.threshold, self.verify = every, threshold, verify
        self.multiple, self.batch_multiple = multiple, batch_multiple
        self.batch, self.limit = batch, limit
        self.scheduler = scheduler
        self.penalty = GroupLasso(model, ratio, example_inputs=example_inputs)
        self.epochs = 0
        self.reports: list[Reconfiguration] = []
        self._budget: float | None = None

    def end_epoch(self) -> Reconfiguration | None:
        """Cut if it is time to; to be called after every epoch.

        Returns
        -------
        Reconfiguration or None
            None in epochs without a cut.
        """
        self.epochs += 1
        if self.epochs % self.every:
            return None
        if self.batch is not None and self._budget is None:
            before = memory_use(self.model, self.optimizer, self.example_inputs)
            self._budget = before.total(self.batch)
        report = reconfigure(
            self.model,
            self.optimizer,
            self.example_inputs,
            threshold=self.threshold,
            multiple=self.multiple,
            verify=self.verify,
        )
        self.reports.append(report)
        if self.batch is not None and report.changed:
            self._grow(self.batch)
        return report

    def state_dict(self) -> dict[str, Any]:
        """What a run needs to go on beside the states of model (its shapes too) and optimizer."""
        return {
            "epochs": self.epochs,
            "batch": self.batch,
            "budget": self._budget,
            "penalty": self.penalty.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self.epochs, self.batch = state["epochs"], state["batch"]
        self._budget = state["budget"]
        self.penalty.load_state_dict(state["penalty"])

    def __repr__(self) -> str:
        cut = sum(report.plan.cut for report in self.reports)
        return f"PruneTrain(every {self.every} epochs; {self.epochs} done, {cut:,} channels cut)"

    def _grow(self, batch: int) -> None:
        assert self._budget is not None
        use = memory_use(self.model, self.optimizer, self.example_inputs)
        growth = grown_batch(
            batch, use=use, budget=self._budget, multiple=self.batch_multiple, limit=self.limit
        )
        self.batch = growth.batch
        for group in self.optimizer.param_groups:
            for name in ("lr", "initial_lr"):
                if name in group:
                    group[name] = group[name] * growth.factor
        if self.scheduler is not None:
            self.scheduler.base_lrs = [rate * growth.factor for rate in self.scheduler.base_lrs]
