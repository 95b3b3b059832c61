"""A larger batch where memory has become free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dtoolkit.sparsity.channels.graph import arguments, in_mode
from dtoolkit.sparsity.channels.report import model_bytes

__all__ = ["BatchGrowth", "MemoryUse", "grown_batch", "memory_use"]


@dataclass(frozen=True)
class MemoryUse:
    """What a training step holds in memory, in bytes.

    Attributes
    ----------
    fixed : int
        Parameters, gradients, buffers, optimizer state.
    per_sample : float
        What a forward pass keeps for the backward pass, of each sample.
    """

    fixed: int
    per_sample: float

    def total(self, batch: int) -> float:
        """Bytes with a batch."""
        return self.fixed + batch * self.per_sample


@dataclass(frozen=True)
class BatchGrowth:
    """The next batch, and what learning rates are to be multiplied with.

    Attributes
    ----------
    batch : int
        Samples.
    factor : float
        New batch over old one.
    """

    batch: int
    factor: float


def memory_use(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, example_inputs: Any
) -> MemoryUse:
    """Measure what a training step holds, by running the model forward once.

    What autograd saves is counted, each storage once, without the parameters; what kernels need for
    a moment is not.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer or None
        State that it will only make at its first step is not counted.
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments
        The first dimension of the first tensor is the batch.

    Returns
    -------
    MemoryUse
    """
    positional, named = arguments(example_inputs)
    inputs = [v for v in tree_leaves((positional, named)) if isinstance(v, torch.Tensor)]
    if not inputs or not inputs[0].dim() or not len(inputs[0]):
        raise ValueError("example_inputs: wanted a tensor with one row a sample")
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            saved[place] = tensor  # held, so that no other tensor gets its place
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with in_mode(model, training=True), torch.random.fork_rng(devices=[]), torch.enable_grad():
        with hooks:
            kept = model(*positional, **named)
        activations = sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
        del kept
    gradients = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return MemoryUse(model_bytes(model, optimizer) + gradients, activations / len(inputs[0]))


def grown_batch(
    batch: int,
    *,
    use: MemoryUse,
    budget: float,
    multiple: int = 1,
    limit: int | None = None,
) -> BatchGrowth:
    """Let the batch grow into memory that has become free, and the learning rate with it.

    The next batch is ``(budget - use.fixed) / use.per_sample``, rounded down to a multiple, at most
    the limit, and never smaller than the batch now; learning rates grow as the batch does (Lym et
    al., 2019, dynamic mini-batch adjustment).

    Parameters
    ----------
    batch : int
        Samples now.
    use : MemoryUse
        After the cut, as :func:`memory_use` measures it.
    budget : float
        Bytes that may be used: those of the first batch before any cut, or what the device has.
    multiple : int
    limit : int, optional
        Largest batch.

    Returns
    -------
    BatchGrowth

    Raises
    ------
    ValueError
        A number is out of range.
    """
    for name, value in {"batch": batch, "multiple": multiple, "limit": limit or 1}.items():
        if value < 1:
            raise ValueError(f"{name}={value}: wanted 1 or more")
    if use.per_sample <= 0:
        raise ValueError(f"use.per_sample={use.per_sample}: wanted more than 0")
    room = int((budget - use.fixed) // use.per_sample) // multiple * multiple
    if limit is not None:
        room = min(room, limit)
    after = max(batch, room)
    return BatchGrowth(after, after / batch)
