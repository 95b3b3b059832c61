"""TrafficPanel in JupyterLab and Chromium, by keyboard alone: run, filtered, played, kept."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from dtoolkit.comm import Replay, Trace
from tests.widgets import lab
from tests.widgets.browsing import (
    CODE,
    MARKS,
    axe,
    contrast,
    entitled,
    fill,
    keep,
    names,
    overflows,
    part,
    press,
    saves,
    settles,
    shown,
    status,
    tab_to,
    title,
    told,
    upload,
    waits_for,
)
from tests.widgets.test_traffic_panel import synthetic

pytestmark = MARKS

DATA = "() => document.querySelector('.dtk-panel .js-plotly-plot').data"
PLACE = """
() => Number([...document.querySelectorAll(".dtk-panel input")]
  .find(box => box.labels?.[0]?.textContent === "Position (‰)").value)
"""


@pytest.fixture(scope="module")
def page(lab_page):
    page = lab_page("traffic", "import dtoolkit as dt", "panel = dt.widgets.TrafficPanel()\npanel")
    waits_for(page, "No trace is here yet")
    return page


def test_a_product_is_run_and_its_traffic_shown(page):
    fill(page, "Workers", 2)
    press(page, "Run on the workers")
    waits_for(page, "Product, joint on 2")
    settles(page)
    cells = heat(page)
    assert cells.shape == (2, 2)
    assert (cells > 0).tolist() == [[False, True], [True, False]]
    assert "spmm" in part(page, "tbody").inner_text()


def test_a_file_is_taken_and_a_broken_one_refused(page, tmp_path):
    synthetic(60).save(tmp_path / "mine.trace")
    (tmp_path / "bad.trace").write_text("no trace")
    upload(page, "Upload a trace", tmp_path / "bad.trace")
    alert = part(page, "[role=alert]")
    alert.wait_for()
    assert "bad.trace is not a trace" in alert.inner_text()
    upload(page, "Upload a trace", tmp_path / "mine.trace")
    waits_for(page, "mine.trace: 60 events")
    settles(page)
    assert alert.count() == 0
    assert (heat(page) == synthetic(60).matrix()).all()


def test_views_and_filters_answer_by_keyboard(page, capsys):
    times = {}
    for name, words, said in (
        ("Phase", "ArrowDown", "20 events in all"),
        ("Operation", "End", "10 events in all"),
        ("Phase", "Home", "30 events in all"),
        ("Operation", "Home", "60 events in all"),
    ):
        start = time.monotonic()
        key(page, name, words)
        waits_for(page, said)
        times[f"{name} {words}"] = time.monotonic() - start
        settles(page)
    for words, said in (("ArrowDown", "Over time"), ("End", "Load by link"), ("Home", "From rank")):
        start = time.monotonic()
        key(page, "View", words)
        entitled(page, said)
        times[f"view {words}"] = time.monotonic() - start
        settles(page)
    told(capsys, "from the key to the answer", times)
    assert max(times.values()) < 15


def test_networks_with_their_tiers_follow_each_other_in_place(page):
    key(page, "View", "End")
    entitled(page, "(measured)")
    settles(page)
    key(page, "Network", "ArrowDown")
    entitled(page, "times modelled")
    settles(page)
    assert "between nodes" in part(page, ".js-plotly-plot").inner_text()
    key(page, "View", "Home")
    entitled(page, "From rank")
    settles(page)
    assert part(page, ".js-plotly-plot g.ytick").count() == 4


def test_it_is_played_and_paused_by_keyboard(page):
    key(page, "Speed", "End")
    settles(page)
    fill(page, "Position (‰)", 100)
    waits_for(page, "of 60,")
    settles(page)
    before = heat(page).sum()
    press(page, "Play")
    page.wait_for_function(f"() => ({PLACE})() > 110")
    press(page, "Pause")
    page.wait_for_timeout(300)
    place = page.evaluate(PLACE)
    page.wait_for_timeout(500)
    assert page.evaluate(PLACE) == place < 1000
    assert before <= heat(page).sum() < synthetic(60).total


def test_the_cursor_of_the_timeline_moves_with_the_position(page):
    key(page, "View", "ArrowDown")
    entitled(page, "Over time")
    settles(page)
    path = part(page, ".js-plotly-plot .shapelayer path").first
    places = []
    for position in (250, 750):
        fill(page, "Position (‰)", position)
        waits_for(page, f"{synthetic_share(position)} events of 60")
        settles(page)
        page.wait_for_timeout(300)
        box = path.bounding_box()
        places.append(box["x"] + box["width"] / 2)
    room = part(page, ".js-plotly-plot .nsewdrag").first.bounding_box()
    assert abs(places[1] - places[0] - room["width"] * 0.5 / 1.01) < 3
    key(page, "View", "Home")
    entitled(page, "From rank")
    settles(page)


def test_two_traces_lie_beside_each_other(page):
    fill(page, "Position (‰)", 1000)
    settles(page)
    key(page, "Beside it", "ArrowDown")
    waits_for(page, "Product, joint on 2")
    settles(page)
    maps = [trace for trace in page.evaluate(DATA) if trace["type"] == "heatmap"]
    assert len(maps) == 2
    assert maps[0]["zmax"] == maps[1]["zmax"]


def test_exports_by_keyboard(page, tmp_path):
    file = saves(page, "Perfetto (JSON)", tmp_path)
    events = json.loads(file.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["pid"] == 0 for event in events) == 60
    assert {event["pid"] for event in events} == {0, 1}
    file = saves(page, "Trace (file)", tmp_path)
    assert file.name == "traffic-trace.jsonl.gz"
    assert (Trace.load(file).matrix() == synthetic(60).matrix()).all()
    press(page, "Show the code")
    part(page, CODE).wait_for()
    assert "dt.comm.Trace.load('mine.trace')" in part(page, CODE).inner_text()
    press(page, "Hide the code")


def test_every_control_has_a_name_and_axe_finds_nothing(page):
    found = names(page)
    assert [role for role, name in found if not name] == []
    wanted = {"Trace", "Beside it", "View", "Count", "Phase", "Operation", "Launch", "Play",
              "Position (‰)", "Speed", "Run on the workers", "Stop"}  # fmt: skip
    assert wanted <= {name for _, name in found}
    assert axe(page) == []


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_reads_at_1000_pixels_in_both_themes(page, theme):
    page.set_viewport_size({"width": 1000, "height": 1100})
    lab.set_theme(page, theme)
    page.wait_for_function(
        "wide => document.querySelector('.js-plotly-plot').layout.width < wide", arg=620
    )
    page.wait_for_timeout(500)
    assert not overflows(page)
    assert contrast(page) == []
    page.set_viewport_size({"width": 1400, "height": 1100})
    page.wait_for_timeout(500)


def test_a_reload_finds_the_figure_as_it_was(page):
    key(page, "View", "ArrowDown")
    entitled(page, "Over time")
    settles(page)
    page.wait_for_timeout(500)
    data, said = shown(page), status(page)
    keep(page)
    settles(page)
    page.wait_for_timeout(500)
    assert shown(page) == data
    assert status(page) == said
    assert "Over time" in title(page)
    key(page, "View", "Home")
    entitled(page, "From rank")
    assert page.faults == []


def synthetic_share(position):
    replay = Replay(synthetic(60))
    return int((replay.end <= position / 1000 * replay.span).sum())


def key(page, name, pressed):
    """Press one key on a control; letters would add up to words, or not, by the clock."""
    tab_to(page, name)
    page.keyboard.press(pressed)


def heat(page):
    """The first heatmap as it is drawn."""
    return np.array(page.evaluate(f"() => ({DATA})()[0].z.map(row => Array.from(row))"))
