"""What each recovery policy is expected to do, in closed forms of first order.

"restart" and "stacked" follow SPARe (:mod:`dtoolkit.training.stacked.endurance`); "shrink" and
"replica" are derived here. First order means that failures are rarer than checkpoints, and steps
shorter than both: where they are not, believe the simulation
(:func:`dtoolkit.training.stacked.simulate`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dtoolkit.training.stacked.conditions import Conditions
from dtoolkit.training.stacked.endurance import (
    availability,
    endurable,
    endurable_replaced,
    fewest_computed,
    mean_computed,
)

__all__ = ["Expected", "expected"]


@dataclass(frozen=True)
class Expected:
    """What a policy is expected to do.

    Attributes
    ----------
    redundancy : int
        Groups that can compute a type of shard without data from elsewhere.
    endured : float
        Losses to the wipe-out.
    computed : float
        Shards that a group computes in a step, in the mean.
    available : float
        Share of the time in which steps are made that count.
    """

    redundancy: int
    endured: float
    computed: float
    available: float


def expected(name: str, n: int, r: int, given: Conditions) -> Expected:
    """The closed form of a policy.

    Parameters
    ----------
    name : {"restart", "shrink", "replica", "stacked"}
    n, r : int
        Groups; redundancy of stacks.
    given : Conditions

    Returns
    -------
    Expected
    """
    if name == "shrink":
        return _shrunk(n, given)
    if name == "replica":
        return _rejoined(n, given)
    held = r if name == "stacked" else 1
    endured = endurable(n, held)
    going = max(0.0, 1 - given.pause / given.mtbf) if held > 1 else 1.0
    return Expected(held, endured, mean_computed(n, held), _up(endured, given) * going)


def _up(endured: float, given: Conditions) -> float:
    """Availability where so many losses are endured."""
    if math.isinf(endured):
        return 1.0
    failure, period = endured * given.mtbf, given.period(endured)
    if period <= given.save:  # checkpoints that cost nothing are written all the time
        return failure / (failure + given.restart)
    return availability(period, save=given.save, restart=given.restart, failure=failure)


def _shrunk(n: int, given: Conditions) -> Expected:
    """With ever fewer groups: loss after loss, each after the mean time and each for a shard.

    As far as the run goes; one that goes on when the last group is lost is restarted with all.
    """
    left = float(given.steps)
    steps = shards = busy = spent = 0.0
    for lost in range(n):
        S = fewest_computed(n, lost)
        a_step = S * given.compute + given.reduce[0]
        patch = given.pause + given.compute if lost else 0.0
        made = min(max(given.mtbf - patch, 0.0) / a_step, left)
        steps, shards, left = steps + made, shards + made * S, left - made
        busy += made * a_step
        spent += given.mtbf if left > 0 else patch + made * a_step
        if left <= 0:
            break
    up = busy / spent * (_up(float(n), given) if left > 0 else 1.0)
    return Expected(n, max(1.0, n - 1.0), shards / steps, up)


def _rejoined(n: int, given: Conditions) -> Expected:
    """With newcomers: while one is awaited some compute two shards; each loss costs one more."""
    awaited = 1 - math.exp(-given.replace / given.mtbf)
    lost = given.pause + given.compute + given.catch_up
    endured = endurable_replaced(n, replace=given.replace, mtbf=given.mtbf)
    up = max(0.0, 1 - lost / given.mtbf) * _up(endured, given)
    return Expected(n, endured, 1 + awaited * (n > 1), up)
