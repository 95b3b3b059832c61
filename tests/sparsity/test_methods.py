from __future__ import annotations

import pytest
import torch
from torch import nn

from dtoolkit.sparsity import SNIP, Constant, Cosine, Cubic, RandomGrowth, Sparsifier
from tests.sparsity.models import batch, small_network, train_step


class Line(nn.Module):
    """One weight matrix; the loss is a weighted sum, so that gradients are given by hand."""

    def __init__(self, weight: list[list[float]]) -> None:
        super().__init__()
        self.fc = nn.Linear(len(weight[0]), len(weight), bias=False)
        self.fc.weight.data = torch.tensor(weight)


def still(model: nn.Module) -> torch.optim.Optimizer:
    """An optimizer that moves nothing."""
    return torch.optim.SGD(model.parameters(), lr=0.0)


def with_mask(model: Line, mask: list[list[int]], **how) -> Sparsifier:
    """A sparsifier whose first mask is given."""
    share = sum(map(sum, mask)) / sum(map(len, mask))
    weight = model.fc.weight.detach().clone()
    sparsifier = Sparsifier(model, still(model), density=share, **how)
    state = sparsifier.state_dict()
    state["masks"] = {"fc.weight": torch.tensor(mask).bool()}
    sparsifier.load_state_dict(state)
    model.fc.weight.data = weight
    sparsifier.apply()
    return sparsifier


def test_magnitude_by_hand():
    model = Line([[0.5, -3.0, 1.0], [2.0, -0.1, 0.2]])
    sparsifier = Sparsifier(model, still(model), method="magnitude", density=0.5)
    assert sparsifier.masks["fc.weight"].int().tolist() == [[0, 1, 1], [1, 0, 0]]
    assert model.fc.weight.tolist() == [[0.0, -3.0, 1.0], [2.0, 0.0, 0.0]]


def test_gradual_magnitude_follows_the_schedule_and_never_revives():
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = Cubic(every=2, start=2, stop=12)
    sparsifier = Sparsifier(model, optimizer, method="magnitude", density=0.2, schedule=schedule)
    assert all(mask.all() for mask in sparsifier.masks.values())
    for step in range(1, 15):
        before = {name: mask.clone() for name, mask in sparsifier.masks.items()}
        train_step(model, optimizer, step)
        assert sparsifier.step() == (step in (4, 6, 8, 10, 12))
        density = schedule.density(step - step % 2, 0.2)
        for name, mask in sparsifier.masks.items():
            assert bool((mask <= before[name]).all())
            assert int(mask.sum()) == round(density * mask.numel())


def test_rigl_drops_the_smallest_and_grows_the_largest_gradient_of_the_masked_forward():
    model = Line([[4.0, 1.0, 9.0], [3.0, 9.0, 2.0]])
    sparsifier = with_mask(
        model, [[1, 1, 0], [1, 0, 1]], method="rigl", schedule=Constant(every=1, share=0.5)
    )
    assert model.fc.weight.tolist() == [[4.0, 1.0, 0.0], [3.0, 0.0, 2.0]]
    seen = torch.tensor([[1.0, -2.0, 5.0]])
    out = model.fc(seen)  # 4 - 2 = 2 and 3 + 10 = 13: nothing of the masked 9s
    assert out.tolist() == [[2.0, 13.0]]
    (out * torch.tensor([[1.0, 0.1]])).sum().backward()
    # Gradients [[1, -2, 5], [.1, -.2, .5]]. 1 and 2 go; of what is not kept, 5 and -2 come: the
    # weight 1 was dropped and comes back, as if it had stayed.
    assert sparsifier.step()
    assert sparsifier.masks["fc.weight"].int().tolist() == [[1, 1, 1], [1, 0, 0]]
    assert model.fc.weight.tolist() == [[4.0, 1.0, 0.0], [3.0, 0.0, 0.0]]


def test_set_drops_the_smallest_and_grows_at_random():
    torch.manual_seed(0)
    model = nn.Linear(30, 20)
    sparsifier = Sparsifier(
        model, still(model), method="set", density=0.25, schedule=Constant(every=1, share=0.4)
    )
    before, weight = sparsifier.masks["weight"].clone(), model.weight.detach().clone()
    sparsifier.step()
    after = sparsifier.masks["weight"]
    stay = weight[before].abs().sort().values[60:]  # 150 live, 60 go
    assert int(after.sum()) == 150
    assert bool(after[before & (weight.abs() >= stay[0])].all())
    grown = after & ~before
    assert 40 < int(grown.sum()) <= 60  # of 510 candidates 60 were just dropped
    assert not model.weight[grown].any()


def test_random_growth_climbs_to_the_asked_density():
    model = nn.Linear(20, 20)
    sparsifier = Sparsifier(
        model,
        still(model),
        method=RandomGrowth(initial=0.5),
        density=0.4,
        schedule=Cosine(every=1, stop=4, share=0.0),
    )
    dense = nn.Linear(4, 4)
    whole = Sparsifier(
        dense, still(dense), method=RandomGrowth(0.5), density=1.0, schedule=Constant(every=1)
    )
    whole.step()
    assert whole.masks["weight"].all()
    counts = [int(sparsifier.masks["weight"].sum())]
    for _ in range(5):
        sparsifier.step()
        counts.append(int(sparsifier.masks["weight"].sum()))
    assert counts == [80, 92, 120, 148, 160, 160]


def test_snip_ratio_by_hand():
    model = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[0].weight.grad = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    model[1].weight.grad = torch.tensor([[2.0, 2.0], [2.0, 0.0]])
    for layer in model:
        nn.init.ones_(layer.weight)
    sparsifier = Sparsifier(model, still(model), method="snip", density=1 / 3)
    assert {name: int(mask.sum()) for name, mask in sparsifier.masks.items()} == {
        "0.weight": 1,
        "1.weight": 3,
    }
    assert sparsifier.densities == {"0.weight": 1 / 8, "1.weight": 3 / 4}


def test_snip_takes_a_loss_and_the_whole_stays_as_asked():
    model = small_network()
    inputs, labels = batch()
    method = SNIP(loss=lambda: nn.functional.cross_entropy(model(inputs), labels))
    sparsifier = Sparsifier(model, still(model), method=method, density=0.2, distribution="erk+")
    counts = [int(mask.sum()) for mask in sparsifier.masks.values()]
    sizes = [mask.numel() for mask in sparsifier.masks.values()]
    assert abs(sum(counts) - 0.2 * sum(sizes)) <= len(counts)
    assert counts[-1] == sizes[-1]
    assert all(p.grad is None for p in model.parameters())


def test_snip_without_gradients_waits_for_the_first_step():
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = Sparsifier(model, optimizer, method="snip", density=0.2)
    assert all(mask.all() for mask in sparsifier.masks.values())
    train_step(model, optimizer, 0)
    assert sparsifier.step()
    live = sum(int(mask.sum()) for mask in sparsifier.masks.values())
    assert live == round(0.2 * sum(mask.numel() for mask in sparsifier.masks.values()))


def test_gradients_are_reduced_at_updates_only():
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []

    def reduce(gradient: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(gradient.shape))
        return gradient.mul_(2)

    sparsifier = Sparsifier(
        model,
        optimizer,
        method="rigl",
        density=0.2,
        schedule=Constant(every=3),
        reduce=reduce,
    )
    for step in range(1, 4):
        train_step(model, optimizer, step)
        own = model[0].weight.grad.clone()
        sparsifier.step()
        assert torch.equal(model[0].weight.grad, own)
        assert len(seen) == (5 if step == 3 else 0)
    assert seen == [tuple(mask.shape) for mask in sparsifier.masks.values()]


def test_workers_with_reduced_gradients_grow_alike():
    batches = [batch(1), batch(2)]

    def loss(model: nn.Module, place: int) -> torch.Tensor:
        inputs, labels = batches[place]
        return nn.functional.cross_entropy(model(inputs), labels)

    def masks(place: int, shared: bool) -> list[torch.Tensor]:
        model = small_network().eval()
        how = {"method": "rigl", "density": 0.2, "schedule": Constant(every=1)}
        sparsifier = Sparsifier(model, still(model), **how)
        weights = [model.get_parameter(name) for name in sparsifier.masks]
        (loss(model, 0) + loss(model, 1)).backward()
        both = iter([weight.grad.clone() for weight in weights])
        for weight in weights:
            weight.grad = None
        if shared:
            sparsifier.reduce = lambda own: next(both)
        if place or not shared:  # the first worker has no samples of its own
            loss(model, place).backward()
        sparsifier.step()
        return list(sparsifier.masks.values())

    assert all(map(torch.equal, masks(0, True), masks(1, True)))
    assert not all(map(torch.equal, masks(0, False), masks(1, False)))


def test_workers_with_the_same_weights_have_the_same_masks_without_a_message():
    def masks(method: str) -> list[torch.Tensor]:
        model = small_network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = Constant(every=2)
        sparsifier = Sparsifier(
            model, optimizer, method=method, density=0.2, schedule=schedule, seed=4
        )
        for step in range(5):
            train_step(model, optimizer, step)
            torch.rand(step + 1)  # another state of torch's generator changes nothing
            sparsifier.step()
        return list(sparsifier.masks.values())

    for method in ("static", "magnitude", "set"):
        torch.manual_seed(len(method))
        assert all(map(torch.equal, masks(method), masks(method)))


def test_missing_and_broken_gradients_are_named():
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = Sparsifier(
        model, optimizer, method="rigl", density=0.2, schedule=Constant(every=1)
    )
    with pytest.raises(RuntimeError, match=r"before\s+zero_grad"):
        sparsifier.step()
    train_step(model, optimizer, 0)
    model[3].weight.grad[0] = float("nan")
    with pytest.raises(ValueError, match=r"'3\.weight': NaN in its gradient"):
        sparsifier.step()
