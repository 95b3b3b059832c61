"""The row-sparse Adam touches active rows alone, and is torch's Adam where all are active."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from dtoolkit.training.slide import FullLinear, OutputLinear, RowSparseAdam
from tests.training.slide.cases import CLASSES, FEATURES, batch, label_sets, layer, mask_of

RULE = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-6}


def test_it_is_torchs_adam_where_all_are_active():
    made, dense = (FullLinear(FEATURES, CLASSES, seed=1) for _ in range(2))
    optimizer = RowSparseAdam(made.parameters(), **RULE)
    plain = torch.optim.Adam(dense.parameters(), **RULE)
    for step in range(6):
        hidden, labels = batch(step)
        OutputLinear.loss(made, hidden, labels).mean().backward()  # by active sets of all
        dense.loss(hidden, labels).mean().backward()  # by dense products
        assert made.weight.grad is None
        assert dense.weight.grad is not None
        optimizer.step()
        plain.step()
        plain.zero_grad()
        torch.testing.assert_close(made.weight, dense.weight, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(made.bias, dense.bias, rtol=1e-4, atol=1e-5)
    ours, theirs = (one.state[one.param_groups[0]["params"][0]] for one in (optimizer, plain))
    for name in ("step", "exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(ours[name], theirs[name])


def test_rows_that_were_not_active_keep_weights_and_moments():
    made = layer(refresh=None)
    optimizer = RowSparseAdam(made.parameters(), **RULE)
    never = torch.ones(CLASSES, dtype=torch.bool)
    weight = made.weight.detach().clone().double()
    first, second = torch.zeros_like(weight), torch.zeros_like(weight)
    for step in range(1, 5):
        hidden, labels = batch(step)
        hidden, labels = hidden[:6], labels[:6]
        active = mask_of(made.active(hidden, labels)).any(0)
        made.loss(hidden, labels).mean().backward()
        gradient = made.weight.row_gradient.sparse()[0].to_dense().double()
        optimizer.step()
        never &= ~active
        # The rule by hand, for active rows; correction by the steps of all.
        first[active] = 0.8 * first[active] + 0.2 * gradient[active]
        second[active] = 0.95 * second[active] + 0.05 * gradient[active] ** 2
        down = (second / (1 - 0.95**step)).sqrt() + 1e-6
        weight[active] -= (0.03 * first / (1 - 0.8**step) / down)[active]
        torch.testing.assert_close(made.weight.detach().double(), weight, rtol=1e-4, atol=1e-6)
    assert 0 < never.sum() < CLASSES
    fresh, state = layer(), optimizer.state[made.weight]
    assert torch.equal(made.weight[never], fresh.weight[never])
    assert torch.equal(made.bias[never], fresh.bias[never])
    for name in ("exp_avg", "exp_avg_sq"):
        assert state[name][never].abs().max() == 0
        assert (state[name][~never].abs().amax(1) > 0).all()


def test_sparse_gradients_go_by_their_rows_and_dense_ones_as_ever():
    torch.manual_seed(0)
    bags = [nn.EmbeddingBag(50, 8, mode="sum", sparse=sparse) for sparse in (True, False)]
    bags[1].load_state_dict(bags[0].state_dict())
    line, plain = nn.Linear(8, 3), nn.Linear(8, 3)
    plain.load_state_dict(line.state_dict())
    ours = RowSparseAdam([*bags[0].parameters(), *line.parameters()], **RULE)
    theirs = torch.optim.Adam([*bags[1].parameters(), *plain.parameters()], **RULE)
    for step in range(4):
        rows = torch.arange(50).view(10, 5) if step else torch.tensor([[3, 3, 9, 11, 4]])
        for bag, layer_, optimizer in ((bags[0], line, ours), (bags[1], plain, theirs)):
            optimizer.zero_grad()
            (layer_(bag(rows)) ** 2).sum().backward()
            optimizer.step()
        if step == 0:
            torch.testing.assert_close(bags[0].weight, bags[1].weight)
    torch.testing.assert_close(bags[0].weight, bags[1].weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(line.weight, plain.weight)


def test_gradients_are_consumed_or_forgotten():
    made, (hidden, labels) = layer(bias=False), batch()
    optimizer = RowSparseAdam(made.parameters(), lr=0.1)
    made.loss(hidden, labels).mean().backward()
    optimizer.zero_grad()
    optimizer.step()
    assert torch.equal(made.weight, layer(bias=False).weight)
    assert int(made.updates) == 0
    made.loss(hidden, labels).mean().backward()
    optimizer.step()
    after = made.weight.detach().clone()
    optimizer.step()
    assert torch.equal(made.weight, after)
    assert int(made.updates) == 1
    assert made.bias.abs().max() == 0
    assert sum(map(len, label_sets(labels))) > 0


def test_it_goes_on_from_its_state():
    made, other = layer(), layer()
    optimizers = [RowSparseAdam(one.parameters(), lr=0.1) for one in (made, other)]

    def step(one, optimizer, seed):
        one.loss(*batch(seed)).mean().backward()
        optimizer.step()

    step(made, optimizers[0], 0)
    other.load_state_dict(made.state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for one, optimizer in zip((made, other), optimizers, strict=True):
        step(one, optimizer, 1)
    assert torch.equal(made.weight, other.weight)
    calls = []
    optimizers[0].step(lambda: calls.append(0) or 5.0)
    assert calls == [0]


@pytest.mark.parametrize("wrong", [{"lr": -1}, {"betas": (1.0, 0.9)}, {"eps": -1e-8}])
def test_refusals_name_what_is_wrong(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RowSparseAdam(layer().parameters(), **wrong)
