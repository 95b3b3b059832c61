from __future__ import annotations

import copy
import gzip
import json
import pickle
import threading

import numpy as np
import pandas as pd
import pytest

from dtoolkit.comm.trace import Event, Trace


def event(rank, sent, *, launch=0, operation="all_to_all_v", phase="", start=0.0, end=1.0, **more):
    return Event(launch, rank, operation, phase, start, end, tuple(sent), sum(sent), **more)


@pytest.fixture
def trace():
    """Two launches on three ranks, with sums that can be done in the head."""
    return Trace(
        [
            event(0, (0, 10, 20), phase="halo", start=100.0, end=100.5),
            event(1, (5, 0, 7), phase="halo", start=100.25, end=100.5),
            event(2, (1, 2, 0), launch=1, operation="all_reduce", start=101.0, end=101.001),
            event(0, (0, 100, 0), launch=1, operation="send", start=101.5, end=102.0, source="c7"),
        ],
        ranks=3,
        clock_error=2e-4,
    )


def test_matrix_is_source_by_target_in_exact_bytes(trace):
    expected = np.array([[0, 110, 20], [5, 0, 7], [1, 2, 0]])
    assert trace.matrix().dtype == np.int64
    np.testing.assert_array_equal(trace.matrix(), expected)
    assert trace.total == expected.sum() == 145


def test_matrix_of_large_counts_stays_exact():
    large = 2**53 + 1  # what a float64 cannot hold
    trace = Trace([event(0, (0, large)), event(0, (0, 2))], ranks=2)
    assert trace.matrix()[0, 1] == large + 2
    assert trace.total == large + 2


def test_matrix_by_operation_phase_and_launch(trace):
    assert trace.matrix(phase="halo").sum() == 42
    assert trace.matrix(phase="").sum() == 103
    assert trace.matrix(launch=1).tolist() == [[0, 100, 0], [0, 0, 0], [1, 2, 0]]
    assert trace.matrix(operation=["send", "all_reduce"], launch=1).sum() == 103
    assert trace.matrix(operation="broadcast").tolist() == np.zeros((3, 3)).tolist()


def test_bytes_between_nodes_and_inside_them(trace):
    assert trace.between([0, 0, 1]) == 20 + 7 + 1 + 2
    assert trace.between([5, 3, 5], phase="halo") == 10 + 5 + 7
    assert trace.between([0, 0, 0]) == 0
    with pytest.raises(ValueError, match=r"nodes has shape \(2,\); wanted the node of each of 3"):
        trace.between([0, 1])


def test_matrix_of_a_grown_cluster_has_its_size():
    trace = Trace([event(0, (0, 1))], ranks=2)
    trace.extend([event(3, (1, 1, 1, 0), launch=1)])
    assert trace.matrix().shape == (4, 4)
    assert trace.matrix(launch=0).shape == (4, 4)  # so that matrices of one trace can be added
    assert trace.matrix()[3].tolist() == [1, 1, 1, 0]
    assert Trace([event(5, ())], ranks=2).matrix().shape == (6, 6)


def test_matrix_of_nothing():
    assert Trace(ranks=4).matrix().tolist() == np.zeros((4, 4)).tolist()
    assert Trace().matrix().shape == (0, 0)
    assert Trace().total == 0


def test_filter_returns_a_new_trace_with_the_same_ranks(trace):
    part = trace.filter(rank=0)
    assert isinstance(part, Trace)
    assert len(part) == 2
    assert part.ranks == 3
    assert part.clock_error == trace.clock_error
    part.clear()
    assert len(trace) == 4
    assert len(trace.filter(rank=[1, 2], phase="halo")) == 1
    assert len(trace.filter(rank=np.int64(2))) == 1
    assert len(trace.filter()) == 4


def test_clear_empties_and_keeps_the_rest(trace):
    trace.clear()
    assert len(trace) == 0
    assert trace.events == []
    assert trace.ranks == 3
    trace.extend([event(0, (0, 1, 0))])
    assert trace.total == 1


def test_recording_can_be_off(trace):
    trace.enabled = False
    trace.extend([event(0, (0, 1, 0))])
    assert len(trace) == 4
    trace.enabled = True
    trace.extend([event(0, (0, 1, 0))])
    assert len(trace) == 5


def test_events_is_a_copy(trace):
    trace.events.clear()
    assert len(trace) == 4
    assert list(trace) == trace.events


def test_extend_from_many_threads_loses_nothing():
    trace = Trace(ranks=2)

    def record():
        for _ in range(200):
            trace.extend([event(0, (0, 1)), event(1, (1, 0))])
            trace.matrix()

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(trace) == 1600
    assert trace.matrix().tolist() == [[0, 800], [800, 0]]


def test_frame(trace):
    frame = trace.frame()
    assert list(frame["rank"]) == [0, 1, 2, 0]
    assert list(frame["bytes_sent"]) == [30, 12, 3, 100]
    assert frame["seconds"].tolist() == pytest.approx([0.5, 0.25, 0.001, 0.5])
    assert frame["source"].tolist() == ["", "", "", "c7"]


def test_frame_of_nothing_has_the_same_columns_and_types(trace):
    full, empty = trace.frame(), Trace(ranks=3).frame()
    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns)
    assert list(empty.dtypes) == list(full.dtypes)
    assert len(pd.concat([full, empty])) == 4


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_save_and_load_give_the_same_trace(trace, tmp_path, name):
    path = tmp_path / name
    hostile = event(1, (2**60, 0, 0), operation='"\n\u2028é', phase="</script>", group="row 0")
    trace.extend([hostile])
    trace.save(path)
    again = Trace.load(path)
    assert again.events == trace.events
    assert (again.ranks, again.clock_error) == (3, 2e-4)
    assert [p.name for p in tmp_path.iterdir()] == [name]  # nothing half written is left


def test_save_takes_numpy_numbers(tmp_path):
    numbers = Event(
        np.int64(1), np.int32(0), "send", "", np.float64(0.5), np.float64(1.0),
        tuple(np.array([0, 3])), np.int64(0), "", "", "",
    )  # fmt: skip
    Trace([numbers], ranks=2).save(tmp_path / "t.jsonl")
    assert Trace.load(tmp_path / "t.jsonl").events == [numbers]
    json.dumps(Trace([numbers], ranks=2).chrome())


def test_load_of_broken_files_says_what_is_wrong(trace, tmp_path):
    path = tmp_path / "trace.jsonl"
    trace.save(path)
    whole = path.read_text()
    lines = whole.splitlines()

    def refused(text, match):
        path.write_text(text)
        with pytest.raises(ValueError, match=match):
            Trace.load(path)

    refused("", "trace.jsonl is not a trace: its first line is not JSON")
    refused("{}\n", "does not say 'dtoolkit trace'")
    refused("[1]\n", "does not say")
    refused(whole.replace('"version": 1', '"version": 2'), "version 2")
    refused(lines[0].replace('"ranks": 3', '"ranks": "3"'), "line 1")
    refused("\n".join(lines[:3]), "announces 4 events and 2 are there")
    refused(whole[:-40], "line 5: not an event")
    refused(whole.replace('"received": 30', '"receive": 30'), "line 2: not an event")
    refused(whole.replace('"received": 30', '"received": "30"'), "line 2: .*wrong kind")
    refused(whole.replace('"sent": [0, 10, 20]', '"sent": [0, -10, 20]'), "line 2: .*wrong kind")
    refused(lines[0] + "\n7\n8\n9\n10\n", "line 2: not an event")
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match="is not a trace"):
        Trace.load(path)
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "absent.jsonl")


def test_load_of_a_broken_archive_says_so(trace, tmp_path):
    path = tmp_path / "trace.jsonl.gz"
    trace.save(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="damaged"):
        Trace.load(path)
    path.write_text("plain text")
    with pytest.raises(ValueError, match="damaged"):
        Trace.load(path)


def test_chrome_format(trace):
    document = json.loads(json.dumps(trace.chrome()))
    meta = [e for e in document["traceEvents"] if e["ph"] == "M"]
    slices = [e for e in document["traceEvents"] if e["ph"] == "X"]
    assert len(meta) + len(slices) == len(document["traceEvents"])
    assert {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "cluster"}} in (
        meta
    )
    names = {e["tid"]: e["args"]["name"] for e in meta if e["name"] == "thread_name"}
    assert names == {0: "rank 0", 1: "rank 1", 2: "rank 2"}
    order = {e["tid"]: e["args"]["sort_index"] for e in meta if e["name"] == "thread_sort_index"}
    assert order == {0: 0, 1: 1, 2: 2}
    assert document["displayTimeUnit"] == "ms"
    assert document["otherData"]["clock_error_seconds"] == 2e-4

    first = slices[0]
    assert set(first) == {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
    assert (first["ts"], first["dur"]) == (0.0, 500_000.0)  # microseconds
    assert first["cat"] == "halo"
    assert first["args"]["bytes_sent"] == 30
    assert first["args"]["bytes_to_rank_2"] == 20
    second = next(e for e in slices if e["tid"] == 1)
    assert second["ts"] == pytest.approx(250_000.0)
    third = next(e for e in slices if e["tid"] == 2)
    assert third["dur"] == pytest.approx(1_000.0)
    assert third["cat"] == "communication"


def test_chrome_puts_overlapping_operations_on_a_thread_of_their_own():
    overlap = Trace(
        [
            event(0, (0, 1), operation="first", start=0.0, end=2.0),
            event(0, (0, 1), operation="overlaps", start=1.0, end=3.0),
            event(0, (0, 1), operation="nested", start=1.5, end=2.0),
            event(0, (0, 1), operation="after", start=3.0, end=4.0),
        ],
        ranks=2,
    ).chrome()
    threads = {e["name"]: e["tid"] for e in overlap["traceEvents"] if e["ph"] == "X"}
    assert threads == {"first": 0, "overlaps": 2, "nested": 0, "after": 0}
    names = [e["args"]["name"] for e in overlap["traceEvents"] if e["name"] == "thread_name"]
    assert names == ["rank 0", "rank 0, overlapping 1", "rank 1"]


def test_chrome_names_only_the_largest_receivers():
    trace = Trace([event(0, range(1000))], ranks=1000)
    args = next(e for e in trace.chrome()["traceEvents"] if e["ph"] == "X")["args"]
    assert args["bytes_to_rank_999"] == 999
    assert len(args) < 25
    named = sum(v for k, v in args.items() if k.startswith("bytes_to_"))
    assert named == args["bytes_sent"] == sum(range(1000))


def test_chrome_of_nothing_and_an_interval_that_ends_before_it_starts():
    assert [e["ph"] for e in Trace().chrome()["traceEvents"]] == ["M"]
    backwards = Trace([event(0, (0,), start=1.0, end=0.5)], ranks=1).chrome()
    assert backwards["traceEvents"][-1]["dur"] == 0


def test_save_chrome(trace, tmp_path):
    trace.save_chrome(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == trace.chrome()
    trace.save_chrome(tmp_path / "t.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes())) == trace.chrome()


def test_pickle_and_copy(trace):
    for other in (pickle.loads(pickle.dumps(trace)), copy.deepcopy(trace)):
        assert other.events == trace.events
        assert other.ranks == 3
        other.extend([event(0, (0, 1, 0))])
        assert len(trace) == 4


def test_repr_is_clear(trace):
    text = repr(trace)
    assert "4 events on 3 ranks" in text
    assert "145 bytes" in text
    assert "2,000.000 ms" in text
    trace.enabled = False
    assert "recording is off" in repr(trace)
    assert "0 events on 0 ranks" in repr(Trace())


def test_wrong_ranks_are_refused():
    with pytest.raises(ValueError, match="ranks"):
        Trace(ranks=-1)
