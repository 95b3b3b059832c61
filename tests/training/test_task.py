"""Tasks and examples: what is taken, what is refused."""

from __future__ import annotations

import pickle
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dtoolkit.training import Examples, Task
from dtoolkit.training.task import check_model, check_task
from tests.training import cases


def test_examples_take_rows() -> None:
    data = Examples(np.arange(12.0).reshape(4, 3), [1, 0, 1, 1])  # type: ignore[arg-type]
    assert len(data) == 4
    inputs, targets = data.take(torch.tensor([2, 0]))
    assert inputs.tolist() == [[6, 7, 8], [0, 1, 2]]
    assert targets.tolist() == [1, 1]
    inputs, targets = data.take(torch.empty(0, dtype=torch.int64))
    assert inputs.shape == (0, 3)
    for words, a, b in (
        ("4 rows and targets 3", torch.zeros(4), torch.zeros(3)),
        ("have no rows", torch.zeros(0, 2), torch.zeros(0)),
        ("inputs has no rows", torch.tensor(1.0), torch.zeros(1)),
    ):
        with pytest.raises(ValueError, match=words):
            Examples(a, b)


def test_task_of_what_is_at_hand() -> None:
    module = nn.Linear(3, 2)
    X, y = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    task = Task.of(module, (X, y), test=(X, y), batch=2)
    made = task.model()
    assert made is not module
    assert torch.equal(made.weight, module.weight)
    losses = task.loss(made, X, y)
    assert losses.shape == (5,)
    torch.testing.assert_close(losses.mean(), nn.functional.cross_entropy(made(X), y))
    squares = Task.of(module, (X, torch.zeros(5, 2)), "mse").loss(made, X, torch.zeros(5, 2))
    torch.testing.assert_close(squares, made(X).square().mean(1))
    assert isinstance(task.test, Examples)
    assert pickle.loads(pickle.dumps(task)).batch == 2
    with pytest.raises(ValueError, match="loss='hinge': wanted a callable or one of"):
        Task.of(module, (X, y), "hinge")


def test_any_object_with_the_attributes_will_do() -> None:
    base = cases.task()
    names = ("model", "train", "loss", "optimizer", "batch")
    own: Any = SimpleNamespace(**{name: getattr(base, name) for name in names})
    check_task(own)
    for words, change in (
        ("task.model is a module", {"model": nn.Linear(1, 1)}),
        ("task.optimizer is 0.1", {"optimizer": 0.1}),
        (r"task.metrics\['a'\] is 3", {"metrics": {"a": 3}}),
    ):
        with pytest.raises(TypeError, match=words):
            check_task(SimpleNamespace(**{**vars(own), **change}))
    for name in names:
        with pytest.raises(TypeError, match=f"has no attribute {name!r}"):
            check_task(SimpleNamespace(**{k: v for k, v in vars(own).items() if k != name}))
    del own.loss
    with pytest.raises(TypeError, match="has no attribute 'loss'"):
        check_task(own)


def test_named_losses_take_no_outputs_that_do_not_fit_the_targets() -> None:
    X = torch.randn(5, 3)
    one, two = nn.Linear(3, 1), nn.Linear(3, 2)
    squares = Task.of(one, (X, X[:, 0]), "mse").loss
    with pytest.raises(ValueError, match=r"outputs of shape \(5, 1\) for targets of shape \(5,\)"):
        squares(one, X, X[:, 0])
    assert squares(one, X, X[:, :1]).shape == (5,)
    classes = Task.of(two, (X, X[:, 0])).loss
    labels = torch.tensor([0, 1, 1, 0, 1])
    for model, targets, words in (
        (two, labels[:, None], r"outputs of shape \(5, 2\) for targets of shape \(5, 1\)"),
        (nn.Sequential(one, nn.Flatten(0)), labels, r"shape \(5,\) for targets of shape \(5,\)"),
        (two, torch.zeros(5, 3), r"\(5, 2\) for targets of shape \(5, 3\): wanted outputs"),
    ):
        with pytest.raises(ValueError, match=words):
            classes(model, X, targets)
    assert classes(two, X, torch.full((5, 2), 0.5)).shape == (5,)
    pixels = nn.Conv1d(1, 2, 1)
    assert classes(pixels, X[:, None], torch.zeros(5, 3, dtype=torch.int64)).shape == (5,)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_module_that_cannot_be_copied_is_made_by_a_function() -> None:
    X = torch.randn(5, 3), torch.zeros(5, dtype=torch.int64)

    def legacy() -> nn.Module:
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 2)))

    def parametrized() -> nn.Module:
        return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))

    for make, words in (
        (legacy, "Sequential. cannot be copied; give a function that makes it"),
        (parametrized, "model: 0 is parametrized .* give a function that makes it"),
    ):
        with pytest.raises(TypeError, match=words):
            Task.of(make(), X)
        task = Task.of(make, X)
        assert task.loss(task.model(), *X).shape == (5,)


def test_a_state_is_of_tensors_alone() -> None:
    class Extra(nn.Linear):
        extra: Any = MappingProxyType({"seen": 3})

        def get_extra_state(self) -> Any:
            return self.extra

    model = nn.Sequential(Extra(2, 2))
    with pytest.raises(TypeError, match=r"has '0\._extra_state', which is mappingproxy"):
        check_model(model)
    Extra.extra = torch.tensor(3)
    check_model(model)
