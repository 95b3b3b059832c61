"""One element becomes wrong: the one that was named or drawn, in every kind of tensor."""

import math

import pytest
import torch

from dtoolkit.faults import Corrupt, Injection
from tests.faults.fakes import FakeCluster

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


def corrupted(fault: Corrupt, tensors: dict, name: str = "gradients"):
    """What has changed, by name; and what the log says of it."""
    before = {key: tensor.detach().clone() for key, tensor in tensors.items()}
    cluster = FakeCluster(Injection([fault]))
    (site,) = cluster.launch(1)
    for step in range(3):
        site.steps(step, gradients=False)
        site.state(name, tensors)
    changed = {
        key: (tensor.detach() != before[key]).nonzero().tolist()
        for key, tensor in tensors.items()
        if not torch.equal(tensor.detach(), before[key])
    }
    return changed, "".join(one.detail for one in cluster.injection.fired)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["nan", "inf", "bitflip"])
def test_the_element_that_was_named(kind, dtype):
    tensors = {"a": torch.ones(2, 3, dtype=dtype), "b": torch.ones(4, dtype=dtype)}
    changed, detail = corrupted(Corrupt(0, at_step=1, kind=kind, layer="a", element=4), tensors)
    assert changed == {"a": [[1, 1]]}
    value = tensors["a"][1, 1]
    assert {"nan": torch.isnan, "inf": torch.isinf}.get(kind, lambda one: one != 1)(value)
    assert detail.startswith("a[1, 1]: 1")


@pytest.mark.parametrize("what", ["gradients", "parameters", "optimizer"])
def test_the_state_that_was_named_at_its_step(what):
    for name in ("gradients", "parameters", "optimizer"):
        changed, _ = corrupted(Corrupt(0, at_step=2, what=what), {"a": torch.ones(3)}, name)
        assert bool(changed) == (name == what)
    assert corrupted(Corrupt(0, at_step=3, what=what), {"a": torch.ones(3)}, what)[0] == {}


@pytest.mark.parametrize("bit", [0, 22, 23, 31])
def test_the_bit_that_was_named(bit):
    tensors = {"a": torch.full((1,), 1.5)}
    corrupted(Corrupt(0, at_step=0, kind="bitflip", bit=bit), tensors)
    was = torch.full((1,), 1.5).view(torch.int32).item() & 0xFFFFFFFF
    assert (tensors["a"].view(torch.int32).item() & 0xFFFFFFFF) ^ was == 1 << bit


def test_what_is_drawn_depends_on_seed_step_and_rank_and_reaches_all():
    tensors = {"small": torch.zeros(2), "large": torch.zeros(3, 5), "empty": torch.zeros(0)}
    hit = set()
    for seed in range(60):
        changed, _ = corrupted(Corrupt(0, at_step=1, seed=seed), dict(tensors))
        ((name, (place,)),) = changed.items()
        hit.add((name, *place))
        tensors = {name: torch.zeros_like(one) for name, one in tensors.items()}
    assert len(hit) > 12
    assert {name for name, *_ in hit} == {"small", "large"}
    draws = {Corrupt(rank, at_step=step)._drawn() for rank in range(3) for step in range(3)}
    assert len(draws) == 9
    assert Corrupt(1, at_step=2, seed=3)._drawn() == (2332001744, 3443458842, 494510642)


def test_real_tensors_are_changed_in_place():
    layer = torch.nn.Linear(4, 3)
    odd = torch.arange(12.0).reshape(3, 4).t()
    tensors = {**dict(layer.named_parameters()), "odd": odd, "scalar": torch.tensor(2.0)}
    for name in tensors:
        changed, _ = corrupted(Corrupt(0, at_step=1, layer=name), tensors)
        assert name in changed  # what was NaN before is unlike itself
    assert torch.isnan(layer.weight).sum() == torch.isnan(layer.bias).sum() == 1
    assert math.isnan(tensors["scalar"])
    assert layer.weight.requires_grad
    assert layer.weight.grad_fn is None


def test_numbers_that_are_no_floats():
    tensors = {"count": torch.arange(4), "flag": torch.ones(3, dtype=torch.bool)}
    changed, _ = corrupted(Corrupt(0, at_step=0, kind="bitflip"), tensors)
    assert list(changed) == ["count"]
    with pytest.raises(ValueError, match="no gradients are there that nan can be put in"):
        corrupted(Corrupt(0, at_step=0), tensors)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"layer": "c"}, "layer='c' is not among the gradients that nan can be put in: a, b"),
        ({"layer": "a", "element": 3}, "element=3 is not in a, which has 3"),
        ({"layer": "b", "kind": "bitflip", "bit": 16}, "bit=16 is not in torch.float16"),
    ],
)
def test_what_is_not_there(arguments, words):
    tensors = {"a": torch.ones(3), "b": torch.ones(2, dtype=torch.float16)}
    with pytest.raises(ValueError, match=words):
        corrupted(Corrupt(0, at_step=1, **arguments), tensors)
