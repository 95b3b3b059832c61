"""The funnel: rounds, who goes on, what comes next, and what the table says of all that."""

from __future__ import annotations

import math

import pytest

from dtoolkit.training.study import Study
from dtoolkit.training.study.halving import judge, rungs
from dtoolkit.training.study.trials import next_trial
from tests.training.study.toys import as_if_measured, gave, measured_by


@pytest.mark.parametrize(
    ("rivals", "eta", "expected"),
    [
        (1, 3, [(1, 1, 1.0)]),
        (2, 3, [(2, 1, 1 / 3), (1, 1, 1.0)]),
        (4, 2, [(4, 2, 0.25), (2, 1, 0.5), (1, 1, 1.0)]),
        (9, 3, [(9, 3, 1 / 9), (3, 1, 1 / 3), (1, 1, 1.0)]),
        (5, 2, [(5, 3, 1 / 8), (3, 2, 1 / 4), (2, 1, 1 / 2), (1, 1, 1.0)]),
    ],
)
def test_rounds(rivals: int, eta: int, expected: list[tuple[int, int, float]]) -> None:
    assert [(one.rivals, one.keep, one.share) for one in rungs(rivals, eta)] == expected


def test_no_rounds_of_nobody() -> None:
    with pytest.raises(ValueError, match="rivals=0"):
        rungs(0, 2)
    with pytest.raises(ValueError, match="eta=1"):
        rungs(2, 1)


def test_the_smallest_losses_go_on() -> None:
    verdict = judge([0.5, 0.1, math.nan, 0.3, None, math.inf], 2, list("abcdef"))
    assert verdict.going_on == (1, 3)
    assert verdict.stopped == {
        0: "its loss was 0.5, place 3 of 6; the best, b, had 0.1",
        2: "its loss was nan",
        4: "it failed",
        5: "its loss was inf",
    }


def test_of_equal_losses_the_first_goes_on_and_of_none_nobody() -> None:
    assert judge([1.0, 1.0], 1, ["a", "b"]).going_on == (0,)
    assert judge([math.nan, None], 1, ["a", "b"]).going_on == ()


def run_through(plan, losses):
    measured, order = {}, []
    measure = measured_by(losses)
    while (trial := next_trial(plan, measured)) is not None:
        order.append((trial.setting.strategy, trial.setting.learning_rate, trial.rung))
        measured[trial.setting, trial.rung] = measure(trial.setting, trial.share)
    return measured, order


def test_what_is_measured_next_follows_from_what_was() -> None:
    plan = as_if_measured()
    losses = {0.1: 0.9, 0.2: 0.3, 0.4: 0.5, 0.8: None}
    measured, order = run_through(plan, losses)
    one_group = [(0.1, 0), (0.2, 0), (0.4, 0), (0.8, 0), (0.2, 1), (0.4, 1), (0.2, 2)]
    assert order == [(way, *one) for way in ("zero-0", "zero-1") for one in one_group]
    assert plan.trials == 14
    for cut in (0, 1, 5, 9, 13):  # killed anywhere, it goes on with what comes next
        some = dict(list(measured.items())[:cut])
        trial = next_trial(plan, some)
        assert (trial.setting.strategy, trial.setting.learning_rate, trial.rung) == order[cut]


def test_the_table_says_who_was_stopped_and_why() -> None:
    plan = as_if_measured()
    measured, _ = run_through(plan, {0.1: 0.9, 0.2: 0.3, 0.4: 0.5, 0.8: None})
    study = Study(plan, measured)
    table = study.results[study.results["strategy"] == "zero-0"].set_index("learning_rate")
    own = table[table["source"] == "measured"]
    assert own["outcome"].to_dict() == {
        0.1: "stopped", 0.2: "finished", 0.4: "stopped", 0.8: "failed",
    }  # fmt: skip
    assert own["samples"].tolist() == [240, 960, 480, 240]
    assert own.loc[0.1, "why"] == (
        "after 240 samples: its loss was 0.9, place 3 of 4; the best, learning rate 0.2, had 0.3"
    )
    assert own.loc[0.8, "why"] == "RankError"
    assert study.complete
    assert study.results["source"].value_counts().to_dict() == {"measured": 8, "modelled": 4}
    modelled = study.results[study.results["source"] == "modelled"]
    assert modelled["loss"].isna().all()
    assert (modelled["samples_per_second"] > 0).all()
    assert "5 MB a worker (measured)" in repr(study)


def test_a_part_of_a_study_says_what_is_open() -> None:
    plan = as_if_measured()
    first = plan.groups[0][0]
    study = Study(plan, {(first, 0): gave(0.5)})
    counts = study.results["outcome"].value_counts().to_dict()
    assert counts == {"open": 8, "modelled": 4}
    assert not study.complete
    assert "in the middle" in study.results["why"].iloc[0]


def test_the_best_under_a_limit() -> None:
    study = Study(as_if_measured(), {})
    with pytest.raises(ValueError, match=r"memory_limit='1kB': none of 4 settings fits.* takes"):
        study.best("1kB")
    best = study.best()
    assert (best["stage"], best["source"]) == (0, "modelled")
    low = study.results[study.results["stage"] == 1]["memory"].max()
    assert study.best(int(low) + 1)["stage"] == 1
    with pytest.raises(ValueError, match="model='huge': the study has digits"):
        study.best(model="huge")
    with pytest.raises(ValueError, match="workers=7: the study has 1, 2"):
        study.best(workers=7)
    with pytest.raises(ValueError, match="no setting of that kind"):
        study.best(workers=1)


def test_what_was_measured_is_preferred() -> None:
    plan = as_if_measured()
    measured, _ = run_through(plan, {0.1: 0.9, 0.2: 0.3, 0.4: 0.5, 0.8: None})
    study = Study(plan, measured)
    assert study.best()["learning_rate"] == 0.2
    assert study.best(source="modelled")["workers"] == 2
