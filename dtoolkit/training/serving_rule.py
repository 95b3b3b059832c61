"""When a parameter server applies what workers push: bounded staleness as a pure state machine.

Workers compute gradients on a version of the model and push them. Pushes are held until none of
the workers that still compute would be more than `bound` versions behind the next version; then
all held pushes are applied together, as one update. A bound of 0 is synchronous: everyone is
waited for. No bound is asynchronous: each push is applied as it comes. No clocks, no messages, no
tensors here: events in, actions out.

The setting is an axis of the design space of distributed training (Langer et al., TPDS 2020,
arXiv 2007.03970); the bound is that of stale synchronous parallel training (Ho et al., NeurIPS
2013).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

__all__ = [
    "Action",
    "Apply",
    "Closed",
    "Dismiss",
    "Event",
    "Grant",
    "Opened",
    "Pushed",
    "Serving",
    "react",
]


@dataclass(frozen=True)
class Serving:
    """What the server knows of its workers.

    Attributes
    ----------
    bound : int or None
        Versions that a push may be behind when it is applied; None for no bound.
    version : int
        Updates made so far.
    granted : int
        Pushes that workers have been asked for so far, all told.
    limit : int
        How many they may be asked for.
    computing : mapping of int to int
        Workers that compute, and the version that each computes on.
    held : mapping of int to int
        Workers whose push is held, and the version that it was computed on.
    """

    bound: int | None = 0
    version: int = 0
    granted: int = 0
    limit: int = 0
    computing: Mapping[int, int] = field(default_factory=dict)
    held: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.bound is not None and self.bound < 0:
            raise ValueError(f"bound must be 0 or more, or None for no bound; got {self.bound}")

    @property
    def idle(self) -> bool:
        """Whether nothing is under way: nobody computes, nothing is held."""
        return not self.computing and not self.held


@dataclass(frozen=True)
class Opened:
    """Workers that hold the present version are ready, for `pushes` more pushes in all."""

    members: tuple[int, ...]
    pushes: int


@dataclass(frozen=True)
class Pushed:
    """A worker that computed has pushed."""

    rank: int


@dataclass(frozen=True)
class Closed:
    """No further push shall be asked for: those that compute now are the last."""


@dataclass(frozen=True)
class Apply:
    """Apply the pushes of some workers as one update, in the order of their ranks.

    Attributes
    ----------
    staleness : mapping of int to int
        Worker to how many versions its push is behind.
    version : int
        The version that the update makes.
    """

    staleness: Mapping[int, int]
    version: int


@dataclass(frozen=True)
class Grant:
    """Give workers the present version, and let them compute another push."""

    ranks: tuple[int, ...]
    version: int


@dataclass(frozen=True)
class Dismiss:
    """Give workers the present version, and tell them that it is over."""

    ranks: tuple[int, ...]
    version: int


Event = Opened | Pushed | Closed
Action = Apply | Grant | Dismiss


def react(state: Serving, event: Event) -> tuple[Serving, tuple[Action, ...]]:
    """What follows from an event.

    Parameters
    ----------
    state : Serving
    event : Opened, Pushed or Closed

    Returns
    -------
    state : Serving
    actions : tuple of Apply, Grant or Dismiss
        To be done in this order.

    Raises
    ------
    ValueError
        The event cannot come in this state: a push of a worker that was not asked for one, or an
        opening while pushes are under way.
    """
    if isinstance(event, Opened):
        return _opened(state, event)
    if isinstance(event, Closed):
        return replace(state, limit=state.granted), ()
    if event.rank not in state.computing:
        raise ValueError(f"rank {event.rank} pushes, but was not asked for a push")
    computing = dict(state.computing)
    held = {**state.held, event.rank: computing.pop(event.rank)}
    return _settle(replace(state, computing=computing, held=held))


def _opened(state: Serving, event: Opened) -> tuple[Serving, tuple[Action, ...]]:
    if not state.idle:
        raise ValueError("opened while pushes are under way")
    if event.pushes < 0:
        raise ValueError(f"pushes must be 0 or more, got {event.pushes}")
    return _go_on(replace(state, limit=state.granted + event.pushes), event.members)


def _settle(state: Serving) -> tuple[Serving, tuple[Action, ...]]:
    """Apply what is held, if nobody who computes would fall too far behind."""
    bound = state.bound
    if bound is not None and any(
        state.version + 1 - version > bound for version in state.computing.values()
    ):
        return state, ()
    ranks = tuple(sorted(state.held))
    staleness = {rank: state.version - state.held[rank] for rank in ranks}
    state = replace(state, version=state.version + 1, held={})
    after, actions = _go_on(state, ranks)
    return after, (Apply(staleness, state.version), *actions)


def _go_on(state: Serving, ranks: Iterable[int]) -> tuple[Serving, tuple[Action, ...]]:
    """Let workers compute on, the lowest ranks first, as far as the limit goes."""
    ready = tuple(sorted(ranks))
    count = min(len(ready), state.limit - state.granted)
    granted, rest = ready[:count], ready[count:]
    actions: list[Action] = []
    if granted:
        actions.append(Grant(granted, state.version))
    if rest:
        actions.append(Dismiss(rest, state.version))
    computing = {**state.computing, **dict.fromkeys(granted, state.version)}
    return replace(state, computing=computing, granted=state.granted + count), tuple(actions)
