"""The controller of stacked parallelism: against brute force where all cases can be tried."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from dtoolkit.errors import PlanError
from dtoolkit.training.stacked import (
    Assignment,
    WipeOut,
    assign,
    greedy_ruler,
    is_ruler,
    largest_redundancy,
    placement,
    ruler,
    settling,
)

# ------------------------------------------------------------------------------------- rulers


def test_greedy_rulers_reach_as_many_marks_as_known():
    assert [len(greedy_ruler(n)) for n in (200, 600, 1000)] == [11, 18, 22]
    assert greedy_ruler(200)[:5] == (0, 1, 3, 7, 12)


def test_twenty_marks_modulo_six_hundred():
    first = (0, 1, 8, 11, 68, 77, 94, 116, 121, 156, 158, 179, 194, 208, 212, 228, 240, 253, 259)
    assert ruler(600, 20) == (*first, 283)
    assert largest_redundancy(600) == 20


@given(st.integers(1, 250))
@settings(max_examples=40)
def test_rulers_have_distinct_differences(n):
    r = largest_redundancy(n)
    assert r * (r - 1) <= n - 1
    for marks in range(1, r + 1):
        found = ruler(n, marks)
        assert len(found) == marks
        assert found[0] == 0
        assert sorted(found) == list(found)
        differences = {(a - b) % n for a in found for b in found if a != b}
        assert len(differences) == marks * (marks - 1)


def test_known_rulers_are_rulers():
    from dtoolkit.training.stacked.rulers import _SHORTEST

    for marks, offsets in _SHORTEST.items():
        assert len(offsets) == marks
        assert is_ruler(offsets, 2 * offsets[-1] + 1)
    assert not is_ruler((0, 1, 2), 10)
    assert not is_ruler((0, 5), 10)  # 5 is its own negative modulo 10
    with pytest.raises(ValueError, match="n=0: wanted 1 or more"):
        is_ruler((0, 1, 3), 0)


@pytest.mark.parametrize(("n", "r"), [(7, 3), (13, 4), (21, 5), (31, 6), (57, 8)])
def test_perfect_rulers_use_every_difference(n, r):
    """Where r (r - 1) = n - 1, projective planes have one, of which the search finds the small."""
    if n > 31:
        with pytest.raises(PlanError, match=r"no offsets .* were found; up to r=7"):
            ruler(n, r)
    else:
        assert is_ruler(ruler(n, r), n)


def test_what_cannot_be_a_ruler_is_refused():
    with pytest.raises(PlanError, match=r"r=3 shards a stack for n=4 groups.*at most 2"):
        ruler(4, 3)
    with pytest.raises(ValueError, match="n=0"):
        ruler(0, 1)
    with pytest.raises(ValueError, match="r=0"):
        placement(4, 0)


# ---------------------------------------------------------------------------------- placement


@given(st.integers(1, 60), st.data())
@settings(max_examples=40)
def test_two_types_share_at_most_one_group(n, data):
    stacks = placement(n, data.draw(st.integers(1, largest_redundancy(n))))
    assert stacks.ruled
    where = [set(stacks.holders(shard)) for shard in range(n)]
    assert all(len(own) == stacks.redundancy for own in where)
    assert all(len(where[a] & where[b]) <= 1 for a in range(n) for b in range(a))
    for group, stack in enumerate(stacks.order):
        assert stack[0] == group
        assert all(group in where[shard] for shard in stack)


def test_own_offsets():
    assert not placement(20, 4, offsets=range(4)).ruled
    for wrong in ((0, 1), (1, 2, 3), (0, 0, 1), (0, 1, 21)):
        with pytest.raises(PlanError, match="offsets="):
            placement(20, 3, offsets=wrong)


# --------------------------------------------------------------------------------- controller


@st.composite
def losses(draw, most=7):
    """A placement, and groups that are lost one after the other or several at once."""
    n = draw(st.integers(1, most))
    r = draw(st.integers(1, min(n, 4)))
    others = draw(st.permutations(range(1, n)))
    stacks = placement(n, r, offsets=(0, *others[: r - 1]))
    gone = draw(st.permutations(range(n)))
    cuts = sorted(draw(st.sets(st.integers(1, n), max_size=4)))
    return stacks, [gone[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]


def by_brute_force(stacks, alive, least, order):
    """Least S, and the least number of types that come into the first S slots; None: wipe-out."""
    holders = [[g for g in stacks.holders(t) if g in alive] for t in range(stacks.groups)]
    found = None
    for suppliers in product(*holders):
        load = max(suppliers.count(group) for group in alive)
        S = max(load, least)
        moved = sum(order[g].index(t) >= S for t, g in enumerate(suppliers))
        if found is None or (S, moved) < found:
            found = S, moved
    return found


def check(found: Assignment, stacks, alive):
    assert found.alive == tuple(sorted(alive))
    assert list(map(sorted, found.order)) == list(map(sorted, stacks.order))
    for group in range(stacks.groups):
        assert found.computes[group] == (found.order[group][: found.S] if group in alive else ())
        assert len(found.counts[group]) <= found.S
    counted = [shard for own in found.counts for shard in own]
    assert sorted(counted) == list(range(stacks.groups))
    for shard, group in enumerate(found.supplier):
        assert shard in found.computes[group]


@given(losses())
@settings(max_examples=150)
def test_every_type_is_counted_once_at_least_s_and_least_moved(case):
    stacks, lost = case
    now, alive = assign(stacks, range(stacks.groups)), set(range(stacks.groups))
    check(now, stacks, alive)
    assert (now.S, now.moved, now.order) == (1, 0, stacks.order)
    for together in lost:
        alive -= set(together)
        wanted = by_brute_force(stacks, alive, now.S, now.order)
        before, now = now, now.lose(together)
        if wanted is None:
            assert isinstance(now, WipeOut)
            assert set(now.missing) == {
                t for t in range(stacks.groups) if not alive & set(stacks.holders(t))
            }
            return
        check(now, stacks, alive)
        assert (now.S, now.moved) == wanted
        if all(t in {u for g in alive for u in before.computes[g]} for t in range(stacks.groups)):
            assert now.order == before.order


@given(losses(most=9), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_only_what_no_survivor_holds_is_patched(case, random):
    stacks, lost = case
    begin = assign(stacks, range(stacks.groups))
    for groups in lost[:1]:
        alive = set(range(stacks.groups)) - set(groups)
        held = {g: [t for t in stacks.order[g] if random.random() < 0.5] for g in alive}
        for have in (None, held, {}):
            found = begin.lose(groups, held=have)
            if isinstance(found, WipeOut):
                return
            own = {g: {g} for g in alive} if have is None else have
            there = {t for g in alive for t in own.get(g, ())}
            patched = [t for g in sorted(alive) for t in found.patch[g]]
            assert sorted(patched) == sorted(set(range(stacks.groups)) - there)
            assert not any(found.patch[g] for g in groups)
            for shard, group in enumerate(found.now):
                assert shard in found.patch[group] or shard in own.get(group, ())


def test_four_workers_endure_any_one_loss_and_some_two():
    begin = assign(placement(4, 2), range(4))
    for group in range(4):
        found = begin.lose([group])
        assert (found.S, sum(map(len, found.patch))) == (2, 1)
    assert begin.lose([1, 3]).S == 2
    two = begin.lose([1, 2])
    assert two.missing == (2,)
    assert str(two).startswith("wipe-out: no survivor of 2 holds shard(s) 2;")
    assert assign(begin.stacks, []) == WipeOut((0, 1, 2, 3), ())


def test_groups_that_came_back_start_anew():
    begin = assign(placement(8, 3), range(8))
    less = begin.lose([0, 5])
    assert less.S == 2
    assert less.lose([0, 5]) == assign(less.stacks, less.alive, S=2, order=less.order)
    assert assign(less.stacks, range(8)) == begin


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: assign(s, [4]), r"alive=\(4,\): wanted groups from 0 to 3"),
        (lambda s: assign(s, [-1, 0]), "alive="),
        (lambda s: assign(s, [0, 1], S=0), "S=0: wanted from 1 to r=2"),
        (lambda s: assign(s, [0, 1], S=3), "S=3"),
        (lambda s: assign(s, [0, 1], order=[(0, 1), (1, 2), (2, 3), (3, 3)]), "order: wanted"),
        (lambda s: assign(s, [0, 1], order=s.order[:3]), "order: wanted"),
        (lambda s: assign(s, [0, 1, 2], held={0: [4]}), "group 0 holds 4"),
        (lambda s: assign(s, [0, 1, 2, 3]).lose([9]), "lost="),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(PlanError, match=words):
        call(placement(4, 2))


# ------------------------------------------------------------------------------ many groups


def until_wiped_out(stacks, seed):
    """S, and what was moved, after each loss in a random order of losses."""
    alive, order, S = np.ones(stacks.groups, np.bool_), stacks.table, 1
    way = []
    for group in np.random.default_rng(seed).permutation(stacks.groups):
        alive[group] = False
        settled = settling.settle(order, alive, S)
        if settled is None:
            return way
        order, S, moved = settled
        way.append((S, moved, order.tobytes()))
    raise AssertionError("all groups are gone")


@pytest.mark.parametrize(("n", "r"), [(30, 5), (90, 7)], ids=["plain", "compiled"])
def test_least_moved_of_many_groups(n, r):
    """Against SciPy: groups in S copies, a type that has to move costs 1, one that cannot many."""
    checked = 0
    for seed in range(4):
        now = assign(placement(n, r), range(n))
        for group in np.random.default_rng(seed).permutation(n).tolist():
            before, now = now, now.lose([group])
            if isinstance(now, WipeOut):
                break
            if not now.moved:
                continue
            price = np.full((n, n), n)
            for g in now.alive:
                price[list(before.order[g]), g] = 1
                price[list(before.order[g][: now.S]), g] = 0
            copies = np.repeat(price, now.S, axis=1)
            assert copies[linear_sum_assignment(copies)].sum() == now.moved
            checked += 1
    assert checked >= 10


def least_s(groups, lost):
    return -(-groups // (groups - lost))


def test_compiled_and_plain_come_to_the_same(monkeypatch):
    stacks = placement(80, 6)
    compiled = until_wiped_out(stacks, 1)
    assert max(S for S, _, _ in compiled) >= 2
    assert sum(moved for _, moved, _ in compiled) > 0
    monkeypatch.setattr(settling, "_PLAIN", 1000)
    assert until_wiped_out(stacks, 1) == compiled


def test_a_ruler_needs_no_more_than_groups_that_are_left_and_consecutive_offsets_do():
    """At 200 groups and stacks of 9: S above ceil(N / (N - k)) in none, and in about 22%."""
    above, steps = {"ruler": 0, "consecutive": 0}, {"ruler": 0, "consecutive": 0}
    for name, stacks in (
        ("ruler", placement(200, 9)),
        ("consecutive", placement(200, 9, offsets=range(9))),
    ):
        for seed in range(40):
            for lost, (S, _, _) in enumerate(until_wiped_out(stacks, seed), 1):
                assert least_s(200, lost) <= S
                above[name] += least_s(200, lost) < S
                steps[name] += 1
    assert above["ruler"] == 0
    assert above["consecutive"] / steps["consecutive"] == pytest.approx(0.22, abs=0.03)


def test_a_case_to_the_last_slot():
    """The same on every machine: nothing hangs on the order of a set or on a number's last bit."""
    found = assign(placement(13, 4), range(13))
    for lost in ([3, 7], [0], [5], [11]):
        found = found.lose(lost)
        assert (found.S, found.moved) == (2, 0)
    assert found.supplier == (12, 1, 2, 2, 4, 4, 6, 6, 8, 9, 10, 10, 12)
    found = found.lose([6])
    assert (found.S, found.moved) == (2, 3)
    changed = {g: s for g, s in enumerate(found.order) if s != found.stacks.order[g]}
    assert changed == {1: (1, 4, 2, 10), 4: (7, 5, 4, 0), 10: (6, 11, 0, 10)}
    assert found.supplier == (12, 1, 2, 2, 1, 4, 10, 4, 8, 9, 9, 10, 12)
    assert found.now == (12, 1, 2, 2, 4, 4, 10, 4, 8, 9, 9, 10, 12)
    assert {g: p for g, p in enumerate(found.patch) if p} == {4: (7,), 10: (6,)}
