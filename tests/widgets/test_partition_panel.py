"""PartitionPanel without a browser: plans, files, settings, code, workers, the end."""

from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.sparse as sp

import dtoolkit as dt
from dtoolkit.figures.overview import overview
from dtoolkit.widgets import PartitionPanel, matrices, networks, planning


@pytest.fixture
def panel():
    made = PartitionPanel()
    yield made
    made.close()


def test_starts_with_a_plan_of_its_own(panel):
    assert panel.state["error"] == ""
    assert panel.plan.parts == 4
    assert panel.plan.strategy == "joint"
    assert "joint sends" in panel.state["status"]
    assert [trace.type for trace in panel.figure().data] == ["heatmap"] * 3 + ["scatter", "heatmap"]


@pytest.mark.parametrize(
    "values",
    [
        {"parts": 16, "network": "two-tier", "ranks_per_node": 4, "strategy": "hier-joint"},
        {"parts": 9, "strategy": "2d"},
        {"parts": 64, "partition": "random", "seed": 3, "strategy": "column"},
        {"parts": 8, "partition": "cyclic", "k": 3, "dtype": "float64", "strategy": "row"},
        {"matrix": "hubs", "rows": 500, "degree": 6, "seed": 2, "strategy": "oblivious"},
        {"network": "ring", "parts": 12, "ranks_per_node": 4, "strategy": "node-pair"},
        {"network": "fat-node", "parts": 8, "ranks_per_node": 4, "between": "400Gbit/s"},
    ],
    ids=lambda values: str(values.get("strategy") or values["network"]),
)
def test_the_code_shown_makes_the_same_plan(panel, values):
    panel.set(**values)
    assert panel.state["error"] == ""
    space = {}
    exec(panel.code(), space)
    assert space["plan"].digest == panel.plan.digest
    assert space["plan"].strategy == panel.plan.strategy
    assert (space["plan"].traffic == panel.plan.traffic).all()
    own = next(c for c in panel.contenders if c.strategy == panel.plan.strategy)
    assert space["prediction"].seconds == pytest.approx(own.seconds)


def test_the_code_for_a_given_matrix_takes_it_by_name(A):
    panel = PartitionPanel(A)
    space = {"A": A}
    exec(panel.code(), space)
    assert space["plan"].volume == panel.plan.volume
    panel.close()


def test_the_table_has_all_strategies_as_dt_plan_plans_them(A):
    panel = PartitionPanel(A)
    panel.set(network="two-tier", parts=16, ranks_per_node=4)
    table = panel.table().set_index("strategy")
    assert set(table.index) == set(planning.strategy_names())
    for name, row in table.iterrows():
        made = dt.plan(A, parts=16, strategy=name, ranks_per_node=4)
        assert row["rows_sent_planned"] == made.volume
        assert row["rows_between_nodes_planned"] == made.volume_between_nodes
        assert row["bytes_sent_planned"] == made.bytes(64, "float32")
        assert row["seconds_modelled"] > 0
    html = panel._shell.below.value
    assert html.count("<tr") == len(table) + 1
    assert "least" in html
    panel.close()


def test_a_strategy_that_cannot_be_had_says_why_in_the_table(panel):
    panel.set(parts=6, network="flat")
    notes = panel.table().set_index("strategy")["note"]
    assert "two tiers" in notes["hier-joint"]
    assert "joint sends" in panel.state["status"]
    panel.set(strategy="hier-joint")
    assert "two tiers" in panel.state["error"]
    assert panel.plan.strategy == "joint"
    panel.set(network="two-tier", ranks_per_node=3)
    assert panel.state["error"] == ""
    assert panel.plan.strategy == "hier-joint"


def test_parts_that_do_not_fill_their_nodes_are_planned_without_times(panel):
    panel.set(network="two-tier", parts=10, ranks_per_node=4, strategy="column")
    assert panel.state["error"] == ""
    assert "10 parts do not fill nodes of 4 ranks" in panel.state["status"]
    assert panel.table()["seconds_modelled"].isna().all()
    assert "Network" not in panel.code()


def test_one_part_is_one_part(panel):
    panel.set(parts=1)
    assert "over 1 part (" in panel.state["status"]


def test_partitioners_that_are_not_installed_say_so(monkeypatch):
    monkeypatch.setattr(planning, "find_spec", lambda name: None if name == "pymetis" else name)
    panel = PartitionPanel()
    offered = panel.controls["partition"].options
    assert offered["metis"] == "METIS (not installed)"
    assert [name for name, words in offered.items() if "not installed" in words] == ["metis"]
    panel.close()


@pytest.mark.parametrize(("parts", "numbers"), [(12, True), (16, False)])
def test_numbers_stand_in_cells_that_have_room_for_them(panel, parts, numbers):
    panel.set(parts=16)
    panel.set(parts=parts)
    assert bool(panel.figure().data[-1].texttemplate) == numbers
    assert bool(panel._live.widget.data[-1].texttemplate) == numbers


@pytest.mark.parametrize("width", [400, 560, 700, 820])
def test_the_subtitle_fits_the_width(width):
    A = dt.data.power_law(4096, 8, seed=1)
    made = dt.plan(A, parts=128, partition="random")
    shown = overview(A, made, k=64, width=width, beside=width > 620).layout.title.subtitle.text
    assert "4,096 × 4,096" in shown
    assert len(shown) * 6.3 < width - 62
    assert ("reordered by part" in shown) == (width >= 700)


def test_the_picture_has_a_name_that_is_whole(panel):
    options = panel._live.widget._config["toImageButtonOptions"]
    assert options == {"filename": "partition-figure"}


def test_1024_parts(panel):
    panel.set(matrix="local", rows=8192, degree=4, parts=1024, network="two-tier", ranks_per_node=8)
    assert panel.state["error"] == ""
    assert panel.plan.parts == 1024
    assert max(len(trace.z) for trace in panel.figure().data if trace.type == "heatmap") <= 256


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (40, 7), (7, 40), (300, 300)])
def test_odd_matrices(shape):
    A = sp.random_array(shape, density=0.1, rng=np.random.default_rng(0), format="csr")
    panel = PartitionPanel(A)
    assert panel.state["error"] == ""
    for name in planning.partitioner_names():
        panel.set(partition=name, network="two-tier", parts=8)
        assert panel.state["error"] == "", name
    panel.close()


def test_text_without_a_unit_is_told_in_words(panel):
    panel.controls["between"].widget.value = "50G"
    assert panel.state["error"].startswith("Between nodes='50G' leaves open")
    panel.controls["between"].widget.value = "50 GB/s"
    assert panel.state["error"] == ""


def test_presets_plan(panel):
    for name in panel.presets:
        panel._preset.widget.value = name
        assert panel.state["error"] == "", name
        assert panel.plan.parts == panel.presets[name]["parts"]


def test_networks_are_what_they_say():
    wires = networks.Wires("two-tier", 16, 8, "50GB/s", "450GB/s", "5us")
    network, code = networks.make(wires)
    assert network == eval(code, {"dt": dt})
    assert network.ranks == 16
    assert network.ranks_per_node == 8


def test_a_mangled_file_is_told_in_words_and_the_panel_works_on(panel, data_root):
    before = panel.plan
    for path in sorted((data_root / "mtx").glob("mangled*.mtx")):
        panel._upload.take(path.name, path.read_bytes())
        assert panel.state["error"].startswith(path.name), path
        assert "tmp" not in panel.state["error"]
        assert panel.plan is before
    panel._upload.take("west0067.mtx", (data_root / "mtx" / "west0067.mtx").read_bytes())
    assert panel.state["error"] == ""
    assert panel.plan.shape == (67, 67)
    assert panel.settings["matrix"] == "uploaded"
    assert "dt.read_matrix('west0067.mtx')" in panel.code()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npz", b""), ("a.npz", b"PK\x03\x04 broken"), ("a.mtx", b""), ("a.png", b"\x89PNG"),
        ("../../a.mtx", b"x"), ("", b"x"), ("a.mtx.gz", b"no gzip"), ("a.mtx", b"\xff" * 99),
    ],
)  # fmt: skip
def test_files_that_are_no_matrices(panel, name, content):
    before = panel.plan
    panel._upload.take(name, content)
    assert panel.state["error"]
    assert "Error:" not in panel.state["error"]  # words, not the name of a class
    assert panel.plan is before


def test_npz_is_read(panel, A):
    file = io.BytesIO()
    sp.save_npz(file, A)
    panel._upload.take("mine.npz", file.getvalue())
    assert panel.plan.nnz == A.nnz
    again = sp.csr_array(([1.0], ([0], [1])), shape=(5, 5))
    file = io.BytesIO()
    sp.save_npz(file, again)
    panel._upload.take("mine.npz", file.getvalue())  # another file of the same name
    assert panel.plan.nnz == 1


def test_matrices_come_by_name():
    for kind in matrices.GENERATORS:
        made = matrices.make(kind, 300, 8, 4)
        again = eval(made.code, {"dt": dt})
        assert (again != made.A).nnz == 0, kind
        assert 100 < made.A.nnz <= 300 * 16


def test_settings_go_round(panel):
    panel.set(matrix="rmat", rows=512, degree=4, parts=32, partition="balanced", seed=9, k=7)
    text, plan = panel.settings_text(), panel.plan
    other = PartitionPanel()
    other.load_settings(text)
    assert other.settings == panel.settings
    assert other.plan.digest == plan.digest
    assert (other.plan.traffic == plan.traffic).all()
    other.close()


def test_settings_that_want_a_file_or_a_matrix_say_so(panel, A):
    given = PartitionPanel(A)
    with pytest.raises(ValueError, match="matrix that their panel was made with"):
        panel.load_settings(given.settings_text())
    given.close()
    with pytest.raises(ValueError, match="upload it first"):
        panel.set(matrix="uploaded")
    with pytest.raises(ValueError, match="Parts: 5000 is not possible"):
        panel.set(parts=5000)
