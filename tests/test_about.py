"""What the environment says of itself, and of the memory of its processes."""

from __future__ import annotations

import dataclasses
import math

import pandas as pd
import pytest

import dtoolkit as dt
from dtoolkit import about
from dtoolkit.figures import environment_card, memory_bars
from tests.figures.checks import check_card, check_figure


@pytest.fixture(scope="module")
def here():
    return dt.environment()


def test_here_everything_is_there(here):
    names = {package.name for package in here.packages}
    assert {"torch", "distributed", "ipywidgets", "pymetis"} <= names
    assert "pytest" not in names  # tests are no matter of the course
    assert not [problem for problem in here.problems if "pip install" in problem]
    assert here.cores > 0
    assert 0 < here.free <= here.limit
    assert "torch" in str(here)


def test_what_is_missing_or_old_is_said_with_the_remedy(here):
    packages = (
        about.Package("torch", "2.8.1+cpu", "2.9", ""),
        about.Package("ipywidgets", "", "8.1.5", "lab"),
        about.Package("pymetis", "", "2025.1", "partition"),
    )
    poor = dataclasses.replace(here, packages=packages, free=200_000_000)
    old, absent, memory = poor.problems
    assert old == 'torch has 2.8.1+cpu, 2.9 or newer is needed: pip install "dtoolkit"'
    assert absent.startswith("ipywidgets is not installed")
    assert "dtoolkit[lab]" in absent
    assert memory.startswith("0.2 GB of memory are free")
    assert poor.missing == ("pymetis",)
    card = environment_card(poor)
    check_card(card)
    assert "3 to be done" in card
    assert "pymetis" in card


@pytest.mark.parametrize(
    ("installed", "needed", "good"),
    [("2.13.0+cpu", "2.9", True), ("2.9", "2.9.0", True), ("2025.1", "2025.11", False)],
)
def test_versions_are_compared_number_by_number(installed, needed, good):
    assert about.Package("one", installed, needed, "").good is good


def test_a_container_says_what_it_uses(tmp_path):
    assert math.isnan(about._used_by_container(tmp_path))
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 600\ninactive_file 300\n")
    assert about._used_by_container(tmp_path) == 700


def test_processes_are_named_and_summed(cluster2):
    found = about.processes().set_index("pid")
    workers = found.loc[list(cluster2.pids)]
    assert set(workers["process"]) == {"worker"}
    assert (workers["bytes"] > 10_000_000).all()
    assert (found["process"] == "this kernel").sum() == 1
    assert about.proportional(2**22 + 1) == 0  # there is no such process


def test_bars_say_how_much_of_how_much():
    rows = [(1, "this kernel", 400e6), (2, "worker", 100e6), (3, "worker", 120e6)]
    figure = memory_bars(pd.DataFrame(rows, columns=["pid", "process", "bytes"]), 1.5e9)
    check_figure(figure)
    assert [bar.x[0] for bar in figure.data] == [400, 100, 120]
    assert [bar.name for bar in figure.data if bar.showlegend] == ["this kernel", "worker (2)"]
    assert figure.layout.title.subtitle.text.startswith("measured: 620 MB in all, of 1.5 GB")


def test_workers_leave_what_they_share_alone(cluster2):
    import gc

    assert min(cluster2.run(lambda ctx: gc.get_freeze_count())) > 100_000
