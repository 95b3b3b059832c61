"""Batch norm over ranks, against torch's on the joint batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dtoolkit.training.norm import Ranks, over_ranks

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
    other = over_ranks(model, Ranks(ctx.comm))
    x = torch.randn(2, 2, 3, 3)
    same = torch.equal(other[1](other[0](x)), model[1](model[0](x)))
    again = over_ranks(other, Ranks(ctx.comm))
    return same, list(model.state_dict()), list(again.state_dict())


def test_names_and_evaluation_stay(cluster1: Any) -> None:
    ((same, before, after),) = cluster1.run(names)
    assert same
    assert before == after


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
