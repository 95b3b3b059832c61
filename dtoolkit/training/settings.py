"""What a run was asked for, beside its task and its strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dtoolkit.training.sparse.recipe import Recipe

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """Settings of a training run.

    Attributes
    ----------
    steps : int
        Steps in all, those of a run that is resumed included.
    seed : int
    batch : int or None
        Samples of a global batch; None: the task's.
    accumulate : int
        Micro-batches a global batch.
    partition : "block", "cyclic", Layout, array of int or None
        Who computes each sample (:class:`~dtoolkit.training.sampling.Sampler`).
    optimizer, schedule : callable or None
        In place of the task's.
    compression : object or None
    faults : tuple
        What goes wrong on purpose.
    batch_norm : "sync", "local", "shard" or None
        Whose statistics batch norm uses; None: the strategy's choice.
    evaluate_every : int or None
        Steps between evaluations.
    sparsity : Recipe or None
        How the model is made sparse.
    terms : dict
        What the run's state keeps of what was asked
        (:func:`~dtoolkit.training.terms.terms_of`).
    """

    steps: int
    seed: int = 0
    batch: int | None = None
    accumulate: int = 1
    partition: Any = None
    optimizer: Callable[..., Any] | None = None
    schedule: Callable[..., Any] | None = None
    compression: Any = None
    faults: tuple[Any, ...] = ()
    batch_norm: str | None = None
    evaluate_every: int | None = None
    sparsity: Recipe | None = None
    terms: dict[str, Any] = field(default_factory=dict)
