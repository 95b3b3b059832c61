"""One point of a sweep, and how the axes of a sweep make all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dtoolkit.training.study.sizes import ModelSize

__all__ = ["Axes", "Setting", "Way", "settings_of"]


@dataclass(frozen=True)
class Way:
    """How workers learn as one, as a column of the results names it.

    Attributes
    ----------
    name : str
        ``"zero-0"`` to ``"zero-3"``, or the strategy's.
    stage : int or None
        ZeRO's stage; None where the cost model knows the strategy not.
    strategy : Strategy
    """

    name: str
    stage: int | None
    strategy: Any = field(compare=False)


@dataclass(frozen=True)
class Setting:
    """A point of the sweep, in plain values.

    Attributes
    ----------
    model : str
    workers : int
    strategy : str
    stage : int or None
    batch : int
        Samples of a step, of all workers together.
    micro_batch : int
        Samples that a worker computes at once.
    learning_rate : float or None
        None: the task's own; and where it is modelled, for it costs nothing.
    scaling : {"strong", "weak", "both"}
        Whether the batch stays as workers grow in number, grows with them, or is where both begin.
    """

    model: str
    workers: int
    strategy: str
    stage: int | None
    batch: int
    micro_batch: int
    learning_rate: float | None
    scaling: str

    @property
    def accumulate(self) -> int:
        """Micro-batches that a worker computes in a step."""
        return max(1, self.batch // (self.workers * self.micro_batch))

    @property
    def divides(self) -> bool:
        """Whether the batch is a whole number of micro-batches of every worker."""
        return self.batch % (self.workers * self.micro_batch) == 0

    @property
    def rivals(self) -> Setting:
        """What all settings have in common that differ in the learning rate alone."""
        return replace(self, learning_rate=None)

    def __str__(self) -> str:
        rate = "" if self.learning_rate is None else f", learning rate {self.learning_rate:g}"
        noun = "worker" if self.workers == 1 else "workers"
        return (
            f"{self.model} by {self.strategy} on {self.workers:,} {noun}, batch {self.batch:,} in "
            f"micro-batches of {self.micro_batch:,}{rate}"
        )


@dataclass(frozen=True)
class Axes:
    """What is swept over.

    Attributes
    ----------
    models : tuple of ModelSize
    batches : tuple of int
        Batch of each model on the least number of workers.
    workers : tuple of int
        Ascending.
    ways : tuple of Way
    micro_batches : tuple of int
    learning_rates : tuple of float or None
    scaling : tuple of str
    """

    models: tuple[ModelSize, ...]
    batches: tuple[int, ...]
    workers: tuple[int, ...]
    ways: tuple[Way, ...]
    micro_batches: tuple[int, ...]
    learning_rates: tuple[float | None, ...]
    scaling: tuple[str, ...]


def settings_of(axes: Axes, rates: Sequence[float | None]) -> Iterator[tuple[ModelSize, Setting]]:
    """All points of a sweep, those of a model and a number of workers after each other."""
    for model, batch in zip(axes.models, axes.batches, strict=True):
        for workers in axes.workers:
            for size, scaling in _batches(axes, batch, workers):
                for way in axes.ways:
                    for micro in axes.micro_batches:
                        for rate in rates:
                            yield (
                                model,
                                Setting(
                                    model=model.name,
                                    workers=workers,
                                    strategy=way.name,
                                    stage=way.stage,
                                    batch=size,
                                    micro_batch=micro,
                                    learning_rate=rate,
                                    scaling=scaling,
                                ),
                            )


def _batches(axes: Axes, batch: int, workers: int) -> list[tuple[int, str]]:
    """Batches of a number of workers: the fixed one, and that which has grown with them."""
    least = axes.workers[0]
    if workers == least and len(axes.scaling) > 1:
        return [(batch, "both")]
    grown = batch * workers // least
    return [(batch if one == "strong" else grown, one) for one in axes.scaling]
