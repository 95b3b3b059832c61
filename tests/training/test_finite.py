"""What is not finite never becomes part of a model that is saved: it is named instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.training.finite import check_parameters, penalty_gradients
from tests.training import cases
from tests.training.test_replica import replica
from tests.training.toys import toy


def from_zero() -> nn.Module:
    model = nn.Linear(4, 2)
    nn.init.zeros_(model.bias)
    return model


def norms(model: nn.Module) -> torch.Tensor:
    """Group lasso without care: its gradient at zero is 0 / 0."""
    return 0.1 * sum(value.square().sum().sqrt() for value in model.parameters())


@pytest.mark.parametrize(
    ("workers", "strategy"),
    [(1, "data-parallel"), (2, "data-parallel"), (2, "parameter-server"), (2, "gossip")],
)
def test_a_penalty_whose_gradient_is_not_finite_is_named(
    workers: int, strategy: str, cluster_of: Callable[[int], dt.Cluster]
) -> None:
    task = toy(model=from_zero, penalty=norms)
    with pytest.raises(FloatingPointError, match="penalty's gradient of bias is not finite on ran"):
        dt.train(cluster_of(workers), task, strategy, steps=1)


def test_a_penalty_is_one_finite_value_of_what_is_learned() -> None:
    one = replica(cases.task("plain"))
    name, value = one.parameters[0]
    wanted: list[tuple[Any, type[Exception], str]] = [
        (0.5, TypeError, "task.penalty gave float: wanted a tensor of one value"),
        (value.abs(), ValueError, r"task.penalty gave a tensor of shape .* wanted one value"),
        (value.detach().sum(), ValueError, "depends on no learned parameter"),
        (value.sum() / 0, FloatingPointError, "the penalty is .*(nan|inf) on rank 0 at step 4"),
        ((value * 0).sum().sqrt(), FloatingPointError, f"gradient of {name} .* rank 0 at step 4"),
    ]
    for penalty, kind, words in wanted:
        with pytest.raises(kind, match=words):
            penalty_gradients(one, penalty, 4)
    grads = penalty_gradients(one, 3 * value.sum(), None)
    assert grads[0] is not None
    assert bool((grads[0] == 3).all())
    assert all(grad is None for grad in grads[1:])


def test_parameters_of_a_model_are_looked_at_and_masks_are_not() -> None:
    one = replica(cases.task("plain"))
    model = {name: value.detach().clone() for name, value in one.parameters}
    model["mask"] = torch.tensor([0.0, float("-inf")])
    check_parameters(one, model, 3)
    name = list(model)[1]
    model[name].view(-1)[-1] = float("nan")
    with pytest.raises(FloatingPointError, match=f"{name} is not finite after 3 steps"):
        check_parameters(one, model, 3)


@pytest.mark.parametrize("strategy", ["data-parallel", "local-sgd", "parameter-server"])
def test_a_run_never_ends_with_what_is_not_finite(
    strategy: str, cluster_of: Callable[[int], dt.Cluster]
) -> None:
    far = partial(torch.optim.SGD, lr=float("inf"))
    with pytest.raises(FloatingPointError, match=r"weight is not finite after 1 steps"):
        dt.train(cluster_of(2), toy(model=from_zero), strategy, steps=1, optimizer=far)
