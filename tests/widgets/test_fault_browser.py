"""FaultPanel in JupyterLab and Chromium, by keyboard alone: a worker is killed and comes back."""

from __future__ import annotations

import json
import time

import pytest

from tests.widgets.browsing import (
    MARKS,
    entitled,
    fill,
    keep,
    part,
    press,
    saves,
    settles,
    shown,
    status,
    tab_to,
    told,
    waits_for,
)

pytestmark = MARKS

NOW = "[aria-label='The workers now']"


@pytest.fixture(scope="module")
def page(lab_page):
    page = lab_page("faults", "import dtoolkit as dt", "dt.widgets.FaultPanel()")
    waits_for(page, "Run trains 300 steps")
    return page


def test_a_worker_is_killed_during_a_run_and_comes_back(page, capsys):
    fill(page, "Workers", 3)
    fill(page, "Rank", 1)
    press(page, "Clear schedule")
    waits_for(page, "under 0 faults")
    fill(page, "Steps", 300)
    waits_for(page, "300 steps on 3")
    settles(page)
    press(page, "Run")
    waits_for(page, ", loss ")  # the first step is made
    assert row(page, 1).startswith("1● alive")
    first = process(page, 1)
    press(page, "Kill")
    pressed = time.monotonic()
    becomes(page, 1, ("✕ dead", "○ joining"))
    died = time.monotonic() - pressed
    becomes(page, 1, ("● alive",))
    told(capsys, "in the panel", {"dead": died, "alive again": time.monotonic() - pressed})
    assert process(page, 1) != first
    settles(page)
    assert "300 steps done" in status(page)
    entitled(page, "1 fault seen, 1 got over")
    assert "rank 1 lost" in part(page, "[aria-label='Faults and recoveries']").inner_text()


def test_the_result_is_still_right(page):
    press(page, "Is the result still right?")
    waits_for(page, "Yes: after 300 steps equal to the run without faults, to the bit")
    settles(page)


def test_a_run_is_stopped_at_once(page, capsys):
    press(page, "Run")
    waits_for(page, "running")
    tab_to(page, "Stop")
    start = time.monotonic()
    page.keyboard.press("Enter")
    waits_for(page, "Stopped")
    told(capsys, "from the key to the word", {"Stop": time.monotonic() - start})


def test_the_clear_error_of_a_worker_that_is_lost(page):
    tab_to(page, "Recovery")
    page.keyboard.press("Home")
    fill(page, "Schedule", "kill 0 at 5")
    waits_for(page, "ends the run with an error")
    settles(page)
    press(page, "Run")
    alert = part(page, "[role=alert]")
    alert.wait_for()
    assert "rank 0" in alert.inner_text()
    assert "was lost" in alert.inner_text()
    fill(page, "Schedule", "explode 0 at 5")
    page.locator(".dtk-panel [role=alert]", has_text="there is no fault 'explode'").wait_for()
    fill(page, "Steps", 60)
    fill(page, "Schedule", "raise 1 at 3")
    waits_for(page, "under 1 fault")
    assert alert.count() == 0
    tab_to(page, "Recovery")
    page.keyboard.press("End")
    settles(page)
    press(page, "Run")
    waits_for(page, "60 steps done")
    settles(page)


def test_exports_and_a_reload_find_the_run_as_it_was(page, tmp_path):
    table = saves(page, "Data (CSV)", tmp_path).read_text()
    assert table.splitlines()[0].startswith("fault,kind,ranks,step")
    assert "raise RuntimeError on rank 1 at step 3" in table
    settings = json.loads(saves(page, "Settings (JSON)", tmp_path).read_text())["settings"]
    assert settings["schedule"] == "raise 1 at 3"
    time.sleep(0.5)
    before, said = shown(page), status(page)
    keep(page)
    settles(page)
    time.sleep(0.5)
    assert shown(page) == before
    assert status(page) == said
    assert page.faults == []


def row(page, rank):
    """The line of a worker: rank, state, process, memory, steps."""
    return part(page, f"{NOW} tbody tr").nth(rank).text_content()


def process(page, rank):
    return part(page, f"{NOW} tbody tr").nth(rank).locator("td").nth(2).text_content()


def becomes(page, rank, states):
    page.wait_for_function(
        """([rank, states]) => {
             const line = document.querySelectorAll(
               "[aria-label='The workers now'] tbody tr")[rank];
             return line && states.includes(line.children[1].textContent);
           }""",
        arg=[rank, list(states)],
        polling=20,
    )
