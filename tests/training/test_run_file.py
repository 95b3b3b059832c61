"""Saved runs: everything comes back, nothing is run, damage and foreign files are told in words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import dtoolkit as dt
from dtoolkit.training import Run
from dtoolkit.training.statefile import read_parts, write_parts
from tests.training.toys import toy


@pytest.fixture(scope="module")
def run(cluster_of: Callable[[int], dt.Cluster]) -> Run:
    slow = dt.faults.Slow(rank=0, seconds=0.001)
    return dt.train(cluster_of(2), toy(), steps=4, seed=3, evaluate_every=2, faults=[slow])


def test_everything_comes_back(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    again = Run.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.history, run.history)
    assert again.state.digest() == run.state.digest()
    assert again.state.workers == 2
    assert again.trace.events == run.trace.events
    assert again.trace.matrix().tolist() == run.trace.matrix().tolist()
    for name in ("task", "settings", "summary", "faults", "recoveries", "seconds", "citation"):
        assert getattr(again, name) == getattr(run, name), name
    assert repr(again) == repr(run)
    assert again.cite() == run.cite()
    assert again._repr_html_() == run._repr_html_()
    pd.testing.assert_frame_equal(again.by_worker(), run.by_worker())
    assert os.listdir(tmp_path) == ["run"]


def test_saving_a_loaded_run_gives_the_same_content(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path / "a")
    Run.load(tmp_path / "a").save(tmp_path / "b")
    first, second = (torch.load(tmp_path / n, weights_only=True) for n in "ab")
    assert first["digest"] == second["digest"]


def test_the_card_says_what_matters(run: Run) -> None:
    card = run._repr_html_()
    assert "toy" in card
    assert "data-parallel" in card
    assert "measured" in card
    assert "<script" not in card


def test_what_is_damaged_or_missing_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run"
    run.save(path)
    parts = read_parts(path)

    def refused(words: str, **changes: Any) -> None:
        kept = {name: value for name, value in {**parts, **changes}.items() if value is not None}
        write_parts(path, kept)
        with pytest.raises(ValueError, match=words):
            Run.load(path)

    refused("seconds is missing, or is no float", seconds=None)
    refused("settings is missing, or is no dict", settings=[1])
    refused("holds no state", state=None)
    refused("holds the state of a run and nothing else", history=None)
    refused("history", history={"step": torch.arange(2), "loss": torch.zeros(3)})
    refused("its trace", trace=torch.zeros(5, dtype=torch.uint8))
    state = {name: value for name, value in parts["state"].items() if name != "seed"}
    refused(r"holds no \['seed'\]", state=state)
    run.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(ValueError, match="damaged, or is cut short"):
        Run.load(path)


def test_a_folder_that_is_not_there_is_told_and_the_old_file_stays(
    run: Run, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        run.save(tmp_path / "no" / "run")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        run.save(tmp_path)


def test_only_a_regular_file_is_ever_replaced(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="is no regular file, and is not replaced"):
        run.save(pipe)
    with pytest.raises(FileExistsError, match="is no regular file"):
        run.state.save(os.devnull)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_what_a_killed_writer_left_is_removed_by_the_next(run: Run, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    stale = tmp_path / f".run.{ended.pid}.partial"
    others = [".run.1.partial", f".run2.{ended.pid}.partial", ".run.mine.partial"]
    for name in (stale.name, *others):
        (tmp_path / name).write_bytes(b"half")
    run.save(tmp_path / "run")
    assert sorted(os.listdir(tmp_path)) == sorted(["run", *others])


def test_a_checkpoint_is_there_when_an_evaluation_fails(
    cluster_of: Callable[[int], dt.Cluster], tmp_path: Path
) -> None:
    def fussy(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert len(x) == 2, "more than a trial has"
        return torch.zeros(len(x))

    path = tmp_path / "run"
    with pytest.raises(dt.errors.RankError, match="more than a trial has"):
        dt.train(cluster_of(2), toy(metrics={"fussy": fussy}), steps=3, checkpoint=path)
    left = Run.load(path)
    assert left.state.step == 3
    assert left.history["step"].tolist() == [0, 1, 2]
    dt.train(cluster_of(2), toy(), steps=4, resume=path, checkpoint=path)
    assert Run.load(path).history["test_loss"].notna().tolist() == [True]
