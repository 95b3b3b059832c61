from __future__ import annotations

import pytest
import torch
from torch import nn

from dtoolkit.sparsity import Constant, Sparsifier
from dtoolkit.sparsity.optimizer_state import state_tensors
from tests.sparsity.models import small_network, train_step

OTHERS = {
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.5),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.001, momentum=0.9, centered=True),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "AMSGrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.01, t0=2),
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "maximize": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9, dampening=0.1, maximize=True),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
}
FIRST = {("Adagrad", "sum"): 0.5, ("Rprop", "step_size"): 0.01}


@pytest.mark.parametrize("name", OTHERS)
def test_masked_state_is_zero_and_grown_state_is_as_at_first(name):
    model = small_network()
    optimizer = OTHERS[name](model.parameters())
    sparsifier = Sparsifier(
        model, optimizer, method="set", density=0.3, schedule=Constant(every=2, share=0.5)
    )
    seen = 0
    for step in range(6):
        before = {key: mask.clone() for key, mask in sparsifier.masks.items()}
        train_step(model, optimizer, step)
        sparsifier.step()
        for key, mask in sparsifier.masks.items():
            weight, grown = model.get_parameter(key), mask & ~before[key]
            assert not weight[~mask].any()
            assert not weight[grown].any()
            for kept, value in state_tensors(optimizer, weight):
                assert not value[~mask].any()
                assert bool((value[grown] == FIRST.get((name, kept), 0.0)).all()), kept
            seen += int(grown.sum())
    assert seen


def test_a_grown_weight_learns_again():
    for name in ("Rprop", "Adagrad"):
        model = nn.Linear(8, 8, bias=False)
        optimizer = OTHERS[name](model.parameters())
        sparsifier = Sparsifier(
            model, optimizer, method="set", density=0.5, schedule=Constant(every=2, share=0.5)
        )
        grown = torch.zeros(8, 8, dtype=torch.bool)
        for _ in range(3):
            before = sparsifier.masks["weight"].clone()
            optimizer.zero_grad()
            model(torch.eye(8)).sub(1).square().sum().backward()
            optimizer.step()
            sparsifier.step()
            if not grown.any():
                grown = sparsifier.masks["weight"] & ~before
        assert bool((model.weight[grown] != 0).all())


def test_an_optimizer_in_use_is_cleaned_when_the_sparsifier_is_made():
    model = small_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train_step(model, optimizer, 0)
    sparsifier = Sparsifier(model, optimizer, density=0.2)
    for key, mask in sparsifier.masks.items():
        for _, value in state_tensors(optimizer, model.get_parameter(key)):
            assert not value[~mask].any()
            assert value[mask].any()


def test_frozen_and_unstepped_weights_are_masked_too():
    model = small_network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[7].parameters(), lr=0.1, momentum=0.9)
    sparsifier = Sparsifier(model, optimizer, density=0.2, include=["0", "4", "7"])
    train_step(model, optimizer, 0)
    sparsifier.step()
    for key, mask in sparsifier.masks.items():
        assert int(model.get_parameter(key).count_nonzero()) == int(mask.sum())


def test_optimizers_that_cannot_serve_are_refused():
    model = small_network()
    with pytest.raises(ValueError, match="LBFGS keeps the history of all parameters"):
        Sparsifier(model, torch.optim.LBFGS(model.parameters()), density=0.5)
    with pytest.raises(ValueError, match="steps none of the model's sparse weights"):
        Sparsifier(model, torch.optim.SGD(small_network().parameters(), lr=0.1), density=0.5)
    with pytest.raises(TypeError, match=r"wanted a torch\.optim\.Optimizer"):
        Sparsifier(model, None, density=0.5)
