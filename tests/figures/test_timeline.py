from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.comm.trace import Event, Trace
from dtoolkit.figures import timeline
from tests.figures.checks import check_figure
from tests.figures.conftest import random_trace


def test_one_line_an_operation_with_gaps(small_trace):
    figure = timeline(small_trace)
    check_figure(figure)
    assert [line.name for line in figure.data] == [
        "all_reduce", "all_to_all_v", "barrier", "broadcast",
    ]  # fmt: skip
    assert all(line.type == "scatter" for line in figure.data)
    first = min(event.start for event in small_trace)
    for line in figure.data:
        events = [e for e in small_trace if e.operation == line.name]
        x = np.asarray(line.x).reshape(-1, 3)
        assert x[:, 0] == pytest.approx([(e.start - first) * 1e3 for e in events])
        assert x[:, 1] == pytest.approx([(e.end - first) * 1e3 for e in events])
        assert np.all(np.isnan(x[:, 2]))
        y = np.asarray(line.y).reshape(-1, 3)
        np.testing.assert_array_equal(y, np.repeat([[e.rank] for e in events], 3, axis=1))
        numbers = np.asarray(line.customdata).reshape(-1, 3, 4)
        assert numbers[:, 0, 0] == pytest.approx([sum(e.sent) for e in events])
        assert numbers[:, 0, 2] == pytest.approx([(e.end - e.start) * 1e3 for e in events])
    assert len({line.line.color for line in figure.data}) == 4


def test_titles_and_units(small_trace):
    layout = timeline(small_trace).layout
    assert layout.xaxis.title.text == "time from the first event (ms)"
    assert layout.yaxis.title.text == "rank (number)"
    assert layout.title.text.startswith("Measured timeline: 40 events in ")
    assert "agree within ±250 µs" in layout.title.subtitle.text
    assert "phase halo" in "".join(timeline(small_trace).data[0].text)


def test_one_machines_clock_is_called_that():
    event = Event(0, 0, "send", "", 0.0, 1.0, (0, 1), 0, "", "", "")
    shown = timeline(Trace([event], ranks=2, clock_error=1e-9)).layout.title.subtitle.text
    assert "all ranks read one machine's clock" in shown


def test_rank_zero_is_on_top_and_idle_ranks_have_lanes():
    idle = Trace([Event(0, 1, "send", "", 0.0, 1.0, (1, 0), 0, "", "", "")], ranks=6)
    assert list(timeline(idle).layout.yaxis.range) == [5.5, -0.5]
    grown = Trace([Event(0, 7, "send", "", 0.0, 1.0, (), 0, "", "", "")], ranks=2)
    assert list(timeline(grown).layout.yaxis.range) == [7.5, -0.5]


def test_20000_events_are_lines_and_below_the_size():
    figure = timeline(random_trace(20_000, 8))
    check_figure(figure, size=4_500_000)
    assert len(figure.data) == 4
    assert all(line.type == "scatter" and line.mode == "lines" for line in figure.data)


def test_few_events_have_marks_so_that_none_is_too_short_to_see(small_trace):
    assert all(line.mode == "lines+markers" for line in timeline(small_trace).data)


def test_1024_ranks(wide_trace):
    figure = timeline(wide_trace)
    check_figure(figure, size=2_000_000)
    assert figure.layout.height < 1000
    assert figure.data[0].line.width >= 1


def test_no_events():
    figure = timeline(Trace(ranks=3))
    check_figure(figure)
    assert "no events" in figure.layout.annotations[0].text


def test_names_are_text_and_no_markup():
    hostile = "<b>bold</b>%{x}&"
    trace = Trace([Event(0, 0, hostile, "<i>", 0.0, 1.0, (1,), 0, "", "", "")], ranks=1)
    line = timeline(trace).data[0]
    assert line.name == "&lt;b&gt;bold&lt;/b&gt;%&#123;x}&amp;"
    assert "<b>bold" not in line.hovertemplate
    assert "%{x}&" not in line.hovertemplate
    assert "&lt;i&gt;" in line.text[0]


def test_same_input_same_figure():
    a, b = (timeline(random_trace(50, 5)).to_json() for _ in range(2))
    assert a == b
