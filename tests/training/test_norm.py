"""Batch norm over ranks, against torch's on the joint batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dtoolkit.training.norm import Ranks, over_ranks, share_by_share

KINDS = {
    "1d": (nn.BatchNorm1d, ()),
    "1d with length": (nn.BatchNorm1d, (4,)),
    "2d": (nn.BatchNorm2d, (3, 2)),
    "3d": (nn.BatchNorm3d, (2, 2, 2)),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"momentum": None},
    {"affine": False},
    {"track_running_stats": False},
    {"momentum": 0.3, "eps": 1e-3},
]


def inputs(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(7, 5, *shape, generator=generator, dtype=torch.float64).to(dtype) * 2 + 3


def run(model: nn.Module, X: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
    """Output, gradients and buffers after two passes."""
    for _ in range(2):
        x = X.clone().requires_grad_()
        y = model(x)
        model.zero_grad()
        (y * weights).sum().backward()
    grads = [x.grad, *(p.grad for p in model.parameters())]
    return [y.detach(), *grads, *(b.clone() for b in model.buffers())]


def on_ranks(ctx: Any, kind: str, options: dict[str, Any], cut: list[int]) -> list[torch.Tensor]:
    make, shape = KINDS[kind]
    X = inputs(shape, torch.float64)
    weights = torch.linspace(-1, 2, X.numel(), dtype=torch.float64).reshape(X.shape)
    ranks = Ranks(ctx.comm)
    model = over_ranks(make(5, **options).double(), ranks)
    assert isinstance(model, make)
    mine = torch.split(torch.arange(7), cut)[ctx.rank]
    ranks.void = not len(mine)
    return run(model, X[mine] if len(mine) else X[:1], weights[mine] if len(mine) else weights[:1])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_torch_on_the_joint_batch(cluster2: Any, kind: str, options: Any) -> None:
    make, shape = KINDS[kind]
    X = inputs(shape, torch.float64)
    weights = torch.linspace(-1, 2, X.numel(), dtype=torch.float64).reshape(X.shape)
    model = make(5, **options).double()
    want = run(model, X, weights)
    for cut in ([4, 3], [7, 0], [0, 7], [6, 1]):
        got = cluster2.run(on_ranks, kind, options, cut)
        full = [r for r, count in enumerate(cut) if count]
        for place in (0, 1):  # output, gradient of the input
            joined = torch.cat([got[r][place] for r in full])
            torch.testing.assert_close(joined, want[place], rtol=1e-12, atol=1e-12)
        parameters = len(list(model.parameters()))
        for place in range(2, 2 + parameters):
            both = got[0][place] + got[1][place]
            torch.testing.assert_close(both, want[place], rtol=1e-12, atol=1e-12)
        for place in range(2 + parameters, len(want)):
            assert torch.equal(got[0][place], got[1][place])
            torch.testing.assert_close(got[0][place], want[place], rtol=1e-12, atol=1e-12)


def names(ctx: Any) -> tuple[bool, list[str], list[str]]:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.SyncBatchNorm(3)).eval()
    x = torch.randn(2, 2, 3, 3)
    before, keys = model[1](model[0](x)), list(model.state_dict())
    other = over_ranks(model, Ranks(ctx.comm))
    same = torch.equal(other[1](other[0](x)), before)
    again = over_ranks(other, Ranks(ctx.comm))
    return same, keys, list(again.state_dict())


def test_names_and_evaluation_stay(cluster1: Any) -> None:
    ((same, before, after),) = cluster1.run(names)
    assert same
    assert before == after


def test_modules_parameters_and_hooks_stay_the_objects_they_are() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    held, seen = dict(model.named_parameters()), []
    model[0].weight.register_hook(lambda grad: seen.append("gradient"))
    model[1].register_forward_hook(lambda module, args, out: seen.append(module is model[1]))
    other = share_by_share(over_ranks(model, Ranks(None)))
    assert other is model
    assert all(held[name] is value for name, value in other.named_parameters())
    other(torch.randn(5, 4)).sum().backward()
    assert seen == [True, "gradient"]


class Odd(nn.BatchNorm1d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_a_forward_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="0 is a Odd, which has a forward of its own"):
        over_ranks(nn.Sequential(Odd(3)), Ranks(None))


def one_value(ctx: Any) -> None:
    ranks = Ranks(ctx.comm)
    ranks.void = ctx.rank > 0
    over_ranks(nn.BatchNorm1d(3), ranks)(torch.ones(1, 3))


def test_one_value_has_no_variance(cluster2: Any) -> None:
    with pytest.raises(Exception, match="one value a channel, on all ranks together"):
        cluster2.run(one_value)


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm, Odd])
def test_a_share_of_one_sample_uses_the_running_statistics(kind: Any) -> None:
    model, plain = share_by_share(kind(3)), kind(3)
    shape = (6, 3, 1, 1) if kind is nn.BatchNorm2d else (6, 3)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)) + 4
    assert torch.equal(model(x), plain(x))  # several samples: nothing is new
    before = {name: value.clone() for name, value in model.state_dict().items()}
    y = model(x[:1])
    assert torch.equal(y, plain.eval()(x[:1]))
    y.sum().backward()
    assert model.weight.grad is not None
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_one_sample_with_several_values_a_channel_is_a_batch() -> None:
    model, plain = share_by_share(nn.BatchNorm2d(3)), nn.BatchNorm2d(3)
    x = torch.randn(1, 3, 2, 2)
    assert torch.equal(model(x), plain(x))
    assert torch.equal(model.running_mean, plain.running_mean)


def test_one_sample_without_running_statistics_is_refused_in_words() -> None:
    model = share_by_share(nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(ValueError, match=r"share of one sample.*track_running_stats=False"):
        model(torch.ones(1, 3))
