"""TrainingPanel in a running kernel: runs, what is refused, stop and resume to the bit, code."""

from __future__ import annotations

import asyncio

import pytest

import dtoolkit as dt
from dtoolkit.widgets import TrainingPanel
from dtoolkit.widgets.training_controls import PRESETS
from dtoolkit.widgets.training_request import TASKS, Request


@pytest.fixture(scope="module")
def cluster() -> dt.Cluster:
    with dt.Cluster(workers=2, device="cpu") as one:
        yield one


def in_loop(body):
    asyncio.run(body())


async def trained(panel, **settings):
    panel.set(**settings)
    await panel.wait()
    panel.run()
    await panel.wait()


def test_runs_are_kept_side_by_side_and_equal_those_of_dt_train(cluster):
    async def body():
        panel = TrainingPanel(cluster=cluster)
        await panel.wait()
        assert panel.settings["workers"] == 2
        assert panel.state["status"].startswith("Run trains by data-parallel: 150 steps")
        await trained(panel, steps=12, evaluate_every=4)
        await trained(panel, strategy="local-sgd")
        await trained(panel, strategy="data-parallel", sparsity="set", density=20)
        assert panel.state["error"] == ""
        assert list(panel.runs) == [
            "1: data-parallel", "2: local-sgd", "3: data-parallel, set 20%",
        ]  # fmt: skip
        table = panel.table().set_index("run")
        assert table["steps"].tolist() == [12, 12, 12]
        sent = table["bytes a step"]
        assert sent["3: data-parallel, set 20%"] < sent["1: data-parallel"]
        figure = panel.figure()
        assert "3 runs (measured)" in figure.layout.title.text
        assert figure.layout.yaxis3.title.text.startswith("density")
        losses = [t for t in figure.data if t.name == "1: data-parallel" and t.xaxis is None]
        assert list(losses[0].y) == panel.runs["1: data-parallel"].history["loss"].tolist()
        assert "Runs side by side" in panel._shell.below.value
        same = dt.train(
            cluster, dt.training.tasks.digits(), steps=12, seed=0, evaluate_every=4,
        )  # fmt: skip
        assert panel.runs["1: data-parallel"].state.differs_from(same.state) == []
        panel.clear()
        assert panel.table().empty
        panel.close()

    in_loop(body)


def test_what_does_not_fit_is_told_in_words_and_the_panel_works_on(cluster):
    async def body():
        panel = TrainingPanel(cluster=cluster)
        await panel.wait()
        await trained(panel, steps=4, sparsity="rigl", strategy="gossip")
        assert "gossip" in panel.state["error"]
        assert panel.runs == {}
        await trained(panel, strategy="data-parallel", sparsity="none", network="slow")
        assert "make the cluster with emulate=" in panel.state["error"]
        await trained(panel, network="none", workers=3)
        assert "set Workers to 2" in panel.state["error"]
        await trained(panel, workers=2)
        assert panel.state["error"] == ""
        assert len(panel.runs) == 1
        panel.close()

    in_loop(body)


def test_a_stopped_run_is_resumed_to_the_bit(cluster):
    async def body():
        panel = TrainingPanel(cluster=cluster)
        await panel.wait()
        panel.set(steps=1200, evaluate_every=0, seed=3)
        await panel.wait()
        panel.run()
        while panel.live is None or panel.live.training.step < 20:
            await asyncio.sleep(0.01)
        panel.stop()
        assert panel.state["status"].startswith("Stopped: 1: data-parallel")
        assert panel.stopped == "1: data-parallel"
        panel.resume()
        await panel.wait()
        assert panel.state["error"] == "", panel.state["details"]
        assert panel.stopped == ""
        run = panel.runs["1: data-parallel"]
        assert run.state.step == 1200
        space = {"cluster": cluster}
        exec(panel.code(), space)
        assert space["run"].state.differs_from(run.state) == []
        panel.resume()
        assert "No run was stopped" in panel.state["status"]
        panel.close()
        assert cluster.run(lambda ctx: ctx.rank) == [0, 1]

    in_loop(body)


def test_a_killed_worker_is_an_error_or_is_got_over(cluster):
    async def body():
        panel = TrainingPanel(cluster=cluster)
        await panel.wait()
        await trained(panel, steps=20, faults="kill", recovery="abort")
        assert "rank 1" in panel.state["error"]
        assert "was lost" in panel.state["error"]
        await trained(panel, recovery="replica")
        assert panel.state["error"] == ""
        assert "1 fault got over" in panel.state["status"]
        panel.close()

    in_loop(body)


def test_closing_ends_what_goes_on(cluster):
    async def body():
        panel = TrainingPanel(cluster=cluster)
        await panel.wait()
        panel.set(steps=100_000)
        panel.run()
        while panel.live is None:
            await asyncio.sleep(0.01)
        panel.close()

    in_loop(body)
    assert cluster.run(lambda ctx: ctx.rank) == [0, 1]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_make_sense(name):
    panel = TrainingPanel()
    panel._preset.set(name)
    assert panel.state["error"] == ""
    request = Request(panel.settings)
    assert request.task() is not None
    compile(panel.code(), name, "exec")
    network = request.network()
    assert (network is None) == (panel.settings["network"] == "none")
    panel.close()


@pytest.mark.parametrize("task", TASKS)
def test_tasks_are_those_of_the_code(task):
    panel = TrainingPanel()
    panel.set(task=task)
    line = next(one for one in panel.code().splitlines() if one.startswith("task = "))
    made = eval(line.removeprefix("task = "), {"dt": dt})
    assert str(made) == str(Request(panel.settings).task())
    panel.close()


def test_settings_that_want_a_given_task_say_so():
    panel = TrainingPanel()
    with pytest.raises(ValueError, match="make this one with it"):
        panel.set(task="given")
    panel.close()
