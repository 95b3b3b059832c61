"""PartitionPanel in a running kernel: answers, stops, runs, queues, ends."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

import dtoolkit as dt
from dtoolkit.widgets import PartitionPanel


def test_a_choice_answers_soon_and_a_long_partitioner_stops_at_once():
    async def main():
        panel = PartitionPanel(dt.data.power_law(8192, 13, seed=3))
        await panel.wait()
        times = []
        for strategy in ("column", "row", "joint"):
            start = time.monotonic()
            panel.set(strategy=strategy)
            while panel.plan.strategy != strategy:
                await asyncio.sleep(0.002)
            times.append(time.monotonic() - start)
            await panel.wait()
        assert min(times) < 0.5
        plan = panel.plan
        panel.set(partition="hypergraph", parts=64)
        await asyncio.sleep(1)
        assert "Hypergraph" in panel.state["status"]
        assert panel.state["activity"] == "working"
        start = time.monotonic()
        panel.stop()
        await panel.wait()
        assert time.monotonic() - start < 1
        assert panel.state["status"].startswith("Stopped: planning with Hypergraph")
        assert panel._preset.value == "Own choices"
        assert panel.plan is plan
        panel.set(partition="block")
        await panel.wait()
        assert panel.plan.parts == 64
        panel.close()

    asyncio.run(main())


def test_run_on_a_given_cluster_measures_what_was_planned(cluster2, A):
    async def main():
        panel = PartitionPanel(A, cluster=cluster2)
        await panel.wait()
        assert panel.settings["parts"] == 2
        panel.run()
        await panel.wait()
        assert panel.state["error"] == "", panel.state["details"]
        assert panel.measured.as_planned
        assert (panel.measured.sent == panel.plan.bytes_matrix(64, "float32")).all()
        assert "Measured on 2 workers" in panel.state["status"]
        assert "as planned" in panel.state["status"]
        assert panel.state["status"].count("modelled") == 1
        table = panel.table().set_index("strategy")
        assert table["seconds_on_workers_measured"]["joint"] > 0
        assert (table["seconds_on_workers_modelled"].dropna() > 0).all()
        assert "dt.Cluster(workers=2)" in panel.code()
        panel.set(parts=3)
        await panel.wait()
        assert panel.measured is None
        panel.run()
        await panel.wait()
        assert "set Parts to 2" in panel.state["error"]
        panel.close()
        assert cluster2.run(lambda ctx: ctx.rank) == [0, 1]

    asyncio.run(main())


def test_two_panels_on_one_cluster_queue_and_say_so(cluster2, A):
    async def main():
        first, second = PartitionPanel(A, cluster=cluster2), PartitionPanel(A, cluster=cluster2)
        first.set(k=4096)  # takes long enough to be seen
        second.set(k=4096)
        await first.wait()
        await second.wait()
        first.run()
        second.run()
        said = set()
        while "running" in (first.state["activity"], second.state["activity"]):
            said |= {first.state["status"], second.state["status"]}  # either may be first
            await asyncio.sleep(0.005)
        await first.wait()
        assert any(re.match(r"Waiting behind PartitionPanel \d+", words) for words in said), said
        assert first.measured is not None
        assert second.measured is not None
        launch = cluster2.submit(lambda ctx: time.sleep(1.5))
        second.run()
        said.clear()
        while second.state["activity"] == "running":
            said.add(second.state["status"])
            await asyncio.sleep(0.02)
        assert any(words.startswith("Waiting for the cluster") for words in said), said
        assert launch.done()
        second.run()
        await asyncio.sleep(0.05)
        second.stop()
        await second.wait()
        assert second.state["status"].startswith("Stopped: the run")
        first.close()
        second.close()

    asyncio.run(main())


def test_workers_that_a_panel_starts_end_with_it(A):
    panel = PartitionPanel(A)
    panel.set(parts=1)
    panel.run()
    assert panel.state["error"] == "", panel.state["details"]
    assert panel.measured.as_planned
    cluster = panel._workers.running
    assert cluster.status == "idle"
    panel.close()
    deadline = time.monotonic() + 60
    while cluster.status != "closed" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert cluster.status == "closed"


def test_a_rank_that_raises_is_shown_in_words(cluster2, A, monkeypatch):
    def broken(*_args, **_options):
        cluster2.run(fails)

    monkeypatch.setattr("dtoolkit.widgets.measuring.distribute", broken)
    panel = PartitionPanel(A, cluster=cluster2)
    panel.run()
    assert "raised in" in panel.state["error"]
    assert "no luck" in panel.state["error"]
    assert "traceback of rank" not in panel.state["error"]
    assert "traceback of rank" in panel.state["details"]
    panel.set(strategy="column")
    assert panel.state["error"] == ""
    panel.close()


def fails(ctx):
    raise RuntimeError("no luck")


def test_a_notebook_runs_through_without_a_browser(tmp_path):
    cells = [
        "import dtoolkit as dt",
        "panel = dt.widgets.PartitionPanel(); panel",
        "await panel.wait()\nprint(panel.state['status'])",
        "panel.set(parts=8, partition='metis')\nawait panel.wait()\nprint(panel.plan.parts)",
        "dt.widgets.PartitionPanel()",
        "panel = dt.widgets.PartitionPanel(); panel",
        "panel.set(partition='hypergraph')",  # and the kernel ends while it computes
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    start = time.monotonic()
    NotebookClient(
        notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert time.monotonic() - start < 100
    shown = notebook.cells[1].outputs[0]["data"]
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "joint sends" in notebook.cells[2].outputs[0]["text"]
    assert notebook.cells[3].outputs[0]["text"] == "8\n"
    assert list(Path(tmp_path).iterdir()) == []
