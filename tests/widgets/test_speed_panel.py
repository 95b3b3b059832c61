"""SpeedPanel: the paper's closed form and simulation, the code shown, a run on real workers."""

from __future__ import annotations

import asyncio

import pytest

from dtoolkit.widgets import SpeedPanel
from dtoolkit.widgets.speed_controls import PRESETS


@pytest.fixture(scope="module")
def panel():
    made = SpeedPanel()
    yield made
    made.close()


@pytest.mark.parametrize("name", list(PRESETS)[:2])
def test_presets_simulate_and_the_code_shown_does_the_same(panel, name):
    panel._preset.set(name)
    assert panel.state["error"] == ""
    space = {}
    exec(panel.code(), space)
    assert space["study"].chosen.speedup == panel.study.chosen.speedup
    assert space["study"].formula == panel.study.formula
    assert [one.workers for one in space["gains"]] == [one.workers for one in panel.gains]


def test_normal_times_follow_the_closed_form(panel):
    panel.reset()
    panel.set(
        delay="normal", mean="1s", deviation="0.3s", compute="0s", overhead="0.5s",
        micro_batches=12, workers=64, rule="at",
    )  # fmt: skip
    assert panel.study.chosen.speedup == pytest.approx(1.138, rel=0.01)
    assert panel.study.formula == pytest.approx(panel.study.chosen.speedup, rel=0.01)
    table = panel.table()
    assert set(table["curve"]) >= {"chosen", "workers", "threshold"}
    assert table["workers"].max() == 1024


def test_a_run_on_workers_is_held_against_the_simulation(cluster2):
    async def body():
        panel = SpeedPanel(cluster=cluster2)
        await panel.wait()
        panel.set(steps=12)
        await panel.wait()
        panel.run()
        await panel.wait()
        assert panel.state["error"] == "", panel.state["details"]
        assert panel.trial is not None
        assert panel.state["status"].startswith("Measured on 2 workers over 12 steps")
        assert "measured" in set(panel.table()["curve"])
        panel.close()

    asyncio.run(body())


def test_a_time_that_does_not_parse_is_refused_in_words(panel):
    with pytest.raises(ValueError, match="Mean"):
        panel.set(mean="soon")
