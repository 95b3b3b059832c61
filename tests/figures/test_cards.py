from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dtoolkit.arrays.layout import Layout
from dtoolkit.comm.trace import Event, Trace
from dtoolkit.figures import array_card, cluster_card, layout_card, plan_card, trace_card
from dtoolkit.spmm.plan import Plan, plan
from tests.figures.checks import check_card, words
from tests.figures.conftest import random_matrix, random_trace

HOSTILE = "<script>alert('x')</script>\"&"


def worker(rank, **more):
    return SimpleNamespace(
        **{
            "rank": rank, "address": f"tcp://10.0.0.{rank}:4000", "host": "node", "device": "cpu",
            "threads": 1, "memory": 4 * 10**9, "pid": 100 + rank, **more,
        }
    )  # fmt: skip


def cluster(workers, **more):
    return SimpleNamespace(
        **{
            "workers": workers,
            "dashboard": "",
            "status": "idle",
            "held": [0] * len(workers),
            **more,
        }
    )


def array(**more):
    return SimpleNamespace(
        **{
            "kind": "DistDense", "shape": (60, 8), "dtype": np.dtype("float32"),
            "layout": Layout.block(60, 4), "nbytes_by_rank": [480] * 4, **more,
        }
    )  # fmt: skip


def test_plan_card(joint):
    root, pictures = check_card(plan_card(joint))
    text = words(root)
    assert "planned" in text
    assert "joint strategy, 4 parts" in text
    assert "60 × 60" in text
    assert f"rows sent{joint.volume}, proven least" in text
    assert len(pictures) == 2
    traffic, bars = pictures
    assert f"{joint.volume} rows in all" in traffic.get("aria-label")
    titles = {title.text for title in traffic.iter("title")}
    s, t = np.unravel_index(joint.traffic.argmax(), (4, 4))
    assert f"rank {s} to rank {t}: {joint.traffic.max()} rows" in titles
    assert f"joint {joint.volume}" in bars.get("aria-label")
    assert joint._repr_html_() == plan_card(joint)


def test_plan_card_of_1024_ranks(wide):
    root, pictures = check_card(plan_card(wide))
    assert "1,024 parts" in words(root)
    assert len(pictures) == 2


def test_plan_cards_of_other_plans(matrix, tmp_path):
    weighted = plan(matrix, parts=4, b_dtype="float32", c_dtype="float64")
    text = words(check_card(plan_card(weighted))[0])
    assert "at 4 bytes a number of B and 8 of C" in text
    assert "at weights 1:2 (B:C)" in text
    check_card(plan_card(plan(matrix, parts=4, strategy="auto")))
    check_card(plan_card(plan(matrix, parts=12, strategy="oblivious")))
    check_card(plan_card(plan(random_matrix(0, 0), parts=3)))
    check_card(plan_card(plan(matrix, parts=1)))
    column = plan(matrix, parts=4, strategy="column")
    column.save(tmp_path / "plan.npz")
    check_card(plan_card(Plan.load(tmp_path / "plan.npz")))


def test_plan_card_escapes_the_name_of_a_strategy(matrix):
    class Own:
        name = HOSTILE

        def assign(self, blocks):
            return np.zeros(blocks.nonzeros, dtype=bool)

    root, _ = check_card(plan_card(plan(matrix, parts=4, strategy=Own())))
    assert HOSTILE in words(root)


def test_trace_card(small_trace):
    root, pictures = check_card(trace_card(small_trace))
    text = words(root)
    assert "measured" in text
    assert "40 events on 4 ranks" in text
    assert f"({small_trace.total:,})" in text
    assert "±250 µs" in text
    assert len(pictures) == 2
    titles = {title.text for title in pictures[1].iter("title")}
    assert titles == {"all_reduce", "all_to_all_v", "barrier", "broadcast"}
    assert small_trace._repr_html_() == trace_card(small_trace)


def test_trace_card_tells_one_clock_from_clocks_that_were_compared():
    event = Event(0, 0, "barrier", "", 1.0, 2.0, (0,), 0, "", "", "")
    root, _ = check_card(trace_card(Trace([event], ranks=1, clock_error=1e-9)))
    assert "shared by all ranks" in words(root)
    assert "±" not in words(root)
    root, _ = check_card(trace_card(Trace([event], ranks=1, clock_error=2e-6)))
    assert "±2 µs" in words(root) or "±2.0 µs" in words(root)


def test_plan_card_tells_work_from_traffic():
    own = plan(random_matrix(60, 60), parts=4)
    text = words(check_card(plan_card(own))[0])
    assert "busiest rank, work" in text
    assert "busiest rank, traffic" in text
    assert f"{own.own_load.moved.max():,} rows" in text


def test_trace_cards_stay_small(wide_trace):
    check_card(trace_card(wide_trace))
    root, _ = check_card(trace_card(random_trace(5000, 16)))
    assert "5,000 events" in words(root)
    many = Trace(
        [Event(0, 0, f"operation {i}", "", i, i + 1, (1,), 0, "", "", "") for i in range(400)],
        ranks=1,
    )
    root, _ = check_card(trace_card(many))
    assert "the first 8 of 400" in words(root)


def test_trace_card_of_nothing():
    root, pictures = check_card(trace_card(Trace(ranks=4)))
    assert "0 events on 4 ranks: nothing recorded yet" in words(root)
    assert not pictures
    off = Trace()
    off.enabled = False
    assert "recording is off" in words(check_card(trace_card(off))[0])
    instant = Trace([Event(0, 0, "barrier", "", 1.0, 1.0, (0,), 0, "", "", "")], ranks=1)
    check_card(trace_card(instant))


def test_trace_card_escapes_names():
    trace = Trace([Event(0, 0, HOSTILE, HOSTILE, 0.0, 1.0, (1,), 0, "", "", "")], ranks=1)
    root, _ = check_card(trace_card(trace))
    assert HOSTILE in words(root)


@pytest.mark.parametrize(
    "layout",
    [
        Layout.block(67, 4),
        Layout.block(3, 8),
        Layout.block(0, 2),
        Layout.cyclic(67, 4),
        Layout.block_cyclic(100, 3, 8),
        Layout.from_parts(np.random.default_rng(0).integers(0, 1024, 10_000)),
    ],
    ids=["block", "more parts than rows", "empty", "cyclic", "block-cyclic", "1024 parts"],
)
def test_layout_card(layout):
    root, pictures = check_card(layout_card(layout))
    assert f"{layout.n:,}" in words(root)
    assert len(pictures) == (1 if layout.contiguous else 2)
    assert layout._repr_html_() == layout_card(layout)


def test_layout_card_names_owners_and_empty_parts():
    _, pictures = check_card(layout_card(Layout.cyclic(6, 3)))
    assert "0, 1, 2, 0, 1, 2" in pictures[1].get("aria-label")
    assert "parts without rows5" in words(check_card(layout_card(Layout.block(3, 8)))[0])


def test_cluster_card():
    link = "http://127.0.0.1:8787/status"
    shown = cluster([worker(0), worker(1)], dashboard=link, held=[10**6, 0])
    root, _ = check_card(cluster_card(shown), links=[link])
    text = words(root)
    assert "idle" in text
    assert "2 workers, 1 MB held" in text
    assert root.find(".//a").get("href") == link
    cells = [cell.text for cell in root.iter("td")]
    assert cells[:8] == ["0", "tcp://10.0.0.0:4000", "node", "cpu", "1", "4 GB", "1 MB", "100"]
    assert cells[14] == "0 B"


def test_cluster_cards_of_many_and_of_none():
    many = cluster_card(cluster([worker(r) for r in range(1024)], held=[7] * 1024))
    root, _ = check_card(many)
    assert "the first 32 of 1,024" in words(root)
    assert "7.17 kB held" in words(root)
    assert "0 workers" in words(check_card(cluster_card(cluster([])))[0])
    closed = SimpleNamespace(status="closed")  # has no workers to ask
    assert "closed" in words(check_card(cluster_card(closed))[0])
    assert "none" in words(check_card(cluster_card(cluster([worker(0, memory=0)])))[0])


def test_cluster_card_escapes_and_links_only_to_the_web():
    shown = cluster([worker(0, host=HOSTILE)], dashboard="java" + "script:alert(1)", status=HOSTILE)
    html = cluster_card(shown)
    assert "<script" not in html
    assert "<a " not in html
    quote = cluster([worker(0)], dashboard='http://x/"onclick="alert(1)')
    root, _ = check_card(cluster_card(quote).replace("http://", ""))
    assert root.find(".//a").get("onclick") is None


def test_array_card():
    root, pictures = check_card(array_card(array()))
    text = words(root)
    assert "DistDense" in text
    assert "60 × 8" in text
    assert "float32" in text
    assert "1.92 kB on 4 ranks" in text
    assert "480 B" in pictures[0].get("aria-label")


def test_array_card_of_a_sparse_one_of_1024_ranks():
    held = np.random.default_rng(0).integers(0, 10**6, 1024)
    shown = array(kind="DistSparse", nnz=120, layout=Layout.cyclic(60, 1024), nbytes_by_rank=held)
    root, pictures = check_card(array_card(shown))
    assert "120 (25.000% of the cells)" in words(root)
    assert "1,024 ranks" in words(root)
    assert len(pictures) == 1


def test_array_cards_of_nothing_and_of_hostile_names():
    empty = array(shape=(0, 0), layout=Layout.block(0, 2), nbytes_by_rank=[0, 0], nnz=0)
    check_card(array_card(empty))
    root, _ = check_card(array_card(array(kind=HOSTILE)))
    assert HOSTILE in words(root)


def test_same_input_same_card(joint):
    assert plan_card(joint) == plan_card(joint)
    a, b = (trace_card(random_trace(50, 5)) for _ in range(2))
    assert a == b
