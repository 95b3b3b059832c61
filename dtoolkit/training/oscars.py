"""Oscars-style rounds with the ESync rule: local steps until the slowest worker has made one.

A state server keeps, for each worker, how long its last local step took (c) and when it last
finished one (te; the start of the round before that). After each local step a worker asks. It goes
to the average if it is the slowest worker, if the slowest is ready, or if one more step would end
after the slowest one's: c_r + eps > c_slow + te_slow - now, with eps half the fastest step.
Otherwise it makes one more local step. When all are ready, what they have changed is averaged.

*Reconstructed*: the method section of the paper was not available. The rule is that of ESync (Li
et al., IEEE TSC 2020), in whose line Oscars (arXiv 2102.08550) stands. A round in which the time of
some worker is not known yet has one local step for each.

The rule is a pure state machine: events in, actions out. :func:`simulate` runs it on modelled
clocks, in exact arithmetic.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dtoolkit.comm.exact import rational

__all__ = [
    "Average",
    "Finished",
    "OneMore",
    "Ready",
    "Round",
    "Simulation",
    "Wait",
    "Worker",
    "local_steps",
    "react",
    "simulate",
    "stops",
]

Time = float | Fraction


@dataclass(frozen=True)
class Worker:
    """What the state server knows of a worker.

    Attributes
    ----------
    seconds : float or None
        What its last local step took; None before the first.
    finished : float or None
        When it last finished a local step of this round; None before the first.
    steps : int
        Local steps that it has made in this round.
    ready : bool
        Whether it waits for the average.
    """

    seconds: Time | None = None
    finished: Time | None = None
    steps: int = 0
    ready: bool = False


@dataclass(frozen=True)
class Round:
    """A round of the state server.

    Attributes
    ----------
    workers : mapping of int to Worker
    started : float or None
        When the round began: where the first local step began of the worker that finished first.
    number : int
        Rounds before this one.
    """

    workers: Mapping[int, Worker] = field(default_factory=dict)
    started: Time | None = None
    number: int = 0

    @classmethod
    def of(cls, ranks: Sequence[int], seconds: Mapping[int, Time] | None = None) -> Round:
        """A first round, with step times where they are known."""
        known = seconds or {}
        return cls({rank: Worker(seconds=known.get(rank)) for rank in ranks})

    @property
    def slowest(self) -> int | None:
        """The worker whose steps take longest, the lowest of equals; None if a time is unknown."""
        times = {rank: worker.seconds for rank, worker in self.workers.items()}
        known = {rank: seconds for rank, seconds in times.items() if seconds is not None}
        if len(known) < len(times) or not known:
            return None
        return min(known, key=lambda rank: (-known[rank], rank))


@dataclass(frozen=True)
class Finished:
    """A worker has finished a local step.

    Attributes
    ----------
    rank : int
    now : float
        On the server's clock.
    seconds : float
        What the step took.
    """

    rank: int
    now: Time
    seconds: Time


@dataclass(frozen=True)
class Ready(Finished):
    """A worker has finished a local step, and knows by itself that it goes to the average."""


@dataclass(frozen=True)
class OneMore:
    """The worker makes one more local step."""

    rank: int


@dataclass(frozen=True)
class Wait:
    """The worker is ready, and waits for the others."""

    rank: int


@dataclass(frozen=True)
class Average:
    """All are ready: average what has changed, then the next round begins.

    Attributes
    ----------
    steps : mapping of int to int
        Worker to its local steps in the round.
    """

    steps: Mapping[int, int]


Action = OneMore | Wait | Average


def react(state: Round, event: Finished) -> tuple[Round, tuple[Action, ...]]:
    """What follows when a worker has finished a local step.

    Parameters
    ----------
    state : Round
    event : Finished or Ready

    Returns
    -------
    state : Round
    actions : tuple of OneMore, or Wait, or Wait and Average

    Raises
    ------
    ValueError
        The worker is none of this round, or is ready already.
    """
    before = state.workers.get(event.rank)
    if before is None or before.ready:
        what = "is none of its workers" if before is None else "waits for the average"
        raise ValueError(f"rank {event.rank} finished a step in a round where it {what}")
    worker = Worker(event.seconds, event.now, before.steps + 1)
    started = event.now - event.seconds if state.started is None else state.started
    state = replace(state, workers={**state.workers, event.rank: worker}, started=started)
    if not (isinstance(event, Ready) or stops(state, event.rank, event.now)):
        return state, (OneMore(event.rank),)
    workers = {**state.workers, event.rank: replace(worker, ready=True)}
    if not all(one.ready for one in workers.values()):
        return replace(state, workers=workers), (Wait(event.rank),)
    fresh = {rank: Worker(one.seconds) for rank, one in workers.items()}
    average = Average({rank: one.steps for rank, one in workers.items()})
    return Round(fresh, None, state.number + 1), (Wait(event.rank), average)


def stops(state: Round, rank: int, now: Time) -> bool:
    """Whether a worker that has just finished a local step, as `state` says, makes no further one.

    It holds of whatever `state` knows of the others: the state server's knowledge, or what a worker
    has heard of them at the end of the last round.
    """
    slow = state.slowest
    if slow is None or rank == slow or state.workers[slow].ready:
        return True
    slowest, mine = state.workers[slow], state.workers[rank]
    since = state.started if slowest.finished is None else slowest.finished
    times = [worker.seconds for worker in state.workers.values() if worker.seconds is not None]
    assert slowest.seconds is not None
    assert mine.seconds is not None
    assert since is not None
    return mine.seconds + min(times) / 2 > slowest.seconds + since - now


def local_steps(times: Sequence[float]) -> list[int]:
    """Local steps of each worker in a round, where steps always take `times`.

    ``max(1, floor((c_slow - eps) / c))`` with eps half the shortest time, in exact arithmetic.

    Examples
    --------
    >>> local_steps([1, 2, 4, 8])  # speeds 8, 4, 2, 1
    [7, 3, 1, 1]
    """
    exact = checked_times(times)
    slow, eps = max(exact), min(exact) / 2
    return [max(1, int((slow - eps) // one)) for one in exact]


@dataclass(frozen=True, eq=False)
class Simulation:
    """Rounds of the rule on modelled clocks (modelled, not measured).

    Attributes
    ----------
    steps : int array, shape (rounds, workers)
        Local steps.
    idle : float array, shape (rounds, workers)
        Time between being ready and the average.
    ends : float array, shape (rounds,)
        When each round's average begins, from the start of the first.
    busy : float array, shape (rounds, workers)
        Time of the local steps.
    """

    steps: NDArray[np.int64]
    idle: NDArray[np.float64]
    ends: NDArray[np.float64]
    busy: NDArray[np.float64]

    @property
    def utilisation(self) -> float:
        """Share of the workers' time in which they compute."""
        total = self.busy.sum() + self.idle.sum()
        return float(self.busy.sum() / total) if total else 1.0


def simulate(
    times: Sequence[float],
    *,
    rounds: int,
    jitter: Callable[[int, int], float] | None = None,
    known: bool = True,
) -> Simulation:
    """Run the rule on modelled clocks; averages take no time.

    Parameters
    ----------
    times : sequence of float
        What a local step takes on each worker, above 0.
    rounds : int
    jitter : callable, optional
        ``jitter(worker, step)``, above 0: by what the time of a worker's step (its count, from 0,
        over all rounds) is multiplied.
    known : bool
        The server knows `times` from the start; else it learns them in the first round.

    Returns
    -------
    Simulation

    Raises
    ------
    ValueError
        A time is not above 0, there is none, or `rounds` is below 1.
    """
    exact = checked_times(times)
    if rounds < 1:
        raise ValueError(f"rounds must be 1 or more, got {rounds}")
    ranks = range(len(exact))
    state = Round.of(ranks, dict(enumerate(exact)) if known else None)
    counts = [itertools.count() for _ in ranks]

    def lasts(rank: int) -> Fraction:
        step = next(counts[rank])
        return exact[rank] * (1 if jitter is None else rational(jitter(rank, step)))

    start, rows = Fraction(0), []
    for _ in range(rounds):
        state, row = _one_round(state, start, lasts)
        start = row[0]
        rows.append(row)
    return Simulation(
        np.array([steps for _, steps, _, _ in rows], np.int64),
        np.array([[float(end - at) for at in ready] for end, _, ready, _ in rows]),
        np.array([float(end) for end, *_ in rows]),
        np.array([[float(one) for one in busy] for *_, busy in rows]),
    )


def checked_times(times: Sequence[float]) -> list[Fraction]:
    """Times of local steps as exact numbers.

    Raises
    ------
    ValueError
        There are none, or one is not above 0 or not finite.
    """
    if not len(times):
        raise ValueError("times: there are none")
    for rank, one in enumerate(times):
        if not 0 < one < float("inf"):
            raise ValueError(f"times[{rank}] is {one}: wanted a time above 0")
    return [rational(one) for one in times]


def _one_round(
    state: Round, start: Fraction, lasts: Callable[[int], Fraction]
) -> tuple[Round, tuple[Fraction, list[int], list[Fraction], list[Fraction]]]:
    """One round: its end, and by worker its steps, when it was ready, and how long it computed."""
    took = {rank: lasts(rank) for rank in state.workers}
    queue = [(start + took[rank], rank) for rank in state.workers]
    heapq.heapify(queue)
    ready, busy = dict(took), dict.fromkeys(state.workers, Fraction(0))
    while True:
        now, rank = heapq.heappop(queue)
        busy[rank] += took[rank]
        state, actions = react(state, Finished(rank, now, took[rank]))
        if isinstance(actions[0], OneMore):
            took[rank] = lasts(rank)
            heapq.heappush(queue, (now + took[rank], rank))
            continue
        ready[rank] = now
        if isinstance(actions[-1], Average):
            steps = actions[-1].steps
            order = sorted(steps)
            rows = [steps[r] for r in order], [ready[r] for r in order], [busy[r] for r in order]
            return state, (now, *rows)
