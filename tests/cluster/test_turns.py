"""Whose turn it is on a Dask cluster that several clusters share: worked cases."""

from __future__ import annotations

from dtoolkit.cluster.turns import Turns

ALIVE = {"C1", "C2"}


def ask(turns: Turns, owner: str, number: int, now: float = 0.0, alive: set[str] = ALIVE) -> str:
    client = "C1" if owner == "a" else "C2"
    answer = turns.take(owner, number, f"{owner}{number}", client=client, alive=alive, now=now)
    return "now" if answer.granted else answer.behind


def test_first_come_first_served() -> None:
    turns = Turns()
    assert ask(turns, "a", 1) == "now"
    assert ask(turns, "b", 1) == "1 of another Cluster object: a1 first"
    assert ask(turns, "a", 1) == "now", "asking again changes nothing"
    turns.give_up("a", 1)
    assert ask(turns, "a", 2) == "1 of another Cluster object: b1 first"
    assert ask(turns, "b", 1) == "now"


def test_the_next_launch_of_an_owner_gives_up_the_place_of_the_one_before() -> None:
    turns = Turns()
    assert ask(turns, "a", 1) == "now"
    assert ask(turns, "b", 1) != "now"
    assert ask(turns, "a", 2) == "1 of another Cluster object: b1 first"
    turns.give_up("a", 1)  # comes late, and must not take the new place
    turns.give_up("b", 1)
    assert ask(turns, "a", 2) == "now"


def test_a_client_that_is_gone_gives_way_and_its_owner_is_named() -> None:
    turns = Turns()
    assert ask(turns, "a", 1) == "now"
    assert ask(turns, "b", 1, alive={"C2"}) == "now"
    answer = turns.take("b", 2, "", client="C2", alive={"C2"}, now=0)
    assert answer.orphans == ()
    turns = Turns()
    ask(turns, "a", 1)
    answer = turns.take("b", 1, "", client="C2", alive={"C2"}, now=0)
    assert answer.granted
    assert answer.orphans == ("a",)


def test_who_does_not_ask_again_loses_the_place_but_not_the_turn() -> None:
    turns = Turns()
    turns.take("a", 1, "a1", client="C1", alive=ALIVE, now=0)
    turns.take("b", 1, "b1", client="C2", alive=ALIVE, now=0)
    assert ask(turns, "c", 1, now=5).startswith("2 of")
    assert ask(turns, "c", 1, now=14).startswith("1 of another Cluster object: a1")


def test_an_owner_that_leaves() -> None:
    turns = Turns()
    ask(turns, "a", 1)
    turns.leave("a")
    assert ask(turns, "b", 1) == "now"
