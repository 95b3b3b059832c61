"""One or two traces in one figure."""

from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.comm import Event, Network, Replay, Trace
from dtoolkit.figures import traffic_views
from dtoolkit.figures.traffic_panes import MOST_EVENTS, merged
from tests.figures.checks import check_figure


def synthetic(count, ranks=4, seed=0, most=1000):
    draw = np.random.default_rng(seed)
    starts = np.sort(draw.random(count))
    sent = draw.integers(0, most, (count, ranks))
    sent[np.arange(count), np.arange(count) % ranks] = 0
    return Trace(
        [
            Event(1 + i // 7 % 3, i % ranks, ("send", "all_reduce")[i % 2], ("a", "b", "")[i % 3],
                  float(starts[i]), float(starts[i] + 1e-3), tuple(sent[i].tolist()), 0)
            for i in range(count)
        ],
        ranks=ranks,
    )  # fmt: skip


def test_pairs_side_by_side_are_on_one_scale():
    one, two = synthetic(40), synthetic(90, seed=1)
    figure = traffic_views({"one": one, "two": two})
    maps = figure.data
    assert [m.type for m in maps] == ["heatmap", "heatmap"]
    assert (np.array(maps[0].z) == one.matrix()).all()
    assert (np.array(maps[1].z) == two.matrix()).all()
    assert maps[0].zmax == maps[1].zmax == max(one.matrix().max(), two.matrix().max())
    assert [m.showscale for m in maps] == [False, True]
    assert [note.text.split("</b>")[0] for note in figure.layout.annotations] == [
        "<b>one",
        "<b>two",
    ]
    assert figure.layout.yaxis.range == (3.5, -0.5)
    check_figure(figure)


def test_a_window_counts_what_ended_in_it_and_the_scale_stays():
    trace = synthetic(60)
    replay = Replay(trace)
    half = traffic_views({"t": replay}, until=0.5 * replay.span).data[0]
    assert (np.array(half.z) == replay.matrix(until=0.5 * replay.span)).all()
    assert half.zmax == trace.matrix().max()
    part = traffic_views({"t": replay}, since=0.2, until=0.4).data[0]
    assert (np.array(part.z) == replay.matrix(0.2, 0.4)).all()
    assert part.zmax >= np.array(part.z).max()
    counted = traffic_views({"t": replay}, quantity="messages").data[0]
    assert (np.array(counted.z) == replay.matrix(messages=True)).all()


def test_timelines_share_their_scale_and_colours():
    one, two = synthetic(30), Trace([e for e in synthetic(30) if e.operation == "send"], ranks=4)
    figure = traffic_views({"one": one, "two": two}, view="time", until=0.5)
    assert figure.layout.xaxis.range == figure.layout.xaxis2.range
    colours = {(line.name, line.line.color) for line in figure.data}
    assert len(colours) == 2
    assert sum(bool(line.showlegend) for line in figure.data) == 2
    assert [shape.x0 for shape in figure.layout.shapes] == [500.0, 500.0]
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]
    window = traffic_views({"one": one}, view="time", since=0.1, until=0.5).layout.shapes
    assert [shape.type for shape in window] == ["line", "line", "rect"]


def test_more_events_than_can_be_seen_are_joined():
    count = MOST_EVENTS + 1000
    frame = Replay(synthetic(count)).frame()
    drawn = merged(frame, 0.0005)
    assert len(drawn) < MOST_EVENTS
    for column in ("bytes_sent", "bytes_received", "seconds"):
        assert drawn[column].sum() == pytest.approx(frame[column].sum())
    for _, of in drawn.groupby(["operation", "rank"]):
        order = of.sort_values("start")
        assert (order["start"].to_numpy()[1:] > order["end"].to_numpy()[:-1]).all()
    assert len(merged(frame.head(100), 1.0)) == 100


def test_links_carry_what_was_measured_both_ways():
    trace = synthetic(40)
    figure = traffic_views({"t": trace}, view="network")
    marks = next(t for t in figure.data if t.marker.colorbar.thickness)
    both = trace.matrix() + trace.matrix().T
    assert sorted(marks.marker.color) == sorted(both[np.triu_indices(4, 1)])
    assert marks.marker.cmax == both.max()


def test_networks_side_by_side_are_on_one_scale():
    one, two = synthetic(40), synthetic(200, seed=2)
    net = Network.two_tier(nodes=2, ranks_per_node=2, inter="1GB/s", intra="10GB/s")
    figure = traffic_views({"one": one, "two": two}, view="network", network=net)
    bars = [t.marker for t in figure.data if t.marker.colorbar.thickness]
    assert bars[0].cmax == bars[1].cmax > 0
    assert [bar.showscale for bar in bars] == [False, True]
    assert "modelled" in figure.layout.title.text
    alone = traffic_views({"two": two}, view="network", network=net)
    assert next(t.marker.cmax for t in alone.data if t.marker.colorbar.thickness) == bars[1].cmax


@pytest.mark.parametrize("view", ["pairs", "time", "network"])
@pytest.mark.parametrize("width", [400, 560, 820])
def test_any_width_and_any_trace(view, width):
    for beside in (True, False):
        for trace in (Trace(), Trace(ranks=3), synthetic(5, 1), synthetic(30, 300)):
            figure = traffic_views(
                {"a": trace, "b": trace}, view=view, width=width, beside=beside, mode="dark"
            )
            for axis in ("xaxis", "xaxis2", "yaxis", "yaxis2"):
                low, high = figure.layout[axis].domain
                assert 0 <= low < high <= 1
    if view == "pairs":
        assert max(len(t.z) for t in figure.data) == 256


def test_what_is_refused():
    with pytest.raises(ValueError, match="one or two"):
        traffic_views({})
    with pytest.raises(ValueError, match="view='x'"):
        traffic_views({"a": Trace()}, view="x")
    with pytest.raises(ValueError, match="quantity='x'"):
        traffic_views({"a": Trace()}, quantity="x")
    with pytest.raises(ValueError, match="3 for 1 traces"):
        traffic_views({"a": Trace()}, network=[None] * 3)
    with pytest.raises(ValueError, match="4 ranks"):
        traffic_views(
            {"a": synthetic(4)},
            view="network",
            network=Network.flat(3, bandwidth="1GB/s", latency="1us"),
        )
