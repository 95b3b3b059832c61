"""What a run cannot go on from, or with, is refused in words."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.training import Checkpoint, Examples, Run, RunState
from dtoolkit.training.strategies import DataParallel
from tests.training.toys import examples, model, toy


@pytest.fixture(scope="module")
def saved(cluster_of: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "run"
    dt.train(cluster_of(2), toy(), steps=3, seed=7).save(path)
    return path


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"steps": 3}, "steps=3 is the total, and the saved run has done 3 already"),
    ({"steps": 2}, "steps=2 is the total, and the saved run has done 3 already"),
    ({"seed": 8}, "seed of the saved run is 7, and 8 here"),
    ({"seed": 0}, "seed of the saved run is 7, and 0 here"),
    ({"strategy": "ordered"}, "strategy of the saved run is 'data-parallel', and 'ordered' here"),
    ({"batch": 4}, "batch of the saved run is 8, and 4 here"),
    ({"accumulate": 2}, "accumulate of the saved run is 1, and 2 here"),
    (
        {"optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9)},
        r"optimizer of the saved run has betas, .* which SGD\(lr=0.1\) does not have",
    ),
    ({"task": toy(schedule=None)}, "schedule of the saved run is one, and none here"),
    (
        {"task": toy(train=Examples(torch.randn(9, 4), torch.zeros(9, dtype=torch.int64)))},
        "samples in the training set of the saved run is 22, and 9 here",
    ),
    (
        {"task": toy(model=lambda: nn.Sequential(nn.Linear(4, 7), nn.BatchNorm1d(7)))},
        r"saved model has '0.weight' of shape \(6, 4\) .* task's model has '0.weight' of shape \(7",
    ),
    (
        {"task": toy(model=lambda: model().append(nn.Linear(2, 2)))},
        r"saved model has no '5.weight', and the task's model has '5.weight' of shape \(2, 2\)",
    ),
    ({"task": toy(model=lambda: model().double(), train=examples, test=None)}, "torch.float64"),
]


@pytest.mark.parametrize(("changes", "words"), OTHERS, ids=[words[:30] for _, words in OTHERS])
def test_resume_of_something_else(
    changes: dict[str, Any], words: str, nothing_runs: dt.Cluster, saved: Path
) -> None:
    asked = {"task": toy(), "strategy": "data-parallel", "steps": 9, "resume": saved, **changes}
    with pytest.raises(ValueError, match=words):
        dt.train(nothing_runs, **asked)


class Owning(DataParallel):
    """Ranks with something of their own."""

    name = "owning"

    def own_state(self) -> dict[str, Any]:
        return {"clock": 1.0}

    def restore(self, own: dict[str, Any]) -> None:
        assert own == {"clock": 1.0}


def test_what_is_a_ranks_own_needs_as_many_ranks(cluster_of: Any) -> None:
    run = dt.train(cluster_of(2), toy(), Owning(), steps=2)
    with pytest.raises(ValueError, match="made by 2 workers, this cluster has 4, and with owning"):
        dt.train(cluster_of(4), toy(), Owning(), steps=4, resume=run)
    assert dt.train(cluster_of(2), toy(), Owning(), steps=4, resume=run).state.step == 4


class Odd(DataParallel):
    """Something of its own that is no plain value."""

    name = "odd"

    def own_state(self) -> dict[str, Any]:
        return {"residual": {1, 2}}


def test_an_own_state_that_cannot_be_kept_is_an_error_in_words(cluster2: dt.Cluster) -> None:
    with pytest.raises(dt.errors.RankError, match=r"the strategy's own state\.residual is set"):
        dt.train(cluster2, toy(), Odd(), steps=2)


def test_another_optimizer_is_refused_in_words(cluster2: dt.Cluster, saved: Path) -> None:
    def half(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.NAdam(parameters[:2], lr=0.05)

    with pytest.raises(dt.errors.RankError, match="optimizer has the parameters"):
        dt.train(cluster2, toy(), steps=9, resume=saved, optimizer=half)


def test_files_that_hold_no_run(cluster2: dt.Cluster, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("no run")
    with pytest.raises(ValueError, match="is no file of a training run"):
        dt.train(cluster2, toy(), steps=3, resume=path)
    run = dt.train(cluster2, toy(), steps=1)
    run.state.save(path)
    with pytest.raises(ValueError, match="holds the state of a run and nothing else"):
        Run.load(path)
    assert dt.train(cluster2, toy(), steps=2, resume=path).state.step == 2
    assert dt.train(cluster2, toy(), steps=2, resume=RunState.load(path)).state.step == 2


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "3"])
def test_checkpoints_that_make_no_sense(every: Any) -> None:
    with pytest.raises(ValueError, match="checkpoint: every="):
        Checkpoint("a", every=every)
    with pytest.raises(TypeError, match="checkpoint: path is"):
        Checkpoint("")
