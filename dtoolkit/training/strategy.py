"""What the trainer asks of a strategy: the protocol of everything in ``training/strategies``."""

# ruff: noqa: B027  -- what a strategy need not do is left empty here
from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["Promise", "StepReport", "Strategy"]


@dataclass(frozen=True)
class Promise:
    """What equals what, in short words that documentation and the conformance table show.

    Attributes
    ----------
    trajectory : str
        What the parameters equal: "one process", "one process where every step averages" ...
    resume : str
        How exact a stop and resume is.
    other_workers : str
        What holds when the number of workers changes.
    """

    trajectory: str
    resume: str
    other_workers: str


@dataclass
class StepReport:
    """What one rank did in one step.

    Attributes
    ----------
    loss_sum : float
        Sum of the losses of the samples used here.
    samples : int
        Samples really used here.
    planned : int
        Samples that were meant to be used here.
    compute : float
        Seconds of forward and backward.
    idle : float
        Seconds spent waiting for other ranks; transfers do not count.
    staleness : int
        Versions by which what was sent lagged behind when it was applied.
    local_steps : int
        Steps of the optimizer that were made here.
    extra : dict
        Further plain values.
    """

    loss_sum: float
    samples: int
    planned: int
    compute: float
    idle: float
    staleness: int = 0
    local_steps: int = 1
    extra: dict[str, Any] = field(default_factory=dict)


class Strategy(ABC):
    """How many replicas learn as one.

    A class of one says its `name`, and its `promise` where it makes any; what lacks a name, or has
    another `batch_norm` than those below, is a TypeError when the class is made.

    Settings are given to ``__init__`` and checked there. What belongs to a run is made by
    :meth:`configure`, on every rank; instances travel to the workers by pickle before that.

    Attributes
    ----------
    name : str
    batch_norm : str
        Whose statistics batch norm uses: "sync" (all ranks), "local" (each its own) or "shard".
    replicated : bool
        Whether all ranks hold the same bits after each step.
    promise : Promise
    masks, cuts : bool
        Whether it trains a model whose weights are masked, or whose channels are cut, the same on
        all ranks: every update is one of all ranks, made by :meth:`Replica.update`, and what it
        lays out by parameter it lays anew when ``replica.sparse.changes`` has changed.
    row_gradients : bool
        Whether it brings together gradients that an optimizer takes by rows
        (:class:`~dtoolkit.training.slide.RowSparseAdam`) and that are no ``.grad``.
    free : bool
        Ranks make as many steps as they can until :meth:`step` says None: fast ones more than slow
        ones. The trainer then counts each rank's steps by themselves, and asks :meth:`reached` how
        far the whole run is.
    shards : int or None
        Shards that a batch is cut into whatever the number of ranks; None: one share a rank.
    """

    name: ClassVar[str]
    batch_norm: ClassVar[str] = "sync"
    replicated: ClassVar[bool] = True
    masks: ClassVar[bool] = False
    cuts: ClassVar[bool] = False
    row_gradients: ClassVar[bool] = False
    free: bool = False
    promise: ClassVar[Promise] = Promise("not said", "not said", "not said")
    shards: int | None = None

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if any(getattr(getattr(cls, name), _ABSTRACT, False) for name in ("configure", "step")):
            return  # something that strategies share
        _check_said(cls)

    def check(self, settings: Settings) -> None:
        """Refuse settings that do not fit, on the client, before anything is sent.

        Raises
        ------
        ValueError
        """

    @abstractmethod
    def configure(self, replica: Replica) -> None:
        """Prepare a rank, before its first step and after its state was restored."""

    def until(self, replica: Replica, step: int, meeting: int) -> None:
        """Hear where the ranks meet next; called on every rank whenever they go on together.

        Parameters
        ----------
        replica : Replica
        step : int
            Steps of the run that are done.
        meeting : int
            Steps that are to be done when the ranks meet: to evaluate, to save, or to end.
        """

    @abstractmethod
    def step(self, replica: Replica, step: int) -> StepReport | None:
        """Make one step on a rank: `step` is its own count.

        None where :attr:`free` ranks have nothing more to do before they meet.
        """

    def stop(self, replica: Replica) -> None:
        """Meet soon: called on rank 0, once, between two of its steps.

        Only where :attr:`free`; the others agree on a stop where they meet.
        """

    def reached(self, replica: Replica, step: int) -> int:
        """Steps of the whole run that are done, the same on all ranks, after :meth:`pause`.

        `step` is this rank's own count.
        """
        return step

    def reconcile(self, replica: Replica) -> dict[str, torch.Tensor]:
        """The one model of all ranks, as a state dict; replicas are left as they are.

        Collective: all ranks call it at the same step.
        """
        return {name: value.detach().clone() for name, value in replica.model.state_dict().items()}

    def meets(self, step: int) -> bool:
        """Whether all ranks are together after this step, so that a run can stop there."""
        return True

    def pause(self, replica: Replica) -> None:
        """Bring what is under way to an end, so that a stop here is clean; collective."""

    def finish(self, replica: Replica) -> None:
        """End threads and give back what was taken; called after errors too."""

    def own_state(self) -> dict[str, Any]:
        """What is a rank's own and needed to go on: tensors, numbers, strings, lists, dicts."""
        return {}

    def restore(self, own: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` gave; called after :meth:`configure`."""

    def summary(self) -> dict[str, Any]:
        """Plain values for the run's card."""
        return {}

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in given.items())})"


_ABSTRACT = "__isabstractmethod__"


def _check_said(kind: type[Strategy]) -> None:
    """Refuse a class of strategies that does not say what it is."""
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(
            f"{kind.__name__}: the class attribute name is {name!r}: wanted the strategy's name, "
            "a text"
        )
    if not isinstance(kind.promise, Promise):
        raise TypeError(
            f"{kind.__name__}: the class attribute promise is {kind.promise!r}: wanted a Promise"
        )
    # A property, say, speaks for an instance.
    if isinstance(kind.batch_norm, str) and kind.batch_norm not in _BATCH_NORMS:
        raise TypeError(
            f"{kind.__name__}: the class attribute batch_norm is {kind.batch_norm!r}: wanted one "
            f"of {', '.join(_BATCH_NORMS)}"
        )


_BATCH_NORMS = ("sync", "local", "shard")
