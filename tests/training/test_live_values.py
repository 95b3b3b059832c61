"""Live values of a masked tensor: taken out end to end, and spread again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dtoolkit.training.live_values import LiveValues


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_there_and_back(dtype: torch.dtype, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    tensor = torch.randn(4, 3, 2, 5).to(dtype).to(memory_format=layout)
    mask = torch.rand(4, 3, 2, 5) < 0.3
    live = LiveValues(mask)
    taken = live.take(tensor, out=torch.empty(len(live), dtype=dtype))
    assert torch.equal(taken, tensor[mask])
    wanted = torch.where(mask, tensor, 0)
    for over in (None, tensor.clone(memory_format=layout), torch.full_like(wanted, torch.nan)):
        assert torch.equal(live.spread(taken, over=over), wanted)


def test_nothing_to_leave_out() -> None:
    parameter = nn.Parameter(torch.zeros(2, 3))
    assert LiveValues.of(None, parameter) is None
    assert LiveValues.of(torch.ones(2, 3, dtype=torch.bool), parameter) is None
    with pytest.raises(ValueError, match=r"masks: one of shape \(3, 2\) for a parameter"):
        LiveValues.of(torch.zeros(3, 2, dtype=torch.bool), parameter)


def test_an_empty_layer() -> None:
    live = LiveValues(torch.zeros(2, 3, dtype=torch.bool))
    assert len(live) == 0
    assert not live.spread(live.take(torch.ones(2, 3), out=torch.empty(0))).any()
