"""Arguments that are no numbers, or no positions, are refused by name."""

import numpy as np
import pytest
import torch
from torch import nn

from dtoolkit.sparsity.amounts import check_number, check_whole
from dtoolkit.sparsity.channels.planning import plan_cuts


def test_numbers_of_all_kinds_are_taken():
    for value in (1, 0.5, np.float32(0.5), np.int64(2)):
        check_number("keep", value)
    for value in (3, np.int64(3), torch.tensor(3)):
        assert check_whole("multiple", value) == 3


@pytest.mark.parametrize("value", [True, np.bool_(True), torch.tensor(True), "1", None, 2.5])
def test_what_is_no_integer(value):
    with pytest.raises(TypeError, match=r"multiple=.*: wanted an integer"):
        check_whole("multiple", value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"threshold": "a"}, "threshold='a': wanted a number"),
        ({"threshold": None}, "threshold=None: wanted a number"),
        ({"keep": "a"}, "keep='a': wanted a number"),
        ({"multiple": 2.5}, "multiple=2.5: wanted an integer"),
        ({"channels": "a"}, "channels='a': wanted a mapping"),
        ({"channels": {"0": 3}}, r"channels\['0'\]=3: wanted positions"),
        ({"channels": {"0": [0.5]}}, r"channels\['0'\]=0.5: wanted an integer"),
        ({"channels": {"0": np.array([True, False])}}, r"channels\['0'\]=.*: wanted an integer"),
        ({"verify": "x"}, "verify='x': wanted True or False"),
    ],
)
def test_arguments_of_a_plan_of_cuts(arguments, words):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with pytest.raises(TypeError, match=words):
        plan_cuts(model, torch.ones(3, 4), **arguments)


def test_positions_may_come_once():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    for positions in (iter([1, 4]), torch.tensor([1, 4]), range(1, 5, 3)):
        plan = plan_cuts(model, torch.ones(3, 4), channels={"0": positions})
        assert plan.groups[0].cut == (1, 4)
