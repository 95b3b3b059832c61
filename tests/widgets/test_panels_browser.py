"""What every panel promises in the browser: names, contrast, exports, code, the figure kept.

Traffic and partition have more of it in modules of their own.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.widgets import lab
from tests.widgets.browsing import (
    CODE,
    EXPORTS,
    MARKS,
    axe,
    contrast,
    keep,
    names,
    overflows,
    part,
    press,
    saves,
    settles,
    shown,
    status,
)

pytestmark = MARKS

LABELS = {
    "PartitionPanel": {"Matrix", "Parts", "Strategy", "Run on the workers"},
    "FaultPanel": {"Workers", "Recovery", "Rank", "Schedule", "Kill", "Freeze", "Run"},
    "TrainingPanel": {"Task", "Strategy", "Sparsity", "Network", "Resume", "Run"},
    "SchedulePanel": {"Network", "Operation", "Chunks"},
    "SpeedPanel": {"Distribution", "Workers", "Micro-batches", "Run on the workers"},
}


@pytest.fixture(scope="module", params=LABELS)
def panel(request, lab_page):
    """One panel on a page of its own, as its first preset shows it."""
    name = request.param
    page = lab_page(name, "import dtoolkit as dt", f"dt.widgets.{name}()")
    page.locator(".dtk-panel .js-plotly-plot").first.wait_for()
    settles(page)
    return name, page


def test_every_control_has_a_name_and_axe_finds_nothing_serious(panel):
    name, page = panel
    found = names(page)
    assert [role for role, said in found if not said] == []
    assert {"Stop", "Reset", "Preset", *LABELS[name]} <= {said for _, said in found}
    assert axe(page) == []


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_reads_at_1000_pixels(panel, theme):
    _, page = panel
    page.set_viewport_size({"width": 1000, "height": 1100})
    lab.set_theme(page, theme)
    page.wait_for_function(
        "wide => document.querySelector('.js-plotly-plot').layout.width < wide", arg=680
    )
    time.sleep(0.7)  # ink follows the theme
    assert not overflows(page)
    assert contrast(page) == []
    page.set_viewport_size({"width": 1400, "height": 1100})


def test_exports_and_code_by_keyboard(panel, tmp_path):
    name, page = panel
    for label, ending in EXPORTS.items():
        file = saves(page, label, tmp_path)
        assert file.suffix == f".{ending}"
        if ending == "json":
            assert json.loads(file.read_text())["panel"] == name
    press(page, "Show the code")
    part(page, CODE).wait_for()
    compile(part(page, CODE).inner_text(), name, "exec")
    press(page, "Hide the code")


def test_a_reload_finds_the_figure_as_it_was(panel):
    _, page = panel
    settles(page)
    time.sleep(0.5)
    before, said = shown(page), status(page)
    keep(page)
    settles(page)
    time.sleep(0.5)
    assert shown(page) == before
    assert status(page) == said
    assert page.faults == []
