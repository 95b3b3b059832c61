"""Policies whose workers go on by themselves: who is left makes the steps that are to come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, ClassVar

from dtoolkit.training.recovery.dealing import ByStacks, Dealer, Spread, shards_of
from dtoolkit.training.recovery.policy import Policy, count, not_finite, wiped_out
from dtoolkit.training.stacked import placement
from dtoolkit.training.stacked.endurance import best_redundancy

if TYPE_CHECKING:
    from dtoolkit.training.settings import Settings
    from dtoolkit.training.strategy import Strategy

__all__ = ["Elastic", "Replica", "Shrink", "Stacked"]


@dataclass(frozen=True)
class Elastic(Policy):
    """What policies share whose workers go on by themselves.

    They take "data-parallel" and "ordered", without compression. A batch is cut into the same
    shards however many workers are left; a step is made by all or by none; the result is that of
    the run without faults, to the bit. An exception, a lack of memory or a number that is not
    finite on a rank makes the step void, and it is made again; twice on one rank in one step is an
    error. Where too much is lost, or a number stays not finite, the run starts again from its
    checkpoint with all workers; a divergence then comes again at the same step, and is the error.

    Attributes
    ----------
    verify : int
        Every so many steps ranks compare fingerprints of what they hold; 0: only before a
        checkpoint. At 1 a rank that differs gets the state of the others; else the run starts
        again from its checkpoint.
    most : int
        How often it may start again.

    Raises
    ------
    TypeError, ValueError
        They are no integers, or too small.
    """

    elastic: ClassVar[bool] = True
    newcomers: ClassVar[bool] = False

    verify: int = 1
    most: int = 10

    def __post_init__(self) -> None:
        count("verify", self.verify, least=0)
        count("most", self.most)

    @property
    def attempts(self) -> int:
        """See :class:`Policy`."""
        return self.most

    @property
    def waits(self) -> float:
        """Seconds that survivors wait for newcomers."""
        return 0.0

    def restarts_after(self, error: BaseException) -> bool:
        """See :meth:`Policy.restarts_after`."""
        return wiped_out(error) or not_finite(error)

    def check(
        self, strategy: Strategy, settings: Settings, *, batch_norm: bool, ranks: int
    ) -> None:
        """See :meth:`Policy.check`."""
        name = f"recovery={self.name!r}"
        from dtoolkit.training.strategies import DataParallel, Ordered

        if type(strategy) not in (DataParallel, Ordered):  # one's own steps may be others
            raise ValueError(
                f"{name} recomputes the shards of lost workers, which strategy={strategy!r} does "
                "not have: use strategy='data-parallel' or 'ordered', or recovery='restart', which "
                "takes every strategy"
            )
        if settings.compression is not None:
            raise ValueError(
                f"compression= with {name}: what a worker owes of its compressed gradients is lost "
                "with it: leave compression out, or use recovery='restart'"
            )
        joint = (settings.batch_norm or strategy.batch_norm) == "sync"
        if joint and batch_norm and ranks > 1:
            raise ValueError(
                f"{name} computes shards one by one, and the model's batch norm uses the joint "
                "statistics of all workers: use strategy='ordered' (statistics by shard), "
                "batch_norm='local', or recovery='restart'"
            )

    def dealer(self, strategy: Strategy, workers: int) -> Dealer:
        """Who computes what."""
        return Spread(shards_of(strategy, workers), workers)


@dataclass(frozen=True)
class Shrink(Elastic):
    """Survivors go on; the shards of who is lost are spread over them. Nobody comes back."""

    name: ClassVar[str] = "shrink"


@dataclass(frozen=True)
class Replica(Elastic):
    """Survivors go on, and a worker that comes in place of a lost one joins at the next step.

    It gets the whole state from a peer while the run goes on.

    Attributes
    ----------
    patience : float
        Seconds that survivors wait for it before they go on without.
    """

    name: ClassVar[str] = "replica"
    newcomers: ClassVar[bool] = True

    patience: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.patience, Real) or isinstance(self.patience, bool):
            raise TypeError(f"patience={self.patience!r}: wanted seconds as a number")
        if not 0 <= self.patience < math.inf:
            raise ValueError(f"patience={self.patience!r}: wanted seconds, 0 or more")

    @property
    def waits(self) -> float:
        """See :class:`Elastic`."""
        return self.patience


@dataclass(frozen=True)
class Stacked(Elastic):
    """Stacked parallelism (SPARe): every worker can compute the shards of several.

    Stacks are placed by a Golomb ruler, and workers compute the first of theirs. After a loss
    survivors reorder their stacks with as few changes as can be, compute what is missing of the
    step that was interrupted, and go on; nobody comes back. Only when all holders of a shard are
    gone does the run start again from its checkpoint, with all workers.

    Source: SPARe (arXiv 2603.00357), see :mod:`dtoolkit.training.stacked`.

    Attributes
    ----------
    redundancy : int or None
        Shards of a stack; by default the best for the number of workers
        (:func:`~dtoolkit.training.stacked.best_redundancy`).
    """

    name: ClassVar[str] = "stacked"

    redundancy: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.redundancy is not None:
            count("redundancy", self.redundancy)

    def check(
        self, strategy: Strategy, settings: Settings, *, batch_norm: bool, ranks: int
    ) -> None:
        """See :meth:`Policy.check`."""
        super().check(strategy, settings, batch_norm=batch_norm, ranks=ranks)
        placement(ranks, self.redundancy or best_redundancy(ranks))

    def dealer(self, strategy: Strategy, workers: int) -> Dealer:
        """See :class:`Elastic`."""
        redundancy = self.redundancy or best_redundancy(workers)
        return ByStacks(shards_of(strategy, workers), workers, redundancy=redundancy)
