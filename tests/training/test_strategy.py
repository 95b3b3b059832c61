"""What a strategy of one's own must say and give; what is missing is told in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import RankError
from dtoolkit.training import StepReport, Strategy
from dtoolkit.training.plain import plain
from dtoolkit.training.strategies import DataParallel
from tests.training.toys import toy


def steps(self: Any, replica: Any, step: int = 0) -> Any:
    """Makes no step."""
    return StepReport(0.0, 0, 0, 0.0, 0.0)


def test_a_class_says_what_it_is() -> None:
    whole: dict[str, Any] = {"configure": steps, "step": steps, "name": "own"}
    for changes, words in (
        ({"name": 3}, r"Own: the class attribute name is 3: wanted the strategy's name"),
        ({"name": ""}, "name is ''"),
        ({"promise": "all"}, "promise is 'all': wanted a Promise"),
        ({"batch_norm": "synced"}, "batch_norm is 'synced': wanted one of sync, local, shard"),
    ):
        with pytest.raises(TypeError, match=words):
            type("Own", (Strategy,), {**whole, **changes})
    with pytest.raises(TypeError, match="Own: the class attribute name is None"):
        type("Own", (Strategy,), {"configure": steps, "step": steps})
    own = type("Own", (Strategy,), whole)()
    assert own.promise.trajectory == "not said"
    shared = type("Shared", (Strategy,), {"configure": steps})  # what strategies have in common
    assert type("Own", (shared,), whole)().name == "own"


class Silent(DataParallel):
    """Its steps give something else."""

    name = "silent"

    def __init__(self, gives: Any, *, free: bool = False) -> None:
        super().__init__()
        self.gives, self.free = gives, free

    def step(self, replica: Any, step: int) -> Any:
        return self.gives


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (Silent(None), "silent: step gave None: wanted a StepReport"),
        (Silent(0.5), "silent: step gave float: wanted a StepReport"),
        (Silent({}, free=True), "silent: step gave dict: wanted a StepReport"),
    ],
    ids=["none", "number", "free"],
)
def test_a_step_gives_a_report(
    strategy: Strategy, words: str, cluster_of: Callable[[int], dt.Cluster]
) -> None:
    with pytest.raises((TypeError, RankError), match=words):
        dt.train(cluster_of(2), toy(), strategy, steps=2)


class Telling(DataParallel):
    """Tells what it is given."""

    name = "telling"

    def __init__(self, tells: Any) -> None:
        super().__init__()
        self.tells = tells

    def summary(self) -> dict[str, Any]:
        return {"told": self.tells}


def test_a_summary_is_plain(cluster_of: Callable[[int], dt.Cluster]) -> None:
    with pytest.raises((TypeError, RankError), match=r"the strategy's summary\.told is set"):
        dt.train(cluster_of(2), toy(), Telling({1}), steps=1)
    told = plain({"told": [np.float64(0.5), np.arange(2), np.str_("a")]}, "the summary")["told"]
    assert [type(one) for one in told] == [float, torch.Tensor, str]
