"""The pure parts of recovery: who computes what, how votes are counted, what a report says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dtoolkit.errors import CommunicationError, RankError, ReplicaMismatch, WipeOut, WorkerLost
from dtoolkit.training.records import FIELDS, Records
from dtoolkit.training.recovery import Recovery, RecoveryReport, Replica, Shrink, Stacked
from dtoolkit.training.recovery.dealing import ByStacks, Dealer, Lost, Spread
from dtoolkit.training.recovery.fingerprint import fingerprint, held_by
from dtoolkit.training.recovery.group import Group, Standing, _seated
from dtoolkit.training.recovery.noted import Noted
from dtoolkit.training.recovery.vote import Ballot, Votes

# ------------------------------------------------------------------------------------ dealing


def check_deal(dealer: Dealer, alive: list[int], held: dict[int, frozenset[int]]) -> None:
    """Every shard is computed, and counted once, by somebody who is there."""
    for deal in dealer.deal(alive, held):
        assert set(deal.computes) == set(alive)
        assert len(deal.counts) == dealer.shards
        for shard, seat in enumerate(deal.counts):
            assert seat in alive
            assert shard in deal.computes[seat]
        counted = [deal.counted_by(seat) for seat in alive]
        assert sorted(itertools.chain(*counted)) == list(range(dealer.shards))


@given(st.data())
def test_spread(data: st.DataObject) -> None:
    seats, shards = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 12))
    alive = sorted(data.draw(st.sets(st.integers(0, seats - 1), min_size=1)))
    sets = st.frozensets(st.integers(0, shards - 1))
    held = {seat: data.draw(sets) for seat in alive}
    dealer = Spread(shards, seats)
    check_deal(dealer, alive, held)
    now, later = dealer.deal(alive, held)
    for shard, seat in enumerate(now.counts):  # nothing is computed that is there
        has = [one for one in alive if shard in held[one]]
        assert not has or seat in has
    if len(alive) == seats:
        assert later.computes == dict(enumerate(dealer.home))
    sizes = [len(own) for own in later.computes.values()]
    assert max(sizes) - min(sizes) <= 2 or shards < seats


def test_shards_stay_where_they_were() -> None:
    now, later = Spread(4, 4).deal([0, 1, 3], {0: frozenset({0}), 3: frozenset({3})})
    assert now.computes == {0: (0, 2), 1: (1,), 3: (3,)}
    assert later.computes == {0: (0, 2), 1: (1,), 3: (3,)}
    assert now.counts == later.counts == (0, 1, 0, 3)


@pytest.mark.parametrize("shards", [7, 8, 14])
def test_stacks_endure_losses_until_a_type_is_gone(shards: int) -> None:
    orders = list(itertools.permutations(range(7), 4))[::29]
    wiped_out = 0
    for order in orders:
        dealer, alive = ByStacks(shards, 7, redundancy=3), list(range(7))
        check_deal(dealer, alive, {})
        for gone in order:
            alive.remove(gone)
            held = {seat: frozenset(dealer.home[seat]) for seat in alive}
            try:
                check_deal(dealer, alive, held)
            except Lost:
                wiped_out += 1
                break
    assert 0 < wiped_out < len(orders)


def test_a_stack_computes_only_what_is_missing() -> None:
    dealer = ByStacks(4, 4, redundancy=2)
    dealer.deal([0, 1, 2, 3], {})
    held = {seat: frozenset({seat}) for seat in (0, 1, 3)}
    now, later = dealer.deal([0, 1, 3], held)
    assert {seat: set(own) - held[seat] for seat, own in now.computes.items()} == {
        0: set(),
        1: {2},
        3: set(),
    }
    assert later.computes == {0: (0, 1), 1: (1, 2), 3: (0, 3)}
    assert dealer.summary() == {"redundancy": 2, "computed": 2}


# ------------------------------------------------------------------------------------- voting


def votes(*marks: int, faults: tuple[int, ...] = ()) -> Votes:
    ballots = [Ballot(mark=mark, fault=int(rank in faults)) for rank, mark in enumerate(marks)]
    return Votes(tuple(ballots), ())


@pytest.mark.parametrize(
    ("marks", "source", "outvoted"),
    [
        ((5, 5, 5, 5), 0, []),
        ((0, 0, 0), 0, []),
        ((7, 5, 5, 5), 1, [0]),
        ((7, 5, 9, 5), 1, [0, 2]),
        ((7, 5), None, [0, 1]),
        ((7, 5, 5, 7), None, [0, 1, 2, 3]),
        ((7, 5, 9), None, [0, 1, 2]),
        ((5, 0, 5, 7), 0, [3]),  # a rank that could not make one
        ((5,), 0, []),
    ],
)
def test_who_is_outvoted(marks: tuple[int, ...], source: int | None, outvoted: list[int]) -> None:
    assert votes(*marks).outvoted() == (source, outvoted)


def test_faults_and_waiting() -> None:
    assert votes(1, 1, 1, faults=(0, 2)).faults == [0, 2]
    ballots = (Ballot(ready=3.0, stop=True), Ballot(ready=5.0, newcomers=2))
    said = Votes(ballots, ())
    assert (said.idle, said.stop, said.newcomers) == ([2.0, 0.0], True, 2)


def test_newcomers_take_free_seats() -> None:
    def standing(seat: int, step: int, met: int = 0) -> Standing:
        return Standing(seat, step, met, False, 0, 5, frozenset({max(seat, 0)}))

    ranks = [standing(-1, -1), standing(1, 8, 5), standing(-1, -1), standing(3, 9, 6)]
    group = _seated(ranks, 4)
    assert isinstance(group, Group)
    assert (group.seats, group.came, group.spokesman) == ((0, 1, 2, 3), (0, 2), 1)
    assert (group.step, group.ahead, group.behind, group.met) == (9, [3], [0, 1, 2], 6)
    assert group.held == {3: frozenset({3})}
    assert group.number == 6
    before = _seated([standing(seat, 8) for seat in range(4)], 4)
    assert group.lost_from(before) == [0, 2]
    assert before.lost_from(before) == []


# -------------------------------------------------------------------------------- fingerprint


class Held:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1).half())
        self.parameters = list(self.model.named_parameters())
        self.optimizer = torch.optim.Adam(self.model.parameters())
        for value in self.model.parameters():
            value.grad = torch.ones_like(value)
        self.optimizer.step()


def test_every_flipped_bit_changes_the_fingerprint() -> None:
    held: Any = Held()
    before = fingerprint(held)
    assert before == fingerprint(Held())  # type: ignore[arg-type]
    for what, count in (("parameters", 9), ("optimizer", 18)):
        found = held_by(held, what)
        assert len(found) == count
        for tensor in found.values():
            words = tensor.view(-1).view(torch.uint8)
            for byte, bit in ((0, 0), (len(words) - 1, 7)):
                words[byte] ^= 1 << bit
                assert fingerprint(held) != before
                words[byte] ^= 1 << bit
    assert fingerprint(held) == before


# ------------------------------------------------------------------------------------ reports


def test_a_report_says_what_and_how_long() -> None:
    entry = Recovery(
        fault="kill rank 2 at step 5",
        kind="lost",
        ranks=(2,),
        step=5,
        injected=1.0,
        detected=1.25,
        recovered=2.0,
        steps_repeated=1,
        policy="shrink",
        how="went on with 3 of 4 workers",
    )
    assert (entry.detection, entry.recovery) == (0.25, 0.75)
    assert str(entry) == (
        "kill rank 2 at step 5 (step 5): went on with 3 of 4 workers; noticed after 0.25 s; went "
        "on after 0.75 s; steps repeated 1"
    )
    assert Recovery.of(entry.as_dict()) == entry
    report = RecoveryReport([entry, entry], policy="shrink")
    assert list(report[:1]) == [entry]
    assert report[1] is entry
    assert report == RecoveryReport([entry, entry])
    assert report.table()["detection"].tolist() == [0.25, 0.25]
    assert list(RecoveryReport().table().columns) == list(report.table().columns)
    assert repr(RecoveryReport(policy="shrink")) == "no faults (shrink)"
    with pytest.raises(ValueError, match="belongs to no run"):
        report.compared(None)  # type: ignore[arg-type]


def rank_error(cause: BaseException) -> RankError:
    text = f"{type(cause).__name__}: {cause}"
    error = RankError(rank=1, address="a", operation="learn", cause=text, traceback="")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "ranks"),
    [
        (WorkerLost(ranks=[2, 3], addresses=["a", "b"], operation="learn"), "lost", (2, 3)),
        (rank_error(ValueError("no")), "raised", (1,)),
        (rank_error(MemoryError()), "memory", (1,)),
        (rank_error(RuntimeError("DefaultCPUAllocator: can't allocate memory")), "memory", (1,)),
        (rank_error(FloatingPointError("the loss is nan")), "not finite", (1,)),
        (rank_error(ReplicaMismatch(fields=["x"], ranks=[3], step=4)), "differs", (3,)),
        (rank_error(CommunicationError("closed")), "connection", ()),
        (rank_error(WipeOut(step=3, why="all are gone")), "wiped out", ()),
    ],
)
def test_what_a_launch_ended_of(error: Exception, kind: str, ranks: tuple[int, ...]) -> None:
    noted = Noted(policy="restart", began=10.0)
    noted.restarting(error, at=12.0, reached=7, again=5)
    noted.take({"row": [0.0] * FIELDS.index("start") + [13.5, 13.6], "rank": 0})
    noted.take({"row": [0.0] * FIELDS.index("start") + [15.5, 15.6], "rank": 0})
    (entry,) = noted.report()
    assert (entry.kind, entry.ranks, entry.step, entry.steps_lost) == (kind, ranks, 7, 2)
    assert (entry.detected, entry.recovered) == (2.0, 3.5)


def test_only_a_wipe_out_starts_an_elastic_run_again() -> None:
    lost = WorkerLost(ranks=[2], addresses=["a"], operation="learn")
    for policy in (Shrink(), Replica(), Stacked()):
        assert policy.restarts_after(lost)
        assert policy.restarts_after(rank_error(WipeOut(step=3, why="all are gone")))
        assert not policy.restarts_after(rank_error(ValueError("no")))


def test_settings_of_elastic_policies() -> None:
    for policy in (Shrink, Replica, Stacked):
        with pytest.raises(ValueError, match="verify=-1"):
            policy(verify=-1)
    with pytest.raises(ValueError, match="patience=-1"):
        Replica(patience=-1)
    with pytest.raises(TypeError, match="patience='a': wanted seconds as a number"):
        Replica(patience="a")
    with pytest.raises(ValueError, match="redundancy=0"):
        Stacked(redundancy=0)


# ------------------------------------------------------------------------------------ records


def row(step: int, start: float = 0.0) -> list[float]:
    values = dict.fromkeys(FIELDS, 1.0) | {"step": step, "start": start, "end": start + 1.0}
    return [values[name] for name in FIELDS]


def test_reports_of_fewer_workers_and_in_place_of_others() -> None:
    records = Records(3)
    for worker in range(3):
        records.take({"row": row(0), "rank": worker})
    assert records.done == 1
    records.take({"row": row(1), "rank": 0, "worker": 0, "of": 2})
    assert records.take({"row": row(1), "rank": 1, "worker": 2, "of": 2}) == 1
    assert records.take({"row": row(1, 9.0), "rank": 0, "worker": 2, "instead": True}) is None
    frame = records.frame()
    assert frame["samples"].tolist() == [3, 2]
    assert frame["samples_1"].isna().tolist() == [False, True]
    assert frame["end_2"].tolist() == [1.0, 1.0]


def test_steps_are_forgotten_and_made_again() -> None:
    records = Records(2)
    for step, worker in itertools.product(range(5, 9), range(2)):
        records.take({"row": row(step), "rank": worker})
    records.take({"scores": ["test_loss"], "values": [0.5], "after": 8, "rank": 0})
    kept = records.packed()
    records.forget(6)
    assert (records.done, records.reached) == (1, 6)
    assert records.frame()["step"].tolist() == [5]
    assert "test_loss" not in records.frame()
    records.unpack(kept)
    assert records.frame()["step"].tolist() == [5, 6, 7, 8]
    assert records.frame()["test_loss"].tolist()[2] == 0.5
    records.forget(2)  # a beginning before the first one
    assert records.reached == 2
    for worker in range(2):
        assert records.take({"row": row(2), "rank": worker}) == (2 if worker else None)
    assert records.frame()["step"].tolist() == [2]
