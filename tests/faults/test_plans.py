"""Random plans: the rates that were asked for, the same faults on every machine."""

import math
from collections import Counter

import numpy as np
import pytest

from dtoolkit.faults import KINDS, Corrupt, CutLink, Kill, random_plan

WEIBULL_STD = 1.30  # standard deviation over the mean at shape 0.78


def gaps(arrivals: str) -> np.ndarray:
    plan = random_plan(seed=3, ranks=4, seconds=40_000.0, mtbf=10.0, arrivals=arrivals)
    return np.diff([0.0, *(fault.after for fault in plan)])


@pytest.mark.parametrize(("arrivals", "spread"), [("exponential", 1.0), ("weibull", WEIBULL_STD)])
def test_times_between_faults(arrivals, spread):
    between = gaps(arrivals)
    assert between.mean() == pytest.approx(10.0, rel=0.05)
    assert between.std() / between.mean() == pytest.approx(spread, rel=0.05)
    shape = 0.78 if arrivals == "weibull" else 1.0
    scale = 10.0 / math.gamma(1 + 1 / shape)
    for share in (0.1, 0.5, 0.9):
        bound = scale * (-math.log(1 - share)) ** (1 / shape)
        assert (between < bound).mean() == pytest.approx(share, abs=0.02)


def test_steps_ranks_and_parts():
    parts = ("begin", "backward", "exchange")
    plan = random_plan(seed=0, ranks=4, steps=8000, mtbf=4.0, where=parts)
    assert len(plan) == pytest.approx(2000, rel=0.1)
    steps = [fault.at_step for fault in plan]
    assert steps == sorted(steps)
    assert max(steps) < 8000
    for drawn, choices in (
        (Counter(fault.rank for fault in plan), range(4)),
        (Counter(fault.where for fault in plan), parts),
    ):
        assert set(drawn) == set(choices)
        for count in drawn.values():
            assert count / len(plan) == pytest.approx(1 / len(choices), abs=0.04)


def test_kinds_by_weight():
    plan = random_plan(seed=1, ranks=3, steps=4000, mtbf=2.0, kinds={"kill": 3, "cut": 1, "nan": 0})
    kinds = Counter(type(fault) for fault in plan)
    assert set(kinds) == {Kill, CutLink}
    assert kinds[Kill] / len(plan) == pytest.approx(0.75, abs=0.04)
    links = {(fault.source, fault.target) for fault in plan if isinstance(fault, CutLink)}
    assert links == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_every_kind_makes_a_fault_that_fits():
    plan = random_plan(seed=2, ranks=4, steps=400, mtbf=1.0, kinds=KINDS, where="exchange")
    for fault in plan:
        fault.check(4)
    assert len({type(fault) for fault in plan}) == 6
    wrong = [fault for fault in plan if isinstance(fault, Corrupt)]
    assert {fault.kind for fault in wrong} == {"nan", "inf", "bitflip"}
    assert len({fault.seed for fault in wrong}) == len(wrong)


def test_a_plan_depends_on_its_seed_and_a_longer_one_begins_like_it():
    plan = random_plan(seed=7, ranks=4, steps=200, mtbf=10.0)
    assert plan == random_plan(seed=7, ranks=4, steps=200, mtbf=10.0)
    assert plan != random_plan(seed=8, ranks=4, steps=200, mtbf=10.0)
    assert random_plan(seed=7, ranks=4, steps=400, mtbf=10.0)[: len(plan)] == plan
    timed = random_plan(seed=7, ranks=4, seconds=200.0, mtbf=10.0)
    assert [int(fault.after) for fault in timed] == [fault.at_step for fault in plan]


def test_the_plans_of_a_seed_stay_what_they_were():
    plan = random_plan(seed=1, ranks=4, steps=22, mtbf=4.0, where=("begin", "exchange"))
    assert plan == (
        Kill(0, at_step=0),
        Kill(0, at_step=7, where="exchange"),
        Kill(2, at_step=21, where="exchange"),
    )
    assert random_plan(seed=1, ranks=4, steps=0, mtbf=1.0) == ()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"steps": None}, ValueError, "steps= or seconds="),
        ({"seconds": 1.0}, ValueError, "steps= or seconds="),
        ({"steps": 1.5}, TypeError, "steps=1.5"),
        ({"steps": -1}, ValueError, "steps=-1"),
        ({"seed": "a"}, TypeError, "seed='a'"),
        ({"ranks": 0}, ValueError, "ranks=0"),
        ({"ranks": 2.5}, TypeError, "ranks=2.5"),
        ({"mtbf": 0}, ValueError, "mtbf=0"),
        ({"mtbf": float("inf")}, ValueError, "mtbf=inf"),
        ({"mtbf": "1"}, TypeError, "mtbf='1'"),
        ({"shape": -1}, ValueError, "shape=-1"),
        ({"arrivals": "poisson"}, ValueError, "arrivals='poisson'"),
        ({"kinds": "fire"}, ValueError, "kinds: 'fire' is none of kill, hang"),
        ({"kinds": None}, TypeError, "kinds=None: wanted names, of kill, hang"),
        ({"kinds": [["kill"]]}, TypeError, "kinds=.* wanted names"),
        ({"where": None}, TypeError, "where=None: wanted names, of begin"),
        ({"kinds": ()}, ValueError, "wanted a kind"),
        ({"kinds": {"kill": 0}}, ValueError, "wanted a kind"),
        ({"kinds": {"kill": -1}}, ValueError, "the weight of 'kill' is -1"),
        ({"kinds": "cut", "ranks": 1}, ValueError, "'cut' takes two ranks"),
        ({"where": "middle"}, ValueError, "where='middle'"),
        ({"where": ()}, ValueError, "where="),
        ({"steps": None, "seconds": 1.0, "where": "backward"}, ValueError, "goes with steps="),
        ({"steps": None, "seconds": 9.0, "kinds": "nan"}, ValueError, "give steps="),
    ],
)
def test_what_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        random_plan(**{"seed": 0, "ranks": 4, "mtbf": 1.0, "steps": 10, **arguments})
