"""What panels are made of: live figures, throttles, jobs, the helper process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import plotly.graph_objects as go
import pytest

from dtoolkit.widgets.aside import Aside
from dtoolkit.widgets.live_figure import LiveFigure
from dtoolkit.widgets.work import MAX_ABANDONED, Job, Throttle, Work


def test_figures_are_brought_up_to_date_in_place_and_kept_for_a_reload():
    first = go.Figure(
        [go.Heatmap(z=np.zeros((2, 2)), colorbar={"title": {"text": "a"}}), go.Scatter(y=[1, 2])],
        {"xaxis": {"dtick": 1, "title": {"text": "x"}}, "annotations": [{"text": "n"}] * 2},
    )
    live = LiveFigure(first)
    widget = live.widget
    second = go.Figure(
        [go.Heatmap(z=np.array([[1.0, np.nan]]), name="b"), go.Scatter(y=[3, 4])],
        {"xaxis": {"title": {"text": "y"}}, "annotations": [{"text": "m"}]},
    )
    live.draw(second)
    assert live.widget is widget
    assert widget.data[0].z.tolist() == [[1.0, None]]
    assert widget.data[0].name == "b"
    assert widget.data[0].colorbar.title.text is None
    assert widget.layout.xaxis.dtick is None
    assert widget.layout.xaxis.title.text == "y"
    assert [note.text for note in widget.layout.annotations] == ["m"]
    third = go.Figure([go.Bar(y=[1]), go.Bar(y=[2]), go.Bar(y=[3])])
    live.draw(third)
    assert [trace.type for trace in widget.data] == ["bar"] * 3
    state = widget.get_state()
    assert [trace["type"] for trace in state["_widget_data"]] == ["bar"] * 3
    live.draw(second)
    state = widget.get_state()
    assert state["_widget_data"][0]["name"] == "b"
    assert json.loads(json.dumps(state["_widget_data"]))[0]["z"] == [[1.0, None]]
    assert state["_widget_layout"]["xaxis"]["title"]["text"] == "y"


def test_only_differences_are_sent():
    live = LiveFigure(go.Figure(go.Scatter(x=np.arange(3), y=[1, 2, 3])))
    sent = []
    live.widget._send_update_msg = lambda **message: sent.append(message)
    live.draw(go.Figure(go.Scatter(x=np.arange(3), y=[1, 2, 4])))
    assert len(sent) == 1
    assert list(sent[0]["restyle_data"]) == ["y"]
    live.draw(go.Figure(go.Scatter(x=np.arange(3), y=[1, 2, 4])))
    assert len(sent) == 1 or not sent[1].get("restyle_data")


def test_what_is_gone_in_one_trace_and_changed_in_another_goes_leaf_by_leaf():
    line = {"color": "red", "width": 2}
    live = LiveFigure(go.Figure([go.Scatter(y=[1], line=line), go.Scatter(y=[1], line=line)]))
    sent = []
    live.widget._send_update_msg = lambda **message: sent.append(message)
    live.draw(go.Figure([go.Scatter(y=[1]), go.Scatter(y=[1], line={"color": "blue", "width": 2})]))
    keys = set(sent[0]["restyle_data"])
    assert keys == {"line.color", "line.width"}  # not the whole "line" beside a part of it
    assert live.widget.data[0].line.color is None


def test_a_shape_is_moved_without_drawing_the_others_anew():
    def figure(at, text):
        shapes = [{"type": "line", "x0": 1, "x1": 1}, {"type": "line", "x0": at, "x1": 2}]
        return go.Figure(go.Scatter(y=[1]), {"shapes": shapes, "annotations": [{"text": text}]})

    live = LiveFigure(figure(1, "a"))
    sent = []
    live.widget._send_update_msg = lambda **message: sent.append(message)
    live.draw(figure(2, "b"))
    assert sent[0]["relayout_data"] == {"shapes.1.x0": 2, "annotations.0.text": "b"}
    state = live.widget.get_state()["_widget_layout"]
    assert [shape["x0"] for shape in state["shapes"]] == [1, 2]
    live.draw(go.Figure(go.Scatter(y=[1]), {"annotations": [{"text": "b"}] * 2}))
    assert len(live.widget.layout.shapes) == 0
    assert len(live.widget.layout.annotations) == 2


def test_throttle_calls_first_and_last():
    async def main():
        calls = []
        throttle = Throttle(lambda: calls.append(time.monotonic()), 0.1)
        for _ in range(30):
            throttle()
            await asyncio.sleep(0.01)
        last = time.monotonic()
        await asyncio.sleep(0.2)
        assert 3 <= len(calls) <= 2 + (last - calls[0]) / 0.1
        assert min(np.diff(calls)) > 0.09
        assert calls[-1] >= last - 0.1

    asyncio.run(main())


def test_throttle_leaves_the_loop_four_fifths_of_the_time():
    calls = []

    async def main():
        def slow():
            calls.append(time.monotonic())
            time.sleep(0.1)

        throttle = Throttle(slow, 0.05)
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            throttle()
            await asyncio.sleep(0.005)

    asyncio.run(main())
    assert 2 <= len(calls) <= 3
    assert min(np.diff(calls)) >= 0.5


def test_threads_that_nobody_waits_for_do_not_pile_up():
    release = threading.Event()

    async def main():
        work = Work(lambda error: None, lambda job: None)
        for _ in range(6):
            work.start("waits", lambda job: job.in_thread(release.wait, 20))
            await asyncio.sleep(0.1)
            work.stop()
        await asyncio.sleep(0.1)
        waiting = [t for t in threading.enumerate() if t.name == "dtoolkit-panel" and t.is_alive()]
        assert len(waiting) <= MAX_ABANDONED
        release.set()

    asyncio.run(main())


def test_a_helper_process_computes_and_is_killed_when_it_is_not_wanted():
    async def main():
        aside = Aside()
        job = Job("test")
        assert await aside.run(job, os.path.join, "a", "b") == "a/b"
        first = aside.pid
        assert await aside.run(job, os.getpid) == first
        with pytest.raises(ZeroDivisionError):
            await aside.run(job, divmod, 1, 0)
        task = asyncio.get_running_loop().create_task(aside.run(job, time.sleep, 60))
        await asyncio.sleep(0.3)
        job.wanted = False
        task.cancel()
        start = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < 2
        assert aside.pid is None
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        with pytest.raises(RuntimeError, match="ended"):
            await aside.run(Job("again"), os._exit, 3)
        aside.end()

    asyncio.run(main())


def test_widgets_are_imported_when_asked_for_and_say_what_to_install():
    code = (
        "import sys, dtoolkit as dt\n"
        "assert 'ipywidgets' not in sys.modules\n"
        "assert 'widgets' in dir(dt)\n"
        "sys.modules['ipywidgets'] = None\n"
        "try:\n"
        "    dt.widgets\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert 'pip install "dtoolkit[lab]"' in done.stdout
    assert "ipywidgets" in done.stdout
