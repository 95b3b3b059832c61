"""A step that a rank makes alone: its own samples, its own optimizer."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtoolkit.training.capture import replica_state, restore
from dtoolkit.training.finite import check_gradients
from dtoolkit.training.state import RunState

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["LocalStep", "check_workers", "load_local", "local_state", "local_step", "step_schedule"]


@dataclass(frozen=True)
class LocalStep:
    """What a rank did.

    Attributes
    ----------
    loss_sum : float
    samples : int
        Used by this rank; with none its model and optimizer are as they were.
    seconds : float
    """

    loss_sum: float
    samples: int
    seconds: float


def local_step(replica: Replica, step: int, *, scheduled: bool = True) -> LocalStep:
    """Compute a rank's share of a batch and step its own optimizer with the mean gradient.

    The schedule is stepped on all ranks, those without samples included, so that they agree on the
    learning rate; with ``scheduled=False`` on none.

    Raises
    ------
    FloatingPointError
        A loss or a gradient is not finite.
    """
    start = time.perf_counter()
    loss, samples = 0.0, 0
    shares = replica.sampler.share(step, replica.rank)
    planned = sum(map(len, shares))
    for micro, ids in enumerate(shares):
        one, count = replica.backward(ids, step=step, micro=micro, weight=1 / max(planned, 1))
        loss, samples = loss + one, samples + count
    check_gradients(replica, step)
    replica.update(min(samples, 1), scheduled=scheduled)  # divided already
    if scheduled and not samples:
        step_schedule(replica)
    return LocalStep(loss, samples, time.perf_counter() - start)


def step_schedule(replica: Replica) -> None:
    """Step a rank's schedule, whether or not it has stepped its optimizer."""
    if replica.schedule is None:
        return
    with warnings.catch_warnings():
        # torch warns of a schedule whose optimizer has not been stepped: here on purpose.
        warnings.simplefilter("ignore", UserWarning)
        replica.schedule.step()


def local_state(replica: Replica) -> dict[str, Any]:
    """A rank's own model, optimizer and schedule: plain content, as copies on the host."""
    here = replica_state(replica, 0)
    return {"model": here.model, "optimizer": here.optimizer, "schedule": here.schedule}


def load_local(replica: Replica, own: dict[str, Any]) -> None:
    """Take back what :func:`local_state` gave, to the bit."""
    parts = {name: own[name] for name in ("model", "optimizer", "schedule")}
    restore(replica, RunState(step=0, strategy="", workers=1, seed=0, **parts))


def check_workers(strategy: str, own: dict[str, Any], workers: int) -> None:
    """Refuse what ranks of another number of workers kept.

    Raises
    ------
    ValueError
    """
    if own.get("workers", workers) != workers:
        raise ValueError(
            f"resume: this {strategy} run was saved by {own['workers']} workers, each with a "
            f"state of its own, and cannot go on with {workers}: resume it with "
            f"{own['workers']}, or begin a new run from its model"
        )
