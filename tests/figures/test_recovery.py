from __future__ import annotations

from types import SimpleNamespace

import pytest

from dtoolkit.comm import Network
from dtoolkit.figures import (
    assignment_card,
    recovery_card,
    recovery_plan_card,
    recovery_policies,
    recovery_timeline,
    redundancy,
    simulation_card,
)
from dtoolkit.training import plan_recovery
from dtoolkit.training.recovery import Recovery, RecoveryReport
from dtoolkit.training.stacked import assign, best_redundancy, cost, placement, simulate
from tests.figures.checks import check_card, check_figure, words

KILLED = Recovery(
    "kill rank 2 at step 5", "lost", (2,), 5, 1.0, 1.25, 3.0, 0, 1, 4096, "replica", "caught up"
)
SEEN = Recovery("rank 1: <ValueError> & co", "raised", (1,), 7, None, 4.0, 4.5, 2, 3, 0, "replica")
FAULT_ALONE = Recovery("corrupt rank 0", "unnoticed", (0,), 8, 5.0, None, None)


@pytest.fixture(scope="module")
def report():
    return RecoveryReport([KILLED, SEEN, FAULT_ALONE], policy="replica")


@pytest.fixture(scope="module")
def plan():
    return plan_recovery(Network.flat(8, bandwidth="1GB/s"), "5min", steps=300)


@pytest.fixture(scope="module")
def simulation():
    return simulate(30, steps=60)


# ------------------------------------------------------------------------------- timeline


def test_a_lane_a_fault_and_a_span_a_part(report):
    figure = recovery_timeline(report)
    document = check_figure(figure)
    unnoticed, repaired, struck = document["data"]
    assert (unnoticed["x"], unnoticed["y"]) == ([1.0, 1.25, None], [0, 0, None])
    assert repaired["x"] == [1.25, 3.0, None, 4.0, 4.5, None]
    assert repaired["y"] == [0, 0, None, 1, 1, None]
    assert (struck["x"], struck["y"]) == ([1.0, 5.0], [0, 2])
    assert "caught up" in repaired["text"][0]
    assert "1.75 s" in repaired["text"][0]
    assert figure.layout.title.text == "Faults and recoveries (measured): 3 faults"
    assert figure.layout.title.subtitle.text.startswith("2 steps lost, 4.1 kB moved to recover, ")
    assert "1.75 s at most" in figure.layout.title.subtitle.text
    assert "&lt;ValueError&gt; &amp; co" in figure.layout.yaxis.ticktext[1]


def test_a_run_is_drawn_by_its_recoveries(report):
    run = SimpleNamespace(recoveries=report)
    assert recovery_timeline(run).to_json() == recovery_timeline(report).to_json()


def test_nothing_went_wrong():
    figure = recovery_timeline(RecoveryReport())
    check_figure(figure)
    assert figure.layout.annotations[0].text == "no faults: nothing went wrong"
    root, pictures = check_card(recovery_card(RecoveryReport(policy="restart")))
    assert "nothing went wrong" in words(root)
    assert not pictures


# -------------------------------------------------------------------------------- policies


def test_a_bar_a_policy_by_formula_and_by_simulation(plan):
    figure = recovery_policies(plan)
    document = check_figure(figure)
    assert [bar["name"] for bar in document["data"]] == ["closed form", "simulated"]
    assert document["data"][0]["x"] == ["restart", "shrink", "replica", "stacked"]
    assert document["data"][1]["y"] == [policy.simulated for policy in plan.policies]
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.title.subtitle.text.startswith(f"least: {plan.best.name}, ")
    alone = plan_recovery(plan.network, "5min", simulated=False)
    assert [bar.name for bar in recovery_policies(alone).data] == ["closed form"]


def test_a_run_that_was_given_up_is_drawn_as_such(simulation):
    figure = recovery_policies(simulate(20, steps=20, mtbf=1.0))
    document = check_figure(figure)
    assert document["data"][0]["y"] == [200.0] * 3
    assert document["data"][0]["text"][0] == "over 200 × (given up)"
    drawn = check_figure(recovery_policies(simulation))["data"][0]
    assert drawn["x"] == ["checkpoint", "replication", "stacked"]


def test_cost_by_redundancy_with_the_best_marked():
    figure = redundancy([200, 600])
    document = check_figure(figure)
    first, second, best = document["data"]
    assert first["x"] == list(range(1, 13))  # as far as there are rulers
    assert second["x"] == list(range(1, 21))
    assert first["y"][7] == pytest.approx(cost(200, 8))
    assert best["x"] == [best_redundancy(200), best_redundancy(600)] == [8, 10]
    assert figure.layout.title.subtitle.text.startswith("best: 8 for 200 groups, 10 for 600 groups")
    assert redundancy(4).data[0].x == (1, 2)
    assert [len(line.x) for line in redundancy(200, most=5).data] == [5, 0]
    with pytest.raises(ValueError, match="groups is empty"):
        redundancy([])
    with pytest.raises(ValueError, match="n=0"):
        redundancy(0)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_modes(report, plan, mode):
    for figure in (recovery_timeline(report, mode=mode), recovery_policies(plan, mode=mode)):
        assert figure.layout.font.color != recovery_timeline(report).layout.font.color


# ----------------------------------------------------------------------------------- cards


def test_card_of_a_report(report):
    root, pictures = check_card(recovery_card(report))
    text = words(root)
    assert "3 faults got over by replica" in text
    assert "kill rank 2 at step 5" in text
    assert "after 250 ms at most" in text
    assert "after 1.75 s at most" in text
    assert len(pictures[0].findall(".//circle")) == 2
    assert len(pictures[0].findall(".//rect")) == 3 + 3


def test_card_of_many_faults_stays_small():
    entry = Recovery("x" * 500, "lost", (1,), 1, 1.0, 1.5, 2.0, how="y" * 5000)
    root, pictures = check_card(recovery_card(RecoveryReport([entry] * 300, policy="stacked")))
    assert "the first 10 of 300" in words(root)
    assert len(pictures) == 1


def test_card_of_a_plan(plan):
    root, pictures = check_card(plan._repr_html_())
    assert plan._repr_html_() == recovery_plan_card(plan)
    text = words(root)
    assert f"8 groups, best is {plan.best.name}" in text
    assert "none needed" in text
    assert "modelled" in text
    assert len(pictures) == 1


def test_card_of_a_simulation(simulation):
    root, _ = check_card(simulation._repr_html_())
    assert simulation._repr_html_() == simulation_card(simulation)
    text = words(root)
    assert "30 groups, 60 steps" in text
    assert all(rule in text for rule in simulation.assumptions)


def test_card_of_an_assignment():
    found = assign(placement(13, 4), range(13)).lose([3, 7])
    root, pictures = check_card(found._repr_html_())
    text = words(root)
    assert "11 of 13 left" in text
    assert "2 computed of 4 held" in text
    assert "3 gone" in text
    counted = [r for r in pictures[0].iter("rect") if r.find("title").text.endswith(": counted")]
    assert len(counted) == 13
    root, _ = check_card(assignment_card(assign(placement(1000, 10), range(1000))))
    assert "the first 6 of 1,000" in words(root)
