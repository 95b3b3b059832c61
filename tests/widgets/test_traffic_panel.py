"""TrafficPanel in plain Python: numbers, filters, playback, files, traces that grow."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dtoolkit.comm import Event, Network, Replay, Trace
from dtoolkit.widgets import TrafficPanel, recordings
from tests.figures.test_traffic_views import synthetic


@pytest.fixture
def trace():
    return synthetic(60)


@pytest.fixture
def panel(trace):
    panel = TrafficPanel(trace)
    assert panel.state["error"] == "", panel.state["details"]
    yield panel
    panel.close()


def drawn(panel):
    """The matrices of the heatmaps as they are on the page."""
    return [np.array(t.z) for t in panel._live.widget.data if t.type == "heatmap"]


def test_without_a_trace_it_says_how_to_come_by_one():
    panel = TrafficPanel()
    assert "press Run on the workers" in panel.state["status"]
    assert panel.replays == {}
    assert len(panel.table()) == len(panel.phases()) == 0
    assert "Nothing was recorded" in panel.figure().layout.title.text
    panel.code()
    for press in ("play", "_export_perfetto", "_export_trace"):
        panel._guard(press)(None)
        assert "there is no" in panel.state["error"]
    panel.set(view="network", network="two-tier")
    assert panel.state["error"] == ""
    panel.close()


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"phase": "a"},
        {"phase": "(no phase)"},
        {"operation": "send"},
        {"launch": "2"},
        {"phase": "b", "operation": "all_reduce", "launch": "2"},
    ],
)
def test_the_heatmap_is_the_traces_own_matrix_under_any_filter(panel, trace, chosen):
    panel.set(**chosen)
    kept = {n: v for n, v in chosen.items() if n != "launch"}
    if kept.get("phase") == "(no phase)":
        kept["phase"] = ""
    if "launch" in chosen:
        kept["launch"] = int(chosen["launch"])
    wanted = trace.matrix(**kept)
    assert wanted.any()
    assert (drawn(panel)[0] == wanted).all()
    assert panel.table()["bytes"].sum() == wanted.sum()
    assert panel.phases()["bytes"].sum() == wanted.sum()
    assert panel.phases()["events"].sum() == len(trace.filter(**kept))


def test_messages_are_counted(panel, trace):
    panel.set(quantity="messages")
    by_hand = np.zeros((4, 4), dtype=int)
    for event in trace:
        by_hand[event.rank] += np.array(event.sent) > 0
    assert (drawn(panel)[0] == by_hand).all()
    assert panel.table()["messages"].sum() == by_hand.sum()


@pytest.mark.parametrize("extent", ["until", "window"])
@pytest.mark.parametrize("position", [0, 1, 333, 999, 1000])
def test_positions_count_what_had_ended(panel, trace, extent, position):
    panel.set(position=position, extent=extent, window=250, phase="a")
    events = trace.filter(phase="a").events
    first, last = min(e.start for e in events), max(e.end for e in events)
    wanted = np.zeros((4, 4), dtype=int)
    for event in events:
        share = (event.end - first) / (last - first)
        early = extent == "window" and share <= position / 1000 - 0.25
        if not early and (share <= position / 1000 or position == 1000):
            wanted[event.rank] += np.array(event.sent)
    assert (drawn(panel)[0] == wanted).all()
    assert bool(wanted.any()) == (position > 300)


def test_the_timeline_has_a_cursor_and_all_events(panel):
    panel.set(view="time", position=500)
    figure = panel.figure()
    assert sum(len(t.x) for t in figure.data) == 3 * 60
    replay = next(iter(panel.replays.values()))
    assert [shape.x0 for shape in figure.layout.shapes] == [pytest.approx(500 * replay.span)]
    assert len(panel.table()) == int((replay.end <= 0.5 * replay.span).sum())


def test_side_by_side_on_one_scale(trace):
    other = synthetic(30, seed=4)
    panel = TrafficPanel(trace, other)
    assert panel.settings["beside"] == "other"
    one, two = drawn(panel)
    assert (one == trace.matrix()).all()
    assert (two == other.matrix()).all()
    maps = panel._live.widget.data
    assert maps[0].zmax == maps[1].zmax == max(one.max(), two.max())
    panel.set(beside="given", launch="1", launch_beside="2", position=700)
    span = max(Replay(trace, launch=n).span for n in (1, 2))
    for number, found in zip((1, 2), drawn(panel), strict=True):
        assert (found == Replay(trace, launch=number).matrix(until=0.7 * span)).all()
    assert panel.table()["trace"].nunique() == 2
    panel.reset()
    assert panel.settings["launch"] == "all"
    assert panel.settings["beside"] == "given"
    panel.set(beside="none")
    assert len(drawn(panel)) == 1
    panel.close()


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"phase": "b", "position": 400},
        {"view": "time", "extent": "window", "position": 600, "launch": "3"},
        {"view": "network", "quantity": "messages", "operation": "send"},
        {"view": "network", "network": "two-tier", "position": 500},
        {"view": "network", "network": "flat", "beside": "given", "launch_beside": "2"},
        {"beside": "other", "position": 250, "extent": "window", "window": 50},
    ],
)
def test_the_code_gives_the_same(trace, chosen):
    other = synthetic(30, seed=4)
    panel = TrafficPanel(trace, other)
    panel.set(**{"beside": "none", **chosen})
    assert panel.state["error"] == ""
    space = {"trace": trace, "other": other}
    exec(panel.code(), space)
    names = ("replay", "beside")[: len(panel.replays)]
    for name, mine in zip(names, panel.replays.values(), strict=True):
        since, until = panel._window()
        bounds = space.get("since"), space.get("until")
        assert bounds == (since, until) or (since is until is None)
        assert (space[name].matrix(since, until) == mine.matrix(since, until)).all()
        assert space[name].phases().equals(mine.phases())
    assert space["figure"].to_json() == panel.figure().to_json()
    panel.close()


def test_networks_that_do_not_fit_are_refused_in_words(panel):
    panel.set(view="network", network="two-tier", ranks_per_node=3)
    assert panel.state["error"].startswith("Ranks a node: 4 ranks do not fill nodes of 3")
    panel.set(ranks_per_node=4)
    assert panel.state["error"] == ""
    assert "modelled" in panel.figure().layout.title.text
    panel.controls["between"].widget.value = "10"
    assert panel.state["error"].startswith("Between nodes")
    panel.set(network="measured", between="10GB/s")
    assert panel.state["error"] == ""


def test_files_come_back_and_others_are_refused_in_words(trace, tmp_path):
    panel = TrafficPanel()
    for name in ("mine.trace", "mine.jsonl.gz"):
        trace.save(tmp_path / name)
        panel._upload.take(name, (tmp_path / name).read_bytes())
        assert panel.state["error"] == "", panel.state["details"]
        assert panel.settings["trace"] == f"file {name}"
        assert (drawn(panel)[0] == trace.matrix()).all()
    assert f"dt.comm.Trace.load({name!r})" in panel.code()
    text = (tmp_path / "mine.trace").read_text().splitlines(keepends=True)
    far = Trace([Event(1, 0, "send", "", 0.0, float("inf"), (0, 1), 0)])
    far.save(tmp_path / "far")
    huge = Trace([Event(1, 10**7, "send", "", 0.0, 1.0, (0, 1), 0)])
    huge.save(tmp_path / "huge")
    wide = Trace([Event(1, 0, "send", "", 0.0, 1.0, (0, 2**63), 0)])
    wide.save(tmp_path / "wide")
    before = panel.figure().to_json()
    for content, words in (
        (b"", "first line is not JSON"),
        (b"\x89PNG\xff", "is not a trace"),
        (b'{"a": 1}', "does not say"),
        ("".join(text[:-1]).encode(), "cut short"),
        ("".join([*text[:3], "{}\n", *text[4:]]).encode(), "line 4"),
        ((tmp_path / "far").read_bytes(), "line 2: an event from 0.0 to inf"),
        ((tmp_path / "huge").read_bytes(), "10,000,001 ranks"),
        ((tmp_path / "wide").read_bytes(), "64 bits"),
    ):
        panel._upload.take("../x.trace", content)
        assert panel.state["error"].startswith("x.trace"), panel.state["error"]
        assert words in panel.state["error"]
        assert panel.figure().to_json() == before
    panel._upload.take("x.gz", gzip.compress(b"nothing")[:-3])
    assert panel.state["error"].startswith("x.gz is not a trace")
    panel.close()


def test_exports_for_perfetto_and_for_later(panel, trace):
    saved = []
    panel._save = lambda name, content, kind: saved.append((name, content))
    panel.set(phase="a")
    panel._export_perfetto(None)
    panel._export_trace(None)
    assert json.loads(saved[0][1]) == json.loads(json.dumps(trace.filter(phase="a").chrome()))
    again = recordings.trace_file(*saved[1])
    assert again.events == trace.filter(phase="a").events
    panel.set(beside="given", launch="1", launch_beside="2")
    panel._export_perfetto(None)
    events = json.loads(saved[2][1])["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    for number in (0, 1):
        of = [event["args"]["launch"] for event in slices if event["pid"] == number]
        assert set(of) == {number + 1}
        assert len(of) == len(trace.filter(phase="a", launch=number + 1))
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == set(panel.replays)


def test_settings_go_round_and_say_what_they_want(panel, trace):
    panel.set(view="time", phase="b", launch="2", position=40, extent="window", window=7)
    other = TrafficPanel(trace)
    other.load_settings(panel.settings_text())
    assert other.settings == panel.settings
    assert other.phases().equals(panel.phases())
    other.close()
    empty = TrafficPanel()
    with pytest.raises(ValueError, match="trace that their panel was made with"):
        empty.load_settings(panel.settings_text())
    with pytest.raises(ValueError, match="upload mine first"):
        empty.set(trace="file mine")
    with pytest.raises(ValueError, match="run it first"):
        empty.set(beside="product 4")
    with pytest.raises(ValueError, match="Position"):
        empty.set(position=1001)
    empty.close()
    panel.set(phase="nobody's")
    assert panel.settings["phase"] == "all"
    assert "Phase nobody's is not there" in panel.state["status"]
    with pytest.raises(TypeError, match="wanted a Trace or a Cluster"):
        TrafficPanel([1])


def test_20_000_events_answer_soon():
    panel = TrafficPanel(synthetic(20_000))
    seconds = []
    for chosen in ({"phase": "a"}, {"phase": "all"}, {"view": "time"}, {"position": 300},
                   {"view": "network"}):  # fmt: skip
        start = time.monotonic()
        panel.set(**chosen)
        seconds.append(time.monotonic() - start)
    assert sorted(seconds)[2] < 0.5
    panel.close()


def test_it_plays_by_the_clock_and_pauses(trace):
    async def main():
        panel = TrafficPanel(trace)
        await panel.wait()
        panel.set(speed="3")
        await panel.wait()
        panel.play()
        assert panel.playing
        assert panel._play.description == "Pause"
        seen = set()
        start = time.monotonic()
        while panel.playing and time.monotonic() - start < 20:
            seen.add(panel.settings["position"])
            if panel.settings["position"] > 300 and panel.settings["view"] == "pairs":
                panel.set(view="network")  # a choice does not end it
            await asyncio.sleep(0.02)
        assert 2 < time.monotonic() - start < 15
        assert len(seen) > 5
        assert panel.settings["position"] == 1000
        assert panel.settings["view"] == "network"
        assert panel._play.description == "Play"
        panel.play()
        await asyncio.sleep(0.5)
        panel.play()
        place = panel.settings["position"]
        assert 0 < place < 900
        await asyncio.sleep(0.3)
        assert panel.settings["position"] == place
        assert panel.state["error"] == ""
        panel.close()

    asyncio.run(main())


def test_a_cluster_is_followed_while_others_use_it(cluster2):
    def exchange(ctx, n):
        with ctx.comm.phase("talk"):
            ctx.comm.all_gather(torch.arange(n))

    async def main():
        cluster2.run(exchange, 100)
        panel = TrafficPanel(cluster2)
        await panel.wait()
        assert "followed as it grows" in panel.state["status"]
        for number in (1, 2):
            before = int(drawn(panel)[0].sum())
            await asyncio.to_thread(cluster2.run, exchange, 100 * number)
            await until(lambda past=before: drawn(panel)[0].sum() > past)
            assert (drawn(panel)[0] == cluster2.trace.matrix()).all()
        panel.set(phase="talk")
        await panel.wait()
        panel.follow()
        await panel.wait()
        frozen = drawn(panel)[0].copy()
        await asyncio.to_thread(cluster2.run, exchange, 50)
        await asyncio.sleep(0.6)
        panel.set(view="time")
        panel.set(view="pairs")
        await panel.wait()
        assert (drawn(panel)[0] == frozen).all()
        assert "followed" not in panel.state["status"]
        panel.follow()
        await until(lambda: (drawn(panel)[0] == cluster2.trace.matrix(phase="talk")).all())
        space = {"cluster": cluster2}
        exec(panel.code(), space)
        assert (space["replay"].matrix() == drawn(panel)[0]).all()
        panel.close()

    asyncio.run(main())


def test_a_panel_that_nobody_holds_ends(trace):
    async def main():
        panel = TrafficPanel(trace)
        await panel.wait()
        there = weakref.ref(panel)
        del panel
        for _ in range(20):
            gc.collect()
            await asyncio.sleep(0.05)
            if there() is None:
                break
        assert there() is None

    asyncio.run(main())


@pytest.mark.parametrize("what", ["product", "oblivious", "training", "scheduled"])
def test_what_is_recorded_is_what_the_code_records(cluster2, what):
    panel = TrafficPanel(cluster=cluster2)
    panel.set(record=what)
    assert panel.settings["workers"] == 2
    panel.run()
    assert panel.state["error"] == "", panel.state["details"]
    key = f"{what} 2"
    assert panel.settings["trace"] == key
    recorded = panel.traces[key]
    assert recorded.total > 0
    assert (drawn(panel)[0] == recorded.matrix()).all()
    launch = str(max(event.launch for event in recorded))
    panel.set(launch=launch, phase=recorded.events[-1].phase or "(no phase)")
    space = {"cluster": cluster2}
    exec(panel.code(), space)
    mine = next(iter(panel.replays.values()))
    assert (space["replay"].matrix() == mine.matrix()).all()
    assert space["replay"].phases()["events"].tolist() == mine.phases()["events"].tolist()
    panel.close()
    assert cluster2.status == "idle"


def test_the_emulated_network_of_a_cluster_is_offered(trace):
    network = Network.two_tier(nodes=2, ranks_per_node=2, inter="1GB/s", intra="9GB/s")
    cluster = SimpleNamespace(emulate=network, trace=trace, size=4)
    panel = TrafficPanel(cluster=cluster)
    panel.set(view="network", network="emulated")
    assert panel.state["error"] == ""
    assert panel._wires[0][0] is network
    assert "cluster.emulate" in panel.code()
    panel.close()


async def until(true, seconds=20):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
