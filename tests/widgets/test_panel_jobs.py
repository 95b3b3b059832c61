"""What a panel does in the background: superseded, stopped, reported, brought home from threads."""

from __future__ import annotations

import asyncio
import time

from tests.widgets.squares import Squares


def test_choices_supersede_each_other_and_do_not_block():
    async def main():
        panel = Squares()
        await panel.wait()
        panel.set(kind="slow")
        await asyncio.sleep(0.1)
        assert panel.state["activity"] == "working"
        start = time.monotonic()
        panel.set(kind="fast", count=7)
        await panel.wait()
        assert time.monotonic() - start < 5
        assert len(panel.squares) == 7
        before = panel.computed
        for count in range(10, 20):  # as a slider that is dragged
            panel.set(count=count)
        await panel.wait()
        assert len(panel.squares) == 19
        assert panel.computed == before + 1
        panel.released.set()
        panel.close()

    asyncio.run(main())


def test_stop_ends_at_once_what_a_thread_still_computes():
    async def main():
        panel = Squares()
        await panel.wait()
        panel.set(kind="slow")
        await asyncio.sleep(0.1)
        start = time.monotonic()
        panel.stop()
        await panel.wait()
        assert time.monotonic() - start < 1
        assert panel.state["activity"] == "idle"
        assert panel.state["status"].startswith("Stopped: what was chosen")
        assert panel.squares == [0, 1, 4]
        panel.stop()
        assert panel.state["status"] == "Nothing is running."
        panel.released.set()
        panel.close()

    asyncio.run(main())


def test_what_comes_on_another_thread_is_done_on_the_loop_where_the_panel_was_made():
    """A kernel with subshells brings what a browser sends on threads that have their own loops."""

    async def main():
        panel = Squares()
        await panel.wait()
        loops = []

        async def execute(job):
            loops.append(asyncio.get_running_loop())

        panel.execute = execute

        async def elsewhere(press):
            press()

        await asyncio.to_thread(asyncio.run, elsewhere(panel._run.click))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(panel.wait(), 10)
        assert loops == [asyncio.get_running_loop()]
        await asyncio.to_thread(asyncio.run, elsewhere(lambda: panel.controls["count"].set(7)))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(panel.wait(), 10)
        assert len(panel.squares) == 7
        panel.set(kind="slow")
        await asyncio.sleep(0.05)
        await asyncio.to_thread(asyncio.run, elsewhere(panel._stop.click))
        await asyncio.sleep(0.05)
        assert panel.state["activity"] == "idle"
        assert panel.state["status"].startswith("Stopped")
        panel.released.set()
        panel.close()

    asyncio.run(main())


def test_run_locks_the_choices_and_reports_progress():
    async def main():
        panel = Squares()
        await panel.wait()
        panel.run()
        await asyncio.sleep(0.3)
        assert panel.state["activity"] == "running"
        assert panel.state["total"] == 100
        assert 0 < panel.state["done"] < 100
        assert panel.controls["count"].widget.children[0].disabled
        assert "<progress" in panel._shell._progress.value
        panel.stop()
        await panel.wait()
        assert not panel.controls["count"].widget.children[0].disabled
        assert panel._shell._progress.value == ""
        panel.run()
        await panel.wait()
        assert panel.state["status"] == "ran"
        panel.close()

    asyncio.run(main())
