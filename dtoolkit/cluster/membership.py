"""Who belongs to an elastic launch: events in, actions out, no input or output.

:func:`step` takes a :class:`State` and an event and returns the next state with what is to be done.
The gang performs the actions; the rules can be tested without a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = [
    "Action",
    "Asked",
    "Broke",
    "Came",
    "Event",
    "Expired",
    "Form",
    "Lost",
    "Returned",
    "State",
    "Tell",
    "note",
    "step",
]


@dataclass(frozen=True, slots=True)
class State:
    """Membership of one elastic launch.

    Attributes
    ----------
    members : tuple of str
        Addresses of the current group, by rank.
    limit : int
        Ranks that the launch began with; the group does not grow beyond it by itself.
    gone, asked, returned : frozenset of str
        Members that were lost, that wait for the next group, whose function has ended.
    waiting : tuple of str
        Workers that could join, in the order in which they came.
    want : int
        Size that the members asked for; 0 to go on with those that are there.
    alone : bool
        A member asked to go on without newcomers.
    """

    members: tuple[str, ...]
    limit: int
    gone: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    waiting: tuple[str, ...] = ()
    want: int = 0
    alone: bool = False

    @property
    def joinable(self) -> int:
        """Workers that the next group would take in."""
        return min(len(self.waiting), max(0, self.limit - len(self.active)))

    @property
    def active(self) -> tuple[str, ...]:
        """Members that are alive and still run, by rank."""
        return tuple(m for m in self.members if m not in self.gone | self.returned)


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone."""

    address: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A member's function has ended."""

    address: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A member waits for the next group; `size` 0 takes any, `alone` takes no newcomers."""

    address: str
    size: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Broke:
    """A connection of a member broke, and nobody is lost."""

    address: str


@dataclass(frozen=True, slots=True)
class Came:
    """A worker that could join is there."""

    address: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The time to wait for a wanted size is over."""


Event = Lost | Returned | Asked | Broke | Came | Expired


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell these members which ranks are lost, and cut their connections."""

    addresses: tuple[str, ...]
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """Form the next group; `newcomers` start their function with ``joined``."""

    members: tuple[str, ...]
    newcomers: frozenset[str]


Action = Tell | Form

_NO_NEWS: Sequence[Tell] = ()


def step(state: State, event: Event) -> tuple[State, list[Action]]:
    """Next state and actions.

    Parameters
    ----------
    state : State
    event : Lost, Returned, Asked, Broke, Came or Expired

    Returns
    -------
    state : State
    actions : list of Tell or Form
    """
    state, told = note(state, event)
    actions: list[Action] = [*told]
    if told is not _NO_NEWS and _complete(state):
        members, newcomers = _next_members(state)
        actions.append(Form(members, newcomers))
        state = State(members, state.limit, waiting=_left(state.waiting, newcomers))
    return state, actions


def note(state: State, event: Event) -> tuple[State, Sequence[Tell]]:
    """The first half of :func:`step`: what is known now, and who must hear of it.

    Where a group was to be formed and one of its members went away first, this is the state to go
    on from.
    """
    match event:
        case Lost(address) if address in state.members and address not in state.gone:
            state = replace(state, gone=state.gone | {address}, asked=state.asked - {address})
            return state, _told(state)
        case Broke(address) if address in state.active:
            return state, _told(state)
        case Lost(address):
            state = replace(state, waiting=tuple(w for w in state.waiting if w != address))
        case Returned(address):
            state = replace(state, returned=state.returned | {address})
        case Asked(address, size, alone) if address in state.active:
            asked = state.asked | {address}
            want, alone = max(state.want, size), state.alone or alone
            state = replace(state, asked=asked, want=want, alone=alone)
        case Came(address) if address not in state.members + state.waiting:
            state = replace(state, waiting=(*state.waiting, address))
        case Expired():
            state = replace(state, want=0)
        case _:
            return state, _NO_NEWS
    return state, []


def _told(state: State) -> list[Tell]:
    """Who must leave the group; those that wait for the next one already know."""
    tell = tuple(m for m in state.active if m not in state.asked)
    lost = tuple(r for r, m in enumerate(state.members) if m in state.gone)
    return [Tell(tell, lost)] if tell else []


def _complete(state: State) -> bool:
    active = state.active
    return (
        bool(active)
        and state.asked.issuperset(active)
        and (state.alone or len(active) + len(state.waiting) >= state.want)
    )


def _next_members(state: State) -> tuple[tuple[str, ...], frozenset[str]]:
    """Survivors keep their order; newcomers take the free ranks, then the end."""
    free = [] if state.alone else list(state.waiting)
    active = set(state.active)
    room = max(state.limit, state.want) - len(active)
    newcomers = free[: max(0, room)]
    queue = list(newcomers)
    members = []
    for member in state.members:
        if member in active:
            members.append(member)
        elif queue:
            members.append(queue.pop(0))
    return (*members, *queue), frozenset(newcomers)


def _left(waiting: tuple[str, ...], taken: frozenset[str]) -> tuple[str, ...]:
    return tuple(w for w in waiting if w not in taken)
