"""Figures, table and card of training runs, on histories made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dtoolkit import figures
from dtoolkit.comm.trace import Trace
from dtoolkit.figures.progress import progress
from tests.figures.checks import check_card, check_figure, words


def history(seconds, samples, loss=None, *, idle=0.25, dropped=0, byte=100):
    """A history from seconds and samples of each worker's steps; lists may differ in length."""
    steps, workers = max(map(len, seconds)), len(seconds)
    columns = {}
    for rank in range(workers):
        mine = np.asarray(seconds[rank], float)
        whole = np.full((5, steps), np.nan)
        whole[0, : len(mine)] = np.asarray(samples[rank], float)
        whole[1, : len(mine)] = mine
        whole[2, : len(mine)] = np.cumsum(mine)
        whole[3, : len(mine)] = np.linspace(2, 1, len(mine)) if loss is None else loss[rank]
        whole[4, : len(mine)] = rank
        columns |= {
            f"samples_{rank}": whole[0],
            f"seconds_{rank}": whole[1],
            f"end_{rank}": whole[2],
            f"loss_{rank}": whole[3],
            f"staleness_{rank}": whole[4],
            f"idle_{rank}": idle * whole[1],
            f"compute_{rank}": 0.5 * whole[1],
            f"throughput_{rank}": whole[0] / whole[1],
            f"local_steps_{rank}": np.ones(steps),
        }
    table = pd.DataFrame(columns)

    def over(name):
        return table[[f"{name}_{rank}" for rank in range(workers)]]

    used = over("samples").sum(axis=1)
    lost = (over("loss").to_numpy() * over("samples").to_numpy())[:]
    first = pd.DataFrame(
        {
            "step": np.arange(steps),
            "epoch": 0,
            "loss": np.nansum(lost, axis=1) / used,
            "samples": used,
            "dropped": dropped,
            "seconds": over("seconds").mean(axis=1),
            "throughput": over("throughput").sum(axis=1),
            "idle": over("idle").mean(axis=1),
            "staleness": over("staleness").max(axis=1),
            "bytes": byte,
            "lr": 0.1,
            "test_loss": np.nan,
            "test_accuracy": np.nan,
        }
    )
    first.loc[steps // 2, ["test_loss", "test_accuracy"]] = 0.9, 0.5
    first.loc[steps - 1, ["test_loss", "test_accuracy"]] = 0.4, 0.75
    return pd.concat([first, table], axis=1)


def run(table=None, *, strategy="data-parallel", compression="", emulated="", step=None):
    table = history([[1.0] * 4, [1.0] * 4], [[8] * 4, [4] * 4]) if table is None else table
    return SimpleNamespace(
        history=table,
        settings={"strategy": strategy, "workers": 2, "steps": 4, "compression": compression},
        state=SimpleNamespace(step=len(table) if step is None else step),
        trace=Trace(ranks=2, emulated=emulated),
        heading=f"<digits> by {strategy} on 2 workers (measured)",
        facts=lambda: [("loss", "2 to 1 & less")],
    )


FREE = history([[1.0] * 8, [4.0] * 2], [[2] * 8, [2] * 2], [np.arange(8.0), [10.0, 20.0]])
"""Two workers that run free: one makes four steps while the other makes one."""


def test_in_lockstep_progress_is_the_history_itself():
    table = history([[1.0] * 4, [1.0] * 4], [[8, 8, 8, 0], [4, 4, 4, 4]])
    way = progress(table)
    assert way["step"].tolist() == [1, 2, 3, 4]
    assert way["samples"].tolist() == [12, 24, 36, 40]
    assert way["seconds"].tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(way["loss"], table["loss"])


def test_free_workers_are_put_in_the_order_in_which_their_steps_ended():
    way = progress(FREE)
    assert way["step"].tolist() == [1, 2, 3, 4, 5]
    assert way["samples"].tolist() == [4, 8, 12, 16, 20]
    # Ends: worker 0 at 1, 2, ..., 8 and worker 1 at 4 and 8.
    assert way["seconds"].tolist() == [2, 4, 5, 7, 8]
    np.testing.assert_allclose(way["loss"], [0.5, (2 + 10) / 2, 3.5, 5.5, (20 + 7) / 2])


def test_progress_without_workers_and_without_steps():
    bare = history([[1.0] * 3], [[5] * 3])[["step", "loss", "samples", "seconds"]]
    assert progress(bare)["seconds"].tolist() == [1, 2, 3]
    assert progress(bare)["samples"].tolist() == [5, 10, 15]
    assert not len(progress(bare.iloc[:0]))
    assert not len(progress(FREE.iloc[:0]))


def test_a_run_that_goes_on_from_a_step_is_drawn_from_there():
    table = history([[1.0] * 2], [[5] * 2])
    table["step"] += 10
    assert figures.learning(run(table)).data[0].x.tolist() == [11, 12]


@pytest.mark.parametrize(
    ("x", "expected"),
    [("step", [1, 2, 3, 4]), ("samples", [12, 24, 36, 48]), ("seconds", [1, 2, 3, 4])],
)
def test_learning_over(x, expected):
    figure = figures.learning(run(), x=x)
    check_figure(figure)
    assert figure.data[0].x.tolist() == expected
    np.testing.assert_allclose(figure.data[0].y, [2, 5 / 3, 4 / 3, 1])
    assert "measured" in figure.layout.title.text


def test_learning_of_several_runs_and_a_column_that_not_all_have():
    other = run(FREE.drop(columns=["test_accuracy", "test_loss"]), strategy="a<b> %{x}")
    figure = figures.learning([run(), run(), other])
    check_figure(figure)
    names = [line.name for line in figure.data]
    assert names == ["data-parallel", "data-parallel (1)", "a&lt;b&gt; %&#123;x}"]
    assert len({(line.line.color, line.line.dash) for line in figure.data}) == 3
    scores = figures.learning({"one": run(), "other": other}, y="test_accuracy", x="samples")
    check_figure(scores)
    assert [line.name for line in scores.data] == ["one"]
    assert scores.data[0].x.tolist() == [36, 48]
    assert scores.data[0].y.tolist() == [0.5, 0.75]


def test_smoothing_is_a_mean_over_what_came_before():
    figure = figures.learning(run(), smooth=2)
    np.testing.assert_allclose(figure.data[0].y, [2, 11 / 6, 3 / 2, 7 / 6])
    assert "mean over 2 steps" in figure.layout.title.subtitle.text


def test_emulated_networks_are_said():
    assert "slow net" in figures.learning(run(emulated="slow net")).layout.title.subtitle.text
    assert "slow net" in figures.by_worker(run(emulated="slow net")).layout.title.subtitle.text


def test_by_worker():
    figure = figures.by_worker(run(FREE), "staleness")
    check_figure(figure)
    assert [line.name for line in figure.data] == ["worker 0", "worker 1"]
    assert figure.data[0].x.tolist() == list(range(1, 9))
    assert figure.data[1].x.tolist() == [1, 2]
    assert figure.data[1].y.tolist() == [1, 1]
    assert "25%, 25%" in figure.layout.title.subtitle.text
    timed = figures.by_worker(run(FREE), "idle", x="seconds")
    check_figure(timed)
    assert timed.data[1].x.tolist() == [4, 8]
    assert timed.data[1].y.tolist() == [1, 1]


def test_bytes_per_step():
    figure = figures.bytes_per_step({"all": run(), "<few>": run(FREE)})
    check_figure(figure)
    # 8 rows of 100 bytes, and 10 steps of 2 workers are 5 of the run.
    assert figure.data[0].x == (100.0, 160.0)
    assert figure.data[0].y == ("all", "&lt;few&gt;")


def test_table():
    table = figures.run_table(
        [run(), run(FREE, strategy="free", compression="Sign(error_feedback=True)", step=5)]
    )
    assert table.index.tolist() == ["data-parallel", "free, Sign"]
    one, free = (table.loc[name] for name in table.index)
    assert one["samples/s"] == 12
    assert one["idle"] == free["idle"] == 0.25
    assert one["loss"] == 1.0
    assert one["test accuracy"] == 0.75
    assert free["samples/s"] == 20 / 8
    assert free["staleness"] == 1
    assert (one["steps"], free["steps"]) == (4, 5)
    dropping = history([[1.0]], [[8]], dropped=2)
    assert figures.run_table(run(dropping))["dropped"].tolist() == [0.2]


def test_a_run_that_still_goes_on_has_no_settings_and_no_state():
    live = SimpleNamespace(history=FREE)
    check_figure(figures.learning(live))
    check_figure(figures.learning({"live": live}, x="seconds"))
    check_figure(figures.by_worker(live, "throughput"))
    assert figures.run_table({"live": live}).loc["live", "steps"] == 5


def test_nothing_to_draw_and_what_is_not_there():
    for draw in (figures.learning, figures.bytes_per_step, figures.run_table):
        for nothing in ([], {}):
            with pytest.raises(ValueError, match="nothing to draw"):
                draw(nothing)
    with pytest.raises(ValueError, match="y='speed': no run has it; there are step, epoch, loss"):
        figures.learning(run(), y="speed")
    with pytest.raises(ValueError, match="x='hours': wanted one of step, samples, seconds"):
        figures.learning(run(), x="hours")
    with pytest.raises(ValueError, match="smooth=0"):
        figures.learning(run(), smooth=0)
    with pytest.raises(ValueError, match="quantity='joy': wanted one of compute, end, idle"):
        figures.by_worker(run(), "joy")


def test_runs_without_steps_are_drawn_empty():
    empty = run(FREE.iloc[:0], step=3)
    check_figure(figures.by_worker(empty))
    check_figure(figures.bytes_per_step(empty))
    assert np.isnan(figures.run_table(empty)["loss"]).all()
    check_card(figures.training_card(empty))


def test_card():
    root, pictures = check_card(figures.training_card(run(FREE)))
    text = words(root)
    for part in ("Training", "measured", "<digits> by data-parallel", "2 to 1 & less", "computing"):
        assert part in text
    assert "(measured)" not in text
    assert len(pictures) == 2
    assert "worker 1 waited 25%" in pictures[1].get("aria-label")
    bars = [float(bar.get("width")) for bar in pictures[1].iter("rect")]
    np.testing.assert_allclose(bars, [138, 69, 69] * 2)
    large = history([[1.0] * 2000] * 40, [[1] * 2000] * 40)
    check_card(figures.training_card(run(large)))
    root, _ = check_card(figures.training_card(run(emulated="two tiers")))
    assert "emulated" in words(root)
