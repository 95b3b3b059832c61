"""Models that people bring, cut to half: the same output, and the same next step of training."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dtoolkit.sparsity import apply_cuts, plan_cuts, reconfigure, zero_cuts
from dtoolkit.sparsity.channels.choosing import signatures
from dtoolkit.sparsity.channels.dependencies import find_dependencies
from tests.sparsity.brought_models import BROUGHT, bring

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1, amsgrad=True),
}
OTHERS = {
    "Adam fused": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=1e-3, foreach=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, initial_accumulator_value=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=1e-3),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=1e-3, t0=1),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
}
# Widths that can be halved, per model: what a newcomer sees in the plan.
SHARES = {
    **dict.fromkeys(["vgg", "resnet18", "resnet50", "resnext", "mobilenet", "densenet"], 0.5),
    **dict.fromkeys(["unet", "encoder", "tied", "autoencoder", "group norm", "torch encoder"], 0.5),
    "fixed encoder": 0.6,
    "shuffled": 0.6,
}


def trained(name, make, seed=0):
    """A model in double precision after two steps, so that its optimizer has a history."""
    model, x = bring(name, seed)
    model, x = model.double(), x.double() if x.is_floating_point() else x
    for module in model.modules():
        if isinstance(module, nn.Dropout):  # what is dropped is another thing in another shape
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    optimizer = make(model.parameters())
    for _ in range(2):
        step(model, optimizer, x)
    return model, optimizer, x


def step(model, optimizer, x):
    model.train()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def output(model, x):
    model.eval()
    with torch.no_grad():
        return model(x)


def twin(model, optimizer):
    """A copy of both, still belonging together."""
    return copy.deepcopy((model, optimizer))


def live(model, optimizer, plan):
    """Parameters and what is kept of them, without what a plan cuts."""
    other, state = twin(model, optimizer)
    apply_cuts(other, state, plan)
    return held(other, state)


def held(model, optimizer):
    found = {name: value.detach() for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            if isinstance(value, torch.Tensor):
                found[f"{name}.{key}"] = value
    return found


def check(model, optimizer, x, plan):
    """Cut one copy, zero another: outputs are equal, and so is what the next step makes of both."""
    zeroed, zeroed_optimizer = twin(model, optimizer)
    zero_cuts(zeroed, zeroed_optimizer, plan)
    groups = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    apply_cuts(model, optimizer, plan)
    assert [[id(p) for p in group["params"]] for group in optimizer.param_groups] == groups
    torch.testing.assert_close(output(model, x), output(zeroed, x), rtol=1e-9, atol=1e-11)
    step(model, optimizer, x)
    step(zeroed, zeroed_optimizer, x)
    expected, found = live(zeroed, zeroed_optimizer, plan), held(model, optimizer)
    assert expected.keys() == found.keys()
    for key, value in found.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-6, atol=1e-9, msg=key)


@pytest.mark.parametrize("name", BROUGHT)
def test_half_of_the_channels(name):
    kinds = OPTIMIZERS if name in ("vgg", "encoder", "tied") else ["SGD"]
    plan = None
    for kind in kinds:
        model, optimizer, x = trained(name, OPTIMIZERS[kind])
        before = sum(p.numel() for p in model.parameters())
        plan = plan or plan_cuts(model, x, keep=0.5)
        assert plan.width - plan.cut <= SHARES[name] * plan.width, plan.table().to_string()
        assert not plan.untraced
        check(model, optimizer, x, plan)
        assert sum(p.numel() for p in model.parameters()) < before


@pytest.fixture(scope="module")
def halved():
    """A plan for the autoencoder, whatever its optimizer."""
    model, x = bring("autoencoder")
    return plan_cuts(model, x, keep=0.5)


@pytest.mark.parametrize("kind", OTHERS)
def test_every_optimizer_keeps_its_history(kind, halved):
    model, optimizer, x = trained("autoencoder", OTHERS[kind])
    check(model, optimizer, x, halved)


@pytest.mark.parametrize("name", ["resnext", "densenet", "encoder", "shuffled", "unet", "tied"])
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_any_choice_of_channels(name, data):
    model, optimizer, x = trained(name, OPTIMIZERS["SGD"])
    found = find_dependencies(model, x)
    channels = {}
    for places, members in signatures(found).items():
        layer, dim = places[0]
        ids = found.dims[layer][dim].ravel()
        if (layer, dim) in found.makers and found.cuttable[members].all():
            chosen = data.draw(st.sets(st.integers(0, len(ids) - 1)), label=layer)
            if not any(
                isinstance(m, nn.ConvTranspose2d | nn.Embedding) for m in owners(model, layer)
            ):
                channels[layer] = sorted(chosen)
    plan = plan_cuts(model, x, channels=channels)
    asked = plan_cuts(model, x, channels=channels)
    assert plan == asked  # the same on every worker
    check(model, optimizer, x, plan)


def owners(model, weight):
    return [model.get_submodule(weight.rpartition(".")[0])]


@pytest.mark.parametrize("name", ["resnet18", "torch encoder", "densenet"])
def test_a_second_cut_and_one_in_single_precision(name):
    model, x = bring(name)
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    for keep in (0.7, 0.7):
        step(model, optimizer, x)
        zeroed = copy.deepcopy(model)
        report = reconfigure(model, optimizer, x, keep=keep)
        zero_cuts(zeroed, None, report.plan)
        torch.testing.assert_close(output(model, x), output(zeroed, x), rtol=1e-4, atol=1e-5)
    step(model, optimizer, x)
