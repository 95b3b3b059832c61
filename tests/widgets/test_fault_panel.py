"""FaultPanel in a running kernel: real signals by hand, schedules, policies, the comparison."""

from __future__ import annotations

import asyncio

import psutil
import pytest

import dtoolkit as dt
from dtoolkit.widgets import FaultPanel
from dtoolkit.widgets.fault_controls import PRESETS
from dtoolkit.widgets.fault_schedule import KINDS, Line, drawn, faults_of, parse_schedule, written
from dtoolkit.widgets.watching import Braking, Watch, strike


@pytest.fixture(scope="module")
def cluster() -> dt.Cluster:
    with dt.Cluster(workers=4, device="cpu") as one:
        yield one


def in_loop(body):
    asyncio.run(body())


async def until(condition, seconds=60.0):
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


def states(panel):
    return [seat.state for seat in panel.watch.seats]


def test_a_worker_that_is_killed_by_hand_dies_and_comes_back(cluster):
    async def body():
        panel = FaultPanel(cluster=cluster)
        await panel.wait()
        assert all(one.disabled for one in panel._strikes)
        with pytest.raises(ValueError, match="nothing runs"):
            panel.strike("kill", 1)
        panel.set(schedule="", steps=250, pace=20)
        await panel.wait()
        panel.run()
        await until(lambda: panel.live is not None and panel.live.training.step > 5)
        pid = panel.watch.seats[1].pid
        panel.controls["rank"].set(1)
        panel._press_kill(None)
        await until(lambda: states(panel)[1] in ("dead", "joining"))
        await until(lambda: states(panel) == ["alive"] * 4)
        assert panel.watch.seats[1].pid != pid
        assert not psutil.pid_exists(pid)
        with pytest.raises(ValueError, match="ranks 0 to 3"):
            panel.strike("kill", 7)
        await panel.wait()
        assert panel.state["error"] == "", panel.state["details"]
        assert panel.result.state.step == 250
        assert panel.table()["kind"].tolist() == ["lost"]
        lanes = {trace.name: trace for trace in panel.figure().data}
        assert list(lanes["noticed"].y) == [1]
        assert {1} == {y for y in lanes["✕ dead"].y if y is not None}
        panel.compare()
        await panel.wait()
        assert panel.state["status"].startswith("Yes: after 250 steps equal")
        panel.close()

    in_loop(body)


def test_frozen_continued_and_slowed_by_hand(cluster):
    async def body():
        panel = FaultPanel(cluster=cluster)
        await panel.wait()
        panel.set(schedule="", steps=150, pace=20)
        await panel.wait()
        panel.run()
        await until(lambda: panel.live is not None and panel.live.training.step > 5)
        panel.strike("hang", 2)
        await until(lambda: states(panel)[2] == "hung")
        panel.strike("continue", 2)
        await until(lambda: states(panel)[2] == "alive")
        panel.strike("slow", 3)
        await until(lambda: states(panel)[3] == "slow")
        panel.strike("continue", 3)
        await until(lambda: states(panel) == ["alive"] * 4)
        await panel.wait()
        assert panel.result.state.step == 150
        assert [what for _, what, _ in panel.watch.strikes] == [
            "hang", "continue", "slow", "continue",
        ]  # fmt: skip
        panel.close()

    in_loop(body)


@pytest.mark.parametrize("policy", ["restart", "shrink", "stacked"])
def test_a_schedule_is_got_over_and_the_code_shown_says_the_same(cluster, policy):
    async def body():
        panel = FaultPanel(cluster=cluster)
        await panel.wait()
        panel.set(schedule="kill 2 at 4; nan 1 at 8", recovery=policy, steps=14, pace=0)
        await panel.wait()
        panel.run()
        await panel.wait()
        assert panel.state["error"] == "", panel.state["details"]
        assert panel.table()["kind"].tolist() == ["lost", "not finite"]
        space = {"cluster": cluster}
        exec(panel.code(), space)
        assert space["run"].state.differs_from(panel.result.state) == []
        assert "to the bit" in space["verdict"]
        panel.close()

    in_loop(body)


def test_abort_is_an_error_in_words_and_the_panel_works_on(cluster):
    async def body():
        panel = FaultPanel(cluster=cluster)
        await panel.wait()
        panel.set(schedule="kill 0 at 3", recovery="abort", steps=10, pace=0)
        await panel.wait()
        panel.run()
        await panel.wait()
        assert "rank 0" in panel.state["error"]
        assert "was lost" in panel.state["error"]
        assert panel._compare.disabled
        panel.set(schedule="")
        await panel.wait()
        panel.run()
        await panel.wait()
        assert panel.state["error"] == ""
        assert panel.table().empty
        panel.close()

    in_loop(body)


def test_a_bit_that_nobody_notices_is_found_by_the_comparison(cluster):
    async def body():
        panel = FaultPanel(cluster=cluster)
        await panel.wait()
        panel.set(schedule="gradient-bit 1 at 3", steps=10, pace=0)
        await panel.wait()
        panel.run()
        await panel.wait()
        panel.compare()
        await panel.wait()
        assert panel.state["status"].startswith("No: differs")
        assert "Nobody noticed: a flipped bit" in panel.state["status"]
        panel.close()

    in_loop(body)


def test_stopping_lets_frozen_workers_go(cluster):
    async def body():
        panel = FaultPanel(cluster=cluster)
        await panel.wait()
        panel.set(schedule="", steps=100_000)
        await panel.wait()
        panel.run()
        await until(lambda: panel.live is not None and panel.live.training.step > 3)
        panel.strike("slow", 1)
        panel.stop()
        await panel.wait()
        assert panel.state["status"].startswith("Stopped")
        panel.close()

    in_loop(body)
    assert cluster.run(lambda ctx: ctx.size) == [4] * 4


# --------------------------------------------------------------------------------- pure parts


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_read_and_made(kind):
    lines = [Line(kind, 1, 5), Line("kill", 0, 7)]
    assert parse_schedule(written(lines)) == lines
    first, second = faults_of(lines, 3)
    assert first.rank == 1 if kind != "cut" else {first.source, first.target} == {1, 2}
    assert second.at_step == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kill two at 5", "'kill two at 5' is no fault"),
        ("explode 1 at 5", "there is no fault 'explode'"),
        ("kill 1", "'kill 1' is no fault"),
    ],
)
def test_a_schedule_that_does_not_parse_is_told(text, words):
    with pytest.raises(ValueError, match=words):
        parse_schedule(text)


def test_a_schedule_of_nobody_or_too_late_is_told():
    panel = FaultPanel()
    panel.set(schedule="kill 9 at 5")
    assert "ranks 0 to 3" in panel.state["error"]
    panel.set(schedule="kill 1 at 999")
    assert "steps 0 to 299" in panel.state["error"]
    panel.set(schedule="kill 1 at 20", rank=3, step=30, kind="nan")
    panel._add(None)
    assert panel.settings["schedule"] == "kill 1 at 20; nan 3 at 30"
    panel._clear(None)
    assert panel.settings["schedule"] == ""
    panel._draw_plan(None)
    assert parse_schedule(panel.settings["schedule"]) == drawn(0, 4, 300)
    panel.close()


@pytest.mark.parametrize("name", PRESETS)
def test_presets_make_sense(name):
    panel = FaultPanel()
    panel._preset.set(name)
    assert panel.state["error"] == ""
    compile(panel.code(), name, "exec")
    panel.close()


def test_what_is_seen_of_a_process_is_what_it_is():
    process = psutil.Popen(["sleep", "60"])
    watch = Watch([process.pid])
    watch.look({0: 3})
    assert (watch.seats[0].state, watch.seats[0].step) == ("alive", 3)
    strike("hang", process.pid)
    process_is(process, psutil.STATUS_STOPPED)
    watch.look({})
    assert watch.seats[0].state == "hung"
    strike("continue", process.pid)
    brake = Braking(process.pid)
    brake.end()
    assert process.status() != psutil.STATUS_STOPPED
    strike("kill", process.pid)
    process.wait(10)
    watch.look({})
    assert watch.seats[0].state == "dead"
    assert watch.missing
    with pytest.raises(ValueError, match="has ended"):
        strike("hang", process.pid)
    assert [state for _, state, *_ in watch.spans] == ["alive", "hung", "dead"]


def process_is(process, status):
    for _ in range(500):
        if process.status() == status:
            return
        psutil.time.sleep(0.01)
    raise AssertionError(process.status())
