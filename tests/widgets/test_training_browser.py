"""TrainingPanel, SchedulePanel and SpeedPanel in JupyterLab and Chromium, by keyboard alone."""

from __future__ import annotations

import time

import pytest

from tests.widgets.browsing import (
    MARKS,
    choose,
    entitled,
    fill,
    part,
    press,
    settles,
    status,
    tab_to,
    told,
    waits_for,
)

pytestmark = MARKS


@pytest.fixture(scope="module")
def training(lab_page):
    page = lab_page("training", "import dtoolkit as dt", "dt.widgets.TrainingPanel()")
    waits_for(page, "Run trains by data-parallel")
    return page


def test_a_run_is_watched_stopped_and_resumed(training, capsys):
    page = training
    fill(page, "Steps", 1200)
    waits_for(page, "1,200 steps")
    settles(page)
    press(page, "Run")
    waits_for(page, ", loss ")
    entitled(page, "1 run (measured)")  # while it goes on
    tab_to(page, "Stop")
    start = time.monotonic()
    page.keyboard.press("Enter")
    waits_for(page, "Stopped: 1: data-parallel")
    told(capsys, "from the key to the word", {"Stop": time.monotonic() - start})
    press(page, "Resume")
    waits_for(page, "1,200 steps done")
    settles(page)


def test_another_strategy_is_put_beside_it_and_what_does_not_fit_is_told(training):
    page = training
    fill(page, "Steps", 40)
    choose(page, "Strategy", "gossip")
    waits_for(page, "Run trains by gossip")
    choose(page, "Sparsity", "RigL")
    settles(page)
    press(page, "Run")
    alert = part(page, "[role=alert]")
    alert.wait_for()
    assert "gossip" in alert.inner_text()
    tab_to(page, "Sparsity")
    page.keyboard.press("Home")
    settles(page)
    press(page, "Run")
    waits_for(page, "gossip: 40 steps done")
    settles(page)
    entitled(page, "2 runs (measured)")
    assert part(page, "[aria-label='Runs side by side'] tbody tr").count() == 2
    assert page.faults == []


def test_a_network_is_written_and_scheduled(lab_page):
    page = lab_page("schedule", "import dtoolkit as dt", "dt.widgets.SchedulePanel()")
    waits_for(page, "the reference for this network is 1.622")
    fill(page, "Chunks", 4)
    waits_for(page, "in 4 chunks")
    tab_to(page, "Network")
    page.keyboard.press("Home")
    waits_for(page, "in 4 chunks")
    tab_to(page, "Size")
    page.keyboard.press("Control+a")
    page.keyboard.type("soon")
    page.keyboard.press("Enter")
    part(page, "[role=alert]").wait_for()
    assert "soon" in part(page, "[role=alert]").inner_text()
    fill(page, "Size", "10MB")
    waits_for(page, "of 10 MB")
    settles(page)
    assert part(page, "[role=alert]").count() == 0
    assert page.faults == []


def test_late_workers_are_said_and_the_gain_follows(lab_page):
    page = lab_page("speed", "import dtoolkit as dt", "dt.widgets.SpeedPanel()")
    page.locator(".dtk-panel .gtitle").first.wait_for()
    settles(page)
    before = status(page)
    choose(page, "Distribution", "normal")
    page.wait_for_function(
        "said => document.querySelector('.dtk-panel [role=status]').textContent !== said",
        arg=before,
    )
    settles(page)
    fill(page, "Workers", 256)
    waits_for(page, "256")
    settles(page)
    assert page.faults == []
