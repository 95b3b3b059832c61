"""Widths that stay whole: named, with the reason; and what is followed although it looks odd."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional

from dtoolkit.sparsity import plan_cuts, reconfigure, zero_cuts
from tests.sparsity.brought_models import Small, bring, images


def reason(model, x, layer):
    plan = plan_cuts(model, x, keep=0.5)
    found = [width.reason for width in plan.whole if f"{layer}weight" in width.layers]
    return "; ".join(found)


def test_widths_are_named_with_their_reason():
    assert "layer norm" in reason(*bring("encoder"), "layers.0.down.")
    assert "group norm" in reason(*bring("group norm"), "0.")
    held = "MultiheadAttention holds its widths (and heads) fixed"
    assert held in reason(*bring("torch encoder"), "encoder.layers.0.self_attn.in_proj_")
    assert "kernel of attention" in reason(*bring("fixed encoder"), "layers.0.attention.all.")


class Written(nn.Module):
    """Its code has a width written down."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = torch.relu(self.one(x)) / self.one.weight.shape[0]
        return self.three(torch.relu(self.two(x)).view(-1, 8))


def test_what_the_code_has_written_down_stays_whole():
    torch.manual_seed(0)
    model, x = Written(), torch.randn(4, 3)
    assert "computes with the width" in reason(model, x, "one.")
    assert "the model's code fixes it" in reason(model, x, "three.")
    report = reconfigure(model, None, x, keep=0.5)
    assert not report.changed
    assert "whole: " in str(report)


class Auxiliary(Small):
    """In training a second head reads what the first convolution makes."""

    def __init__(self):
        super().__init__()
        self.head, self.never = nn.Conv2d(4, 5, 1), nn.Linear(2, 2)

    def forward(self, x):
        first = torch.relu(self.norm1(self.conv1(x)))
        scores = self.fc(torch.relu(self.norm2(self.conv2(first))).mean((2, 3)))
        return (scores, self.head(first)) if self.training else scores


def test_what_is_used_in_training_alone_is_cut_as_well():
    model = Auxiliary()
    report = reconfigure(model, None, images(), channels={"conv1": [0, 1]})
    assert model.head.weight.shape == (5, 2, 1, 1)
    assert report.plan.untraced == ("never.weight", "never.bias")
    assert "not used by the example: never.weight" in str(report)
    model.train()(images())


class Untraceable(Small):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


def test_what_cannot_be_traced_stays_as_it_is():
    model = Untraceable()
    before = copy.deepcopy(model.state_dict())
    report = reconfigure(model, None, images(), keep=0.5)
    assert "torch.export cannot follow" in report.plan.failure
    assert "not traced" in str(report)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Recurrent(nn.Module):
    """A convolution into a recurrent layer, and a feature that is sorted."""

    def __init__(self):
        super().__init__()
        self.conv, self.lstm = nn.Conv1d(3, 6, 3), nn.LSTM(6, 8, batch_first=True)
        self.sorted, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        x, _ = self.lstm(torch.relu(self.conv(x)).transpose(1, 2))
        return self.last(self.sorted(x[:, -1]).sort(dim=-1).values)


def test_operations_without_a_rule_keep_what_they_meet():
    plan = plan_cuts(Recurrent(), torch.randn(2, 3, 9), keep=0.5)
    assert not plan.cut
    assert not plan.failure


class Padded(nn.Module):
    """A shortcut that pads channels, as in the ResNets for CIFAR, and a gate."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.gate, self.last = nn.Conv2d(12, 10, 1), nn.Conv2d(5, 2, 1)

    def forward(self, x):
        x = torch.relu(self.one(x))
        x = torch.relu(self.two(x)) + functional.pad(x, (0, 0, 0, 0, 2, 2))
        return self.last(functional.glu(self.gate(x), 1))


def test_padded_channels_and_gates():
    torch.manual_seed(0)
    model = Padded().eval()
    zeroed = copy.deepcopy(model)
    report = reconfigure(model, None, images(), keep=0.5)
    zero_cuts(zeroed, None, report.plan)
    torch.testing.assert_close(model(images()), zeroed(images()))
    assert model.two.weight.shape == (8, 4, 3, 3)  # the four that padding has made stay
    assert model.gate.weight.shape == (4, 8, 1, 1)


class Summed(nn.Module):
    """Attention in Einstein's notation, and weights that are parameters of the module itself."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 16) for _ in range(3))
        self.w = nn.Parameter(torch.randn(16, 6))
        self.b, self.alpha = nn.Parameter(torch.randn(6)), nn.Parameter(torch.ones(1))
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (4, -1)) for layer in (self.q, self.k, self.v))
        seen = (torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.5).softmax(-1)
        x = torch.einsum("bhqk,bkhd->bqhd", seen, v).flatten(2)
        return self.last(torch.relu(self.alpha * (x @ self.w) + self.b))


class Halves(nn.Module):
    """Channels divided, half of them worked on, put together and shuffled, as in ShuffleNet v2."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 16, 3, 1, 1), nn.Linear(16, 4)
        self.one, self.two = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        left, right = torch.relu(self.stem(x)).chunk(2, 1)
        x = torch.cat([left, torch.relu(self.two(torch.relu(self.one(right))))], 1)
        batch, width, height, breadth = x.shape
        x = x.view(batch, 2, width // 2, height, breadth).transpose(1, 2)
        return self.head(x.reshape(batch, width, height, breadth).mean((2, 3)))


def test_sums_over_letters_and_halves_are_followed():
    for make, x in (
        (Summed, torch.randn(2, 5, 8)),
        (Halves, images()),
    ):
        torch.manual_seed(0)
        model = make().eval()
        zeroed = copy.deepcopy(model)
        report = reconfigure(model, None, x, keep=0.5)
        zero_cuts(zeroed, None, report.plan)
        torch.testing.assert_close(model(x), zeroed(x))
        assert report.plan.cut == report.plan.width / 2
        assert not report.plan.whole


class Fused(nn.Module):
    """One layer for queries, keys and values, told apart by position."""

    def __init__(self):
        super().__init__()
        self.all, self.out = nn.Linear(8, 24), nn.Linear(8, 2)

    def forward(self, x):
        q, k, v = self.all(x).reshape(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        seen = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.out(seen.transpose(1, 2).reshape(x.shape))


def test_what_no_other_layer_was_seen_to_read_is_named():
    assert "taken out by position" in reason(Fused(), torch.randn(2, 5, 8), "all.")
