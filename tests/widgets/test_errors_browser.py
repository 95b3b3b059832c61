"""An error of each kind on one page, two panels on one cluster: said in words, and all works on."""

from __future__ import annotations

import pytest

from tests.widgets.browsing import (
    MARKS,
    choose,
    fill,
    part,
    press,
    settles,
    tab_to,
    upload,
    waits_for,
)

pytestmark = MARKS
LAYOUT, FAULTS = 0, 1  # the panels on the page


@pytest.fixture(scope="module")
def page(lab_page):
    page = lab_page(
        "errors",
        "import dtoolkit as dt\n"
        "cluster = dt.Cluster(workers=2, memory_limit='1 GiB')\n"
        "dt.widgets.PartitionPanel(cluster=cluster)",
        "dt.widgets.FaultPanel(cluster=cluster)",
    )
    fill(page, "Parts", 2, LAYOUT)
    waits_for(page, "2 parts", LAYOUT)
    settles(page, LAYOUT)
    return page


def measures(page):
    """The panel lays out and multiplies as if nothing had been."""
    fill(page, "Dense columns", 16, LAYOUT)
    settles(page, LAYOUT)
    press(page, "Run on the workers", LAYOUT)
    waits_for(page, "Measured on 2 workers", LAYOUT)
    settles(page, LAYOUT)
    assert part(page, "[role=alert]", LAYOUT).count() == 0


def says(page, panel, *words):
    """Wait for an error with these words, and none of Python's."""
    alert = part(page, "[role=alert]", panel)
    alert.filter(has_text=words[0]).wait_for()
    said = alert.inner_text()  # details are folded away
    assert all(word in said for word in words), said
    assert "Traceback" not in said


def test_a_bad_upload(page, data_root):
    upload(page, "Upload .mtx or .npz", data_root / "mtx" / "mangled5.mtx", LAYOUT)
    says(page, LAYOUT, "mangled5.mtx")
    measures(page)


def test_too_many_parts(page):
    fill(page, "Parts", 5000, LAYOUT)
    says(page, LAYOUT, "Parts must be 1 to 1,024", "5,000")
    fill(page, "Parts", 8, LAYOUT)
    waits_for(page, "8 parts", LAYOUT)
    settles(page, LAYOUT)
    press(page, "Run on the workers", LAYOUT)
    says(page, LAYOUT, "the cluster has 2 ranks", "Parts says 8")
    fill(page, "Parts", 2, LAYOUT)
    waits_for(page, "2 parts", LAYOUT)
    measures(page)


def test_the_memory_limit_of_a_worker(page):
    choose(page, "Matrix", "Uniform", LAYOUT)
    waits_for(page, "Uniform", LAYOUT)
    fill(page, "Dense columns", 4096, LAYOUT)
    settles(page, LAYOUT)
    fill(page, "Rows", 150_000, LAYOUT)
    waits_for(page, "150,000 × 150,000", LAYOUT)
    settles(page, LAYOUT)
    press(page, "Run on the workers", LAYOUT)
    says(page, LAYOUT, "needs", "MiB on rank", "whose limit is 1,024 MiB")
    fill(page, "Rows", 2000, LAYOUT)
    settles(page, LAYOUT)
    measures(page)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [("raise 1 at 3", "raised in learn"), ("memory 1 at 3", "memory"), ("kill 1 at 3", "was lost")],
)
def test_a_worker_that_raises_has_no_memory_or_is_killed(page, schedule, words):
    tab_to(page, "Recovery", FAULTS)
    page.keyboard.press("Home")  # the clear error
    fill(page, "Workers", 2, FAULTS)
    fill(page, "Steps", 20, FAULTS)
    fill(page, "Schedule", schedule, FAULTS)
    settles(page, FAULTS)
    press(page, "Run", FAULTS)
    says(page, FAULTS, "rank 1", words)
    fill(page, "Schedule", "", FAULTS)
    settles(page, FAULTS)
    press(page, "Run", FAULTS)
    waits_for(page, "20 steps done", FAULTS)
    settles(page, FAULTS)
    assert part(page, "[role=alert]", FAULTS).count() == 0
    assert page.faults == []
