"""Training under failures, event by event: checkpoints alone, replication, and stacks compared.

No worker is needed, so that a thousand groups can be tried for ten thousand steps in seconds. All
times are modelled. The rules are those that :attr:`Simulation.assumptions` writes out; where notes
on the paper (SPARe, arXiv 2603.00357) leave one open, it is chosen here and said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pandas as pd

from dtoolkit.training.stacked.conditions import Conditions, Patch
from dtoolkit.training.stacked.endurance import best_redundancy
from dtoolkit.training.stacked.losing import Losing, Masked, Rejoining, Replicated, Shrinking
from dtoolkit.training.stacked.placement import CITATION, placement
from dtoolkit.training.steptimes import check_count

__all__ = ["Outcome", "Simulation", "simulate"]

Policy = Literal["checkpoint", "replication", "stacked", "shrink", "replica"]

PAPER: tuple[Policy, ...] = ("checkpoint", "replication", "stacked")

_GIVEN_UP = 200  # times the ideal, after which a run is not followed further


@dataclass(frozen=True)
class Outcome:
    """What a policy made of a run (simulated).

    Attributes
    ----------
    policy : {"checkpoint", "replication", "stacked", "shrink", "replica"}
    redundancy : int
        r: groups that hold each type of shard.
    period : float
        Seconds from one checkpoint to the next, T_c; infinite where none is needed.
    seconds : float
        Time to train; infinite where the run had taken 200 times the ideal and was given up.
    ideal : float
        The same without failures, checkpoints and redundancy, in seconds.
    steps, steps_lost : int
        Steps that counted; those that were made and lost with a wipe-out.
    failures, wipe_outs, checkpoints, patches : int
        Groups that were lost; losses that ended in a restart; checkpoints written; losses after
        which survivors computed something beside what they did anyway.
    computed : float
        Mean shards a group and step.
    """

    policy: Policy
    redundancy: int
    period: float
    seconds: float
    ideal: float
    steps: int
    steps_lost: int
    failures: int
    wipe_outs: int
    checkpoints: int
    patches: int
    computed: float

    @property
    def ratio(self) -> float:
        """Time to train over that without failures."""
        return self.seconds / self.ideal


@dataclass(frozen=True, repr=False)
class Simulation:
    """Policies under the same failures (simulated). Made by :func:`simulate`.

    Attributes
    ----------
    groups : int
    conditions : Conditions
    outcomes : tuple of Outcome
        In the order asked for.
    tried : tuple of Outcome
        All redundancies of replication that were tried; the best is among the outcomes.
    seed : int
    """

    groups: int
    conditions: Conditions
    outcomes: tuple[Outcome, ...]
    tried: tuple[Outcome, ...]
    seed: int

    def __getitem__(self, policy: str) -> Outcome:
        for outcome in self.outcomes:
            if outcome.policy == policy:
                return outcome
        there = ", ".join(outcome.policy for outcome in self.outcomes)
        raise KeyError(f"{policy!r} was not simulated: {there}")

    @property
    def cut(self) -> float:
        """Share of the time that stacks save against replication and checkpoints."""
        return 1 - self["stacked"].seconds / self["replication"].seconds

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The rules of the simulation, in sentences."""
        return self.conditions.rules([outcome.policy for outcome in self.outcomes])

    def table(self) -> pd.DataFrame:
        """One row a policy: the attributes of :class:`Outcome`, and its ratio.

        Returns
        -------
        DataFrame
            Indexed by policy.
        """
        rows = [{**vars(outcome), "ratio": outcome.ratio} for outcome in self.outcomes]
        return pd.DataFrame(rows).set_index("policy")

    def cite(self) -> str:
        """What to cite."""
        return CITATION

    def __repr__(self) -> str:
        times = ", ".join(f"{one.policy} {one.ratio:.2f}" for one in self.outcomes)
        return f"<Simulation of {self.groups:,} groups, time to train over the ideal: {times}>"

    def _repr_html_(self) -> str:
        from dtoolkit.figures.recovery_cards import simulation_card

        return simulation_card(self)


def simulate(
    n: int,
    r: int | None = None,
    *,
    policies: Policy | Sequence[Policy] = PAPER,
    steps: int = 10_000,
    mtbf: float = 300.0,
    shape: float = 0.78,
    compute: float = 64.0,
    reduce: float | tuple[float, float] = (2.0, 10.0),
    save: float = 60.0,
    restart: float = 3600.0,
    patch: Patch = "needed",
    replicas: Sequence[int] = (2, 3, 4),
    sets: bool = False,
    replace: float = 60.0,
    catch_up: float = 1.0,
    pause: float = 0.0,
    seed: int = 0,
) -> Simulation:
    """Train under random failures with each policy; the defaults are those of the paper's table.

    Parameters
    ----------
    n : int
        N groups, and types of shards.
    r : int, optional
        Redundancy of the stacks; by default :func:`~dtoolkit.training.stacked.best_redundancy`.
    policies : one or several of {"checkpoint", "replication", "stacked", "shrink", "replica"}
        "checkpoint" has no redundancy; "shrink" goes on with fewer groups, which share all
        shards; "replica" does so until a newcomer has caught up.
    steps : int
    mtbf, shape : float
        Mean seconds between losses of a group, anywhere, and the Weibull shape of the intervals; a
        shape of 1 is exponential.
    compute : float
        Seconds of one shard's gradient on one group.
    reduce : float or (float, float)
        Seconds of the all-reduce: one number, or uniform between two.
    save, restart : float
        Seconds of a checkpoint, and of a restart.
    patch : {"needed", "always", "free"}
        When survivors compute what was lost, for the time of one shard: where today's order does
        not cover all types; after each loss; never.
    replicas : sequence of int
        Redundancies that replication is tried with, as far as there are groups for them; the best
        is taken.
    sets : bool
        Replication: the replicas of a type are sets of groups that share all their types, and not
        neighbours on a ring, of which any r in a row share one.
    replace, catch_up : float
        For "replica": seconds from a loss until a newcomer is there, and in which it receives the
        state, while all others wait.
    pause : float
        Seconds from a loss that is not fatal until survivors go on, beside what they compute.
    seed : int
        The same for all policies. A pure function of its arguments.

    Returns
    -------
    Simulation

    Raises
    ------
    TypeError, ValueError, PlanError
        An argument is out of range, or there is no ruler for `n` and `r`.

    Examples
    --------
    >>> found = simulate(200, steps=500)
    >>> found["stacked"].ratio < found["replication"].ratio < found["checkpoint"].ratio
    True
    """
    n = check_count("n", n)
    given = Conditions.of(
        steps=steps, mtbf=mtbf, shape=shape, compute=compute, reduce=reduce, save=save,
        restart=restart, patch=patch, sets=sets, replace=replace, catch_up=catch_up, pause=pause,
    )  # fmt: skip
    known = get_args(Policy)
    wanted = (policies,) if isinstance(policies, str) else tuple(policies)
    if not wanted or set(wanted) - set(known):
        raise ValueError(f"policies={policies!r}: wanted some of {', '.join(known)}")
    outcomes: list[Outcome] = []
    tried: tuple[Outcome, ...] = ()
    for policy in wanted:
        if policy == "replication":
            counts = [check_count("replicas", count) for count in replicas]
            tried = tuple(
                _run(policy, Replicated(n, count, sets=sets), given, seed)
                for count in counts
                if count <= n
            )
            if not tried:
                raise ValueError(f"replicas={counts}: wanted one of at most n={n} at least")
            outcomes.append(min(tried, key=lambda outcome: outcome.seconds))
        else:
            outcomes.append(_run(policy, _state(policy, n, r, given), given, seed))
    return Simulation(n, given, tuple(outcomes), tried, seed)


def _state(policy: Policy, n: int, r: int | None, given: Conditions) -> Losing:
    if policy == "checkpoint":
        return Replicated(n, 1)
    if policy == "shrink":
        return Shrinking(n)
    if policy == "replica":
        return Rejoining(n, replace=given.replace, mtbf=given.mtbf)
    if r is None:
        r = best_redundancy(n, mtbf=given.mtbf, save=given.save, restart=given.restart)
    return Masked(placement(n, r))


def _run(policy: Policy, state: Losing, given: Conditions, seed: int) -> Outcome:
    """Make steps until enough of them count."""
    period = given.period(state.endurable)
    gaps, victims, reduces = given.gaps(seed), given.uniform(seed, "victim"), given.reduces(seed)
    now = worked = 0.0
    done = saved = made = computed = lost = failures = wipe_outs = checkpoints = patches = 0
    failure = next(gaps)
    while done < given.steps and now < _GIVEN_UP * given.ideal:
        start = now + (given.catch_up if state.begin(now) else 0.0)
        end = start + state.S * given.compute + next(reduces)
        made, computed, effect = made + 1, computed + state.S, ""
        while failure < end and effect != "fatal":
            failures += 1
            effect = state.lose(next(victims), failure)
            patches += effect == "patched"
            end += given.after(policy, effect)
            failure += next(gaps)
        if effect == "fatal":
            wipe_outs, lost = wipe_outs + 1, lost + done + 1 - saved
            done, worked, now = saved, 0.0, end + given.restart
            failure = now + next(gaps)
            state.reset()
            continue
        done, worked, now = done + 1, worked + end - now, end
        if worked + given.save >= period and done < given.steps:
            saved, worked, now, checkpoints = done, 0.0, now + given.save, checkpoints + 1
    seconds = now if done == given.steps else math.inf
    return Outcome(
        policy, state.redundancy, period, seconds, given.ideal, done, lost, failures, wipe_outs,
        checkpoints, patches, computed / made,
    )  # fmt: skip
