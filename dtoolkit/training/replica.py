"""One rank's copy of what learns: model, optimizer, schedule, and the samples it draws."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import nn

from dtoolkit.training.evaluation import evaluate
from dtoolkit.training.finite import penalty_gradients
from dtoolkit.training.loaded import load
from dtoolkit.training.norm import Ranks, has_batch_norm, over_ranks, share_by_share
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.seeds import seeded
from dtoolkit.training.settings import Settings
from dtoolkit.training.sparse.sparse import Sparse
from dtoolkit.training.task import Examples, check_model, check_task, check_values

__all__ = ["Replica"]

_WAKE = 0.05  # seconds of sleep between two looks at whether the launch goes on


class Replica:
    """Model, optimizer and schedule of one rank, and what a strategy does with them.

    It works alone: nothing is sent but by :meth:`evaluate`, by batch norm where it is "sync", and
    while it is made, to see that what callables of the task load is the same on all ranks.

    Parameters
    ----------
    ctx : Context
        As a function of a launch gets it.
    task : Task
    settings : Settings
    batch_norm : "sync", "local" or "shard"
        Used where the settings leave the choice.
    shards : int, optional
        Shards of a batch (:class:`~dtoolkit.training.sampling.Sampler`).

    Attributes
    ----------
    ctx, task, settings
    sampler : Sampler
    examples : Examples
        The training set, on this rank's device.
    test : Examples or None
        The test set, on this rank's device, if the task has one.
    model : nn.Module
    optimizer : torch.optim.Optimizer
    schedule : scheduler or None
    sparse : Sparse or None
        What keeps the model sparse (:mod:`dtoolkit.training.sparse`).
    parameters : list of (str, nn.Parameter)
        What is learned: no duplicates (tied parameters once), nothing frozen.
    batch_norm : str
    rank, size : int
    comm : Communicator
    device : torch.device

    Raises
    ------
    ReplicaMismatch
        A callable of the task loads other examples on another rank. Of a large set, evenly spaced
        samples are compared (128 MiB of them); of a smaller one, all.
    """

    def __init__(
        self,
        ctx: Any,
        task: Any,
        settings: Settings,
        *,
        batch_norm: str = "sync",
        shards: int | None = None,
    ) -> None:
        check_task(task)
        self.ctx, self.task, self.settings = ctx, task, settings
        self.comm, self.device = ctx.comm, ctx.device
        self.rank, self.size = ctx.rank, ctx.size
        self.batch_norm = settings.batch_norm or batch_norm
        self.examples: Examples = load(self, "train")
        self.test: Examples | None = None
        if getattr(task, "test", None) is not None:
            self.test = load(self, "test")
        self.sampler = Sampler(
            len(self.examples),
            settings.batch or task.batch,
            seed=settings.seed,
            ranks=self.size,
            partition=settings.partition,
            accumulate=settings.accumulate,
            shards=shards,
        )
        self._step: int | None = None  # of the last backward: what errors of an update name
        self._norm: Ranks | None = None
        self.model = self.make_model()
        self.parameters = [
            (name, value) for name, value in self.model.named_parameters() if value.requires_grad
        ]
        learned = [value for _, value in self.parameters]
        # No optimizer takes an empty list: a model that has nothing to learn gets nothing to step.
        self.optimizer = (settings.optimizer or task.optimizer)(
            learned or [nn.Parameter(torch.empty(0))]
        )
        make = settings.schedule or getattr(task, "schedule", None)
        self.schedule = None if make is None else make(self.optimizer)
        self.sparse: Sparse | None = None
        if settings.sparsity is not None:
            self.sparse = settings.sparsity.made(self)

    def make_model(self) -> nn.Module:
        """Make a model of the task for this rank: as the first, where the task's function can."""
        with seeded(self.settings.seed, "model"):
            model = self.task.model()
        if not isinstance(model, nn.Module):
            raise TypeError(f"task.model() gave {model!r}: wanted an nn.Module")
        model.to(self.device)
        check_model(model)
        if not model.training:  # as pretrained ones come; parts alone stay as they are
            model.train()
        if self.batch_norm != "sync":
            return share_by_share(model)
        if self.size > 1 and has_batch_norm(model):
            # Of its own: gradients of other layers are under way while backward runs.
            self._norm = self._norm or Ranks(self.comm.split(0))
            return over_ranks(model, self._norm)
        return model

    # ---------------------------------------------------------------------------- gradients

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for _, value in self.parameters:
            value.grad = None

    def backward(
        self,
        ids: torch.Tensor,
        *,
        step: int,
        micro: int,
        item: int | None = None,
        weight: float = 1.0,
    ) -> tuple[float, int]:
        """Add the gradient of the sum of some samples' losses to ``.grad``.

        Where batch norm is "local" or "shard", layers to which the samples give but one value a
        channel (one sample, say) use their running statistics, and do not update them.

        Parameters
        ----------
        ids : int64 tensor
            Samples; none cost nothing, but take part where batch norm spans the ranks.
        step, micro : int
            What randomness inside the model is drawn from, together with the seed and
        item : int, optional
            the shard, or by default this rank.
        weight : float
            Of the gradient. Who knows beforehand how many samples all ranks will use may divide
            here, which saves a pass over all gradients.

        Returns
        -------
        loss_sum : float
        samples : int

        Raises
        ------
        FloatingPointError
            A loss is not finite.
        ValueError
            The loss is not one value a sample.
        """
        self._step = step
        if not len(ids):
            self._stand_in(step, micro)
            self.expose_gradients()
            return 0.0, 0
        start = time.perf_counter()
        item = self.rank if item is None else item
        with seeded(self.settings.seed, "forward", step, item, micro, device=self.device):
            losses = self.loss_of(ids)
            total = float(losses.detach().double().sum())
            if not math.isfinite(total):
                raise FloatingPointError(
                    f"the loss is {total} on rank {self.rank} at step {step} (micro-batch {micro})"
                )
            if self.parameters:
                if not losses.requires_grad:
                    raise ValueError(
                        "task.loss gave losses that depend on no learned parameter: were they "
                        "detached, or computed under no_grad?"
                    )
                summed = losses.sum()
                (summed if weight == 1 else summed * weight).backward()
        if self.sparse is not None:
            self.sparse.note(total, len(ids))
        self.slow(step, micro, time.perf_counter() - start)
        self.expose_gradients()
        return total, len(ids)

    def loss_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Loss of each of some samples, with its graph; checked to be one value a sample."""
        inputs, targets = self.examples.take(ids)
        return check_values(self.task.loss(self.model, inputs, targets), len(ids), "loss")

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All gradients as one flat tensor, and which parameters have one.

        Returns
        -------
        flat : torch.Tensor
            In the order of :attr:`parameters`, zeros where there is none; of the widest dtype.
        used : bool tensor, shape (parameters,)
        """
        grads = [value.grad for _, value in self.parameters]
        flat = self._flat(
            [
                torch.zeros_like(value) if grad is None else grad
                for (_, value), grad in zip(self.parameters, grads, strict=True)
            ]
        )
        return flat, torch.tensor([grad is not None for grad in grads], dtype=torch.bool)

    def load_gradients(self, flat: torch.Tensor, used: torch.Tensor | None = None) -> None:
        """Take gradients as :meth:`gradients` gives them; those that are not `used` are None."""
        have = [True] * len(self.parameters) if used is None else used.tolist()
        for (_, value), piece, one in zip(self.parameters, self._cut(flat), have, strict=True):
            value.grad = piece.to(value.dtype, copy=True) if one else None

    def update(self, samples: float, *, share: float = 1.0, scheduled: bool = True) -> None:
        """Make one step of optimizer and schedule with the gradients that are there.

        Then of what keeps the model sparse, for which the ranks may tell each other their losses.

        Parameters
        ----------
        samples : float
            What the gradients are divided by: samples really used, of all ranks, or 1 where that
            was done. With none there is no update.
        share : float
            Part of a whole step that the gradients stand for: the task's penalty counts as much.
        scheduled : bool
            False: the schedule is not stepped; the caller does so after whole steps.
        """
        if samples:
            grads = [value.grad for _, value in self.parameters if value.grad is not None]
            if grads and samples != 1:
                torch._foreach_div_(grads, float(samples))
            if self.sparse is not None:
                self.sparse.begin()
            self._penalise(share)
            self.optimizer.step()
            if self.sparse is not None:
                self.sparse.stepped()
            if self.schedule is not None and scheduled:
                self.schedule.step()
        if self.sparse is not None and self._step is not None:
            self.sparse.finish(self._step)
        self.zero_grad()

    # ---------------------------------------------------------------------------- parameters

    def flat_parameters(self) -> torch.Tensor:
        """A copy of all learned parameters as one flat tensor, of the widest dtype."""
        return self._flat([value.detach() for _, value in self.parameters])

    def load_parameters(self, flat: torch.Tensor) -> None:
        """Take parameters as :meth:`flat_parameters` gives them."""
        with torch.no_grad():
            for (_, value), piece in zip(self.parameters, self._cut(flat), strict=True):
                value.copy_(piece)

    def state(self) -> dict[str, Any]:
        """Model, optimizer and schedule, as copies."""
        return {
            "model": {k: v.detach().clone() for k, v in self.model.state_dict().items()},
            "optimizer": _copied(self.optimizer.state_dict()),
            "schedule": None if self.schedule is None else _copied(self.schedule.state_dict()),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state` gave, here or on another rank or day."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None and state["schedule"] is not None:
            self.schedule.load_state_dict(state["schedule"])

    # ---------------------------------------------------------------------------- evaluation

    def evaluate(self, state: dict[str, torch.Tensor] | None = None) -> dict[str, float]:
        """Mean loss and metrics on the test set, shared out among the ranks; collective.

        The set is cut into chunks whose size depends on it alone, and their sums are added in
        order: the figures do not depend on the number of ranks.

        Parameters
        ----------
        state : dict, optional
            The model to evaluate, as a state dict; by default this rank's own.

        Returns
        -------
        dict
            ``test_loss`` and ``test_<metric>``; empty where the task has no test set.
        """
        return evaluate(self, state)

    def alive(self) -> None:
        """Give a sign of life in what takes long."""
        beat = getattr(self.ctx, "alive", None)
        if beat is not None:
            beat()

    # ------------------------------------------------------------------------------- helpers

    def _stand_in(self, step: int, micro: int) -> None:
        """Take part in the exchanges of batch norm without samples: one sample that counts as none.

        Many a model takes no empty batch.
        """
        if self._norm is None or not len(self.sampler.micro_batches(step)[micro]):
            return
        self._norm.void = True
        try:
            with seeded(self.settings.seed, "forward", step, self.rank, micro, device=self.device):
                loss = self.loss_of(torch.zeros(1, dtype=torch.int64)).sum()
                learned = [value for _, value in self.parameters]
                if learned:
                    torch.autograd.grad(loss, learned, allow_unused=True)  # .grad stays as it is
        finally:
            self._norm.void = False

    def expose_gradients(self) -> None:
        """Show the gradients that are there to the instruments of the launch."""
        expose = getattr(self.ctx, "expose", None)
        if expose is not None:
            expose("gradients", self._gradients_by_name)

    def _gradients_by_name(self) -> dict[str, torch.Tensor]:
        return {name: value.grad for name, value in self.parameters if value.grad is not None}

    def _penalise(self, share: float) -> None:
        penalty = getattr(self.task, "penalty", None)
        terms = [] if penalty is None else [penalty(self.model)]
        more = None if self.sparse is None else self.sparse.penalty(self.model)
        terms += [] if more is None else [more]
        if not terms or not self.parameters:
            return
        extra = penalty_gradients(self, sum(terms[1:], terms[0]), self._step)
        for (_, value), more in zip(self.parameters, extra, strict=True):
            if more is not None:
                more = more if share == 1 else more * share
                value.grad = more if value.grad is None else value.grad.add_(more)

    def slow(self, step: int, micro: int, took: float) -> None:
        """Sleep as the faults ask for, awake enough to hear of a stop."""
        pauses = [getattr(fault, "pause", None) for fault in self.settings.faults]
        seconds = sum(
            float(pause(self.settings.seed, self.rank, step, micro, took))
            for pause in pauses
            if pause is not None
        )
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            time.sleep(min(left, _WAKE))
            if left > _WAKE:
                self.comm.check()

    def _flat(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        dtype = torch.float32
        if tensors:
            dtype = tensors[0].dtype
            for one in tensors[1:]:
                dtype = torch.promote_types(dtype, one.dtype)
        empty = torch.empty(0, dtype=dtype, device=self.device)
        return torch.cat([empty, *(one.reshape(-1).to(dtype) for one in tensors)])

    def _cut(self, flat: torch.Tensor) -> list[torch.Tensor]:
        pieces = torch.split(flat, [value.numel() for _, value in self.parameters])
        return [
            piece.reshape(value.shape)
            for piece, (_, value) in zip(pieces, self.parameters, strict=True)
        ]


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(one) for one in value)
    return value
