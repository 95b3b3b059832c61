"""PruneTrain around a loop, and batches that grow."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dtoolkit.sparsity import MemoryUse, PruneTrain, grown_batch, memory_use
from tests.sparsity.brought_models import bring, images


def network(width=12):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, 1, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 3),
    )


def train(pruner, model, optimizer, epochs):
    x, labels = images(batch=12), torch.arange(12) % 3
    for _ in range(epochs):
        for _ in range(6):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), labels)
            (loss + pruner.penalty(loss)).backward()
            optimizer.step()
        pruner.end_epoch()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def test_a_network_shrinks_while_it_learns():
    models = [network() for _ in range(2)]
    pruners = []
    for model in models:
        optimizer = sgd(model)
        pruner = PruneTrain(
            model, optimizer, images()[:2], every=4, ratio=0.9, threshold=2e-2, multiple=2
        )
        train(pruner, model, optimizer, 12)
        pruners.append(pruner)
    first, second = (pruner.reports for pruner in pruners)
    assert len(first) == 3
    assert pruners[0].epochs == 12
    assert models[0][2].out_channels < 12
    assert models[0][2].out_channels % 2 == models[0][0].out_channels % 2 == 0
    assert [r.plan for r in first] == [r.plan for r in second]  # workers cut alike
    for name, value in models[0].state_dict().items():
        assert torch.equal(value, models[1].state_dict()[name]), name
    assert "channels cut" in repr(pruners[0])


def test_batch_and_rates_grow_into_what_a_cut_frees():
    model = network(16)
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    pruner = PruneTrain(
        model, optimizer, images(), every=1, batch=64, batch_multiple=8, scheduler=scheduler
    )
    with torch.no_grad():
        model[0].weight[:8], model[2].weight[:, :8] = 0.0, 0.0
    before = memory_use(model, optimizer, images())
    report = pruner.end_epoch()
    after = memory_use(model, optimizer, images())
    assert report.plan.cut == 8
    assert pruner.batch > 64
    assert pruner.batch % 8 == 0
    assert after.total(pruner.batch) <= before.total(64) < after.total(pruner.batch + 8)
    rate = 0.05 * pruner.batch / 64
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)
    assert scheduler.base_lrs == [pytest.approx(rate)]
    batch = pruner.batch
    assert pruner.end_epoch().plan.cut == 0
    assert pruner.batch == batch


def test_memory_is_what_autograd_keeps():
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    optimizer = torch.optim.Adam(model.parameters())
    use = memory_use(model, optimizer, torch.randn(7, 10))
    numbers = 220 + 105
    # Saved: the input, what ReLU gave (once, for itself and for the layer after it).
    assert use == MemoryUse(2 * 4 * numbers, 4 * (10 + 20))
    model(torch.randn(1, 10)).sum().backward()
    optimizer.step()
    fixed = memory_use(model, optimizer, torch.randn(7, 10)).fixed
    assert fixed == 4 * 4 * numbers + 4 * 4  # two moments, and the counts of steps


def test_memory_is_measured_without_a_trace():
    model, x = bring("resnet18")
    before, state = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    assert memory_use(model, None, x).per_sample > 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)
    with pytest.raises(ValueError, match="one row a sample"):
        memory_use(model, None, torch.tensor(1.0))


def test_growth_by_numbers():
    use = MemoryUse(fixed=1000, per_sample=50.0)
    assert use.total(10) == 1500
    grown = grown_batch(10, use=use, budget=2549)
    assert (grown.batch, grown.factor) == (30, 3.0)
    assert grown_batch(10, use=use, budget=2549, multiple=8).batch == 24
    assert grown_batch(10, use=use, budget=2549, limit=20).batch == 20
    assert grown_batch(10, use=use, budget=900).batch == 10  # never smaller
    for change, match in (
        ({"batch": 0}, "batch=0"),
        ({"multiple": 0}, "multiple=0"),
        ({"use": MemoryUse(0, 0.0)}, "per_sample"),
    ):
        given = {"batch": 1, "use": use, "budget": 1.0} | change
        with pytest.raises(ValueError, match=match):
            grown_batch(given.pop("batch"), **given)


def test_a_run_goes_on_from_its_state():
    model = network()
    one, other = (PruneTrain(model, sgd(model), images(), every=3, batch=8) for _ in range(2))
    one.penalty(torch.tensor(1.0))
    one.end_epoch()
    other.load_state_dict(one.state_dict())
    assert (other.epochs, other.batch, other.penalty.strength) == (1, 8, one.penalty.strength)
    with pytest.raises(ValueError, match="every=0"):
        PruneTrain(model, sgd(model), images(), every=0)
    with pytest.raises(ValueError, match="batch=0"):
        PruneTrain(model, sgd(model), images(), batch=0)
