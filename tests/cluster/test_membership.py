"""Membership of elastic launches as a table of worked cases, no worker needed."""

from __future__ import annotations

import pytest

from dtoolkit.cluster.membership import (
    Asked,
    Broke,
    Came,
    Expired,
    Form,
    Lost,
    Returned,
    State,
    Tell,
    note,
    step,
)

ABC = State(("a", "b", "c"), 3)

# name: state, events, actions of all of them in order, members at the end
CASES = {
    "one is lost, the others ask and go on": (
        ABC,
        [Lost("b"), Asked("a", 0), Asked("c", 0)],
        [Tell(("a", "c"), (1,)), Form(("a", "c"), frozenset())],
        ("a", "c"),
    ),
    "all wait for a replacement, which takes the free rank": (
        ABC,
        [Lost("a"), Asked("b", 3), Asked("c", 3), Came("d")],
        [Tell(("b", "c"), (0,)), Form(("d", "b", "c"), frozenset("d"))],
        ("d", "b", "c"),
    ),
    "the replacement is there before anyone asks": (
        ABC,
        [Lost("a"), Came("d"), Asked("b", 3), Asked("c", 3)],
        [Tell(("b", "c"), (0,)), Form(("d", "b", "c"), frozenset("d"))],
        ("d", "b", "c"),
    ),
    "who asks for no size takes the newcomers that are there": (
        ABC,
        [Lost("c"), Came("d"), Asked("a", 0), Asked("b", 0)],
        [Tell(("a", "b"), (2,)), Form(("a", "b", "d"), frozenset("d"))],
        ("a", "b", "d"),
    ),
    "a second loss while one waits: only those that have not asked are told": (
        ABC,
        [Lost("a"), Asked("b", 0), Lost("c")],
        [Tell(("b", "c"), (0,)), Form(("b",), frozenset())],
        ("b",),
    ),
    "two losses, both are named": (
        ABC,
        [Lost("a"), Lost("c"), Asked("b", 0)],
        [Tell(("b", "c"), (0,)), Tell(("b",), (0, 2)), Form(("b",), frozenset())],
        ("b",),
    ),
    "one that waits is lost": (
        ABC,
        [Lost("a"), Asked("b", 0), Lost("b"), Asked("c", 0)],
        [Tell(("b", "c"), (0,)), Tell(("c",), (0, 1)), Form(("c",), frozenset())],
        ("c",),
    ),
    "the time is over: those that are there go on": (
        ABC,
        [Lost("b"), Asked("a", 3), Asked("c", 3), Expired()],
        [Tell(("a", "c"), (1,)), Form(("a", "c"), frozenset())],
        ("a", "c"),
    ),
    "the largest size that anyone asked for counts": (
        ABC,
        [Lost("b"), Asked("a", 0), Asked("c", 3), Came("d")],
        [Tell(("a", "c"), (1,)), Form(("a", "d", "c"), frozenset("d"))],
        ("a", "d", "c"),
    ),
    "one has returned: the others need not wait for it": (
        ABC,
        [Returned("a"), Lost("b"), Asked("c", 0)],
        [Tell(("c",), (1,)), Form(("c",), frozenset())],
        ("c",),
    ),
    "a newcomer that goes again is forgotten": (
        ABC,
        [Came("d"), Lost("d"), Lost("a"), Asked("b", 0), Asked("c", 0)],
        [Tell(("b", "c"), (0,)), Form(("b", "c"), frozenset())],
        ("b", "c"),
    ),
    "nobody is lost and all ask: the group grows to the size asked for": (
        ABC,
        [Came("d"), Came("e"), Asked("a", 5), Asked("b", 5), Asked("c", 5)],
        [Form(("a", "b", "c", "d", "e"), frozenset("de"))],
        ("a", "b", "c", "d", "e"),
    ),
    "it does not grow beyond its first size by itself": (
        ABC,
        [Came("d"), Asked("a", 0), Asked("b", 0), Asked("c", 0)],
        [Form(("a", "b", "c"), frozenset())],
        ("a", "b", "c"),
    ),
    "the survivors go on alone if one of them says so": (
        ABC,
        [Lost("b"), Came("d"), Asked("a", 3, True), Asked("c", 0)],
        [Tell(("a", "c"), (1,)), Form(("a", "c"), frozenset())],
        ("a", "c"),
    ),
    "a connection broke and nobody is lost: all leave the group": (
        ABC,
        [Broke("b"), Asked("b", 0), Asked("a", 0), Asked("c", 0)],
        [Tell(("a", "b", "c"), ()), Form(("a", "b", "c"), frozenset())],
        ("a", "b", "c"),
    ),
    "a connection broke while some wait for the next group": (
        ABC,
        [Asked("a", 0), Broke("a"), Broke("x"), Asked("b", 0), Asked("c", 0)],
        [Tell(("b", "c"), ()), Form(("a", "b", "c"), frozenset())],
        ("a", "b", "c"),
    ),
    "news that is no news": (
        ABC,
        [Lost("x"), Came("a"), Asked("x", 0), Lost("b"), Lost("b")],
        [Tell(("a", "c"), (1,))],
        ("a", "b", "c"),
    ),
    "all are lost": (
        ABC,
        [Lost("a"), Lost("b"), Lost("c"), Came("d")],
        [Tell(("b", "c"), (0,)), Tell(("c",), (0, 1))],
        ("a", "b", "c"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_worked_case(name: str) -> None:
    state, events, actions, members = CASES[name]
    done = []
    for event in events:
        state, now = step(state, event)
        done += now
    assert done == actions
    assert state.members == members


def test_after_forming_the_old_words_are_forgotten() -> None:
    state = ABC
    for event in (Came("d"), Came("e"), Lost("b"), Asked("a", 0), Asked("c", 0)):
        state, _ = step(state, event)
    assert state == State(("a", "d", "c"), 3, waiting=("e",))


@pytest.mark.parametrize("goes", ["d", "c"], ids=["a newcomer", "a survivor"])
def test_a_member_goes_while_the_group_is_formed(goes: str) -> None:
    state = ABC
    for event in (Came("d"), Lost("b"), Asked("a", 0)):
        state, _ = step(state, event)
    last = Asked("c", 0)
    _, actions = step(state, last)
    assert actions == [Form(("a", "d", "c"), frozenset("d"))]
    # It could not be formed: back to what was known, then the news.
    state, _ = note(state, last)
    state, actions = step(state, Lost(goes))
    want = {"d": Form(("a", "c"), frozenset()), "c": Form(("a", "d"), frozenset("d"))}
    assert actions == [want[goes]]


def test_how_many_could_join() -> None:
    state, seen = ABC, []
    words = [Came("d"), Lost("a"), Came("e"), Asked("b", 0, True), Asked("c", 0), Lost("d")]
    for event in words:
        state, _ = step(state, event)
        seen.append(state.joinable)
    assert seen == [0, 1, 1, 1, 1, 1]
    assert state == State(("b", "c"), 3, waiting=("e",))
    state, _ = step(state, Lost("e"))
    assert state.joinable == 0
