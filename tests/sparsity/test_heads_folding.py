from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from dtoolkit.sparsity import HeadParts, Sparsifier, fold_heads, masks_of
from dtoolkit.sparsity.heads_attention import FewerHeads
from dtoolkit.sparsity.heads_parts import find_attention

WIDTH, HEADS, HEAD = 24, 6, 4


class Plain(nn.Module):
    """Attention as people write it."""

    def __init__(self, bias=True):
        super().__init__()
        self.num_heads, self.head_dim = HEADS, HEAD
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=bias))

    def forward(self, inputs):
        split = (self.num_heads, self.head_dim)
        q, k, v = (
            layer(inputs).unflatten(-1, split).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = functional.scaled_dot_product_attention(q, k, v)
        return self.out_proj(out.transpose(1, 2).flatten(2))


class Fused(nn.Module):
    """One layer for all three, under names of its own."""

    def __init__(self):
        super().__init__()
        self.count, self.size = HEADS, HEAD
        self.all, self.back = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs):
        q, k, v = self.all(inputs).unflatten(-1, (3, self.count, self.size)).unbind(-3)
        q, k, v = (part.transpose(-2, -3) for part in (q, k, v))
        out = functional.scaled_dot_product_attention(q, k, v)
        return self.back(out.transpose(-2, -3).flatten(-2))


class Stubborn(Plain):
    """Its heads' width follows from their number."""

    def forward(self, inputs):
        self.head_dim = WIDTH // self.num_heads
        return super().forward(inputs)


PARTS = {Fused: HeadParts("all", "all", "all", "back", "count")}


def torch_attention(**how):
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **how)


KINDS = {
    "torch": torch_attention,
    "torch, keys of their own": lambda: torch_attention(kdim=WIDTH, vdim=20),
    "torch, no bias": lambda: torch_attention(bias=False),
    "plain": Plain,
    "plain, no bias": lambda: Plain(bias=False),
    "fused": Fused,
}


def made(kind):
    """A module in float64, whose biases are not 0."""
    torch.manual_seed(0)
    module = KINDS[kind]().double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def copy_head(module, source, target):
    """Make two heads identical, but for the biases of keys and values."""
    (attention,) = find_attention(module, PARTS)
    with torch.no_grad():
        for where in attention.inputs:
            rows = attention.part(where)
            rows[target * HEAD : (target + 1) * HEAD] = rows[source * HEAD : (source + 1) * HEAD]
        query = attention.biases[0]
        if query is not None:
            rows = attention.part(query)
            rows[target * HEAD : (target + 1) * HEAD] = rows[source * HEAD : (source + 1) * HEAD]


def call(module, inputs):
    if not isinstance(module, nn.MultiheadAttention):
        return module(inputs)
    value = inputs[..., : module.vdim]
    return module(inputs, inputs, value, need_weights=False)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_identical_heads_fold_without_a_trace(kind):
    module = made(kind)
    for source, target in ((0, 3), (0, 5), (1, 2)):
        copy_head(module, source, target)
    inputs = torch.randn(2, 7, WIDTH, dtype=torch.float64)
    wanted = call(module, inputs)
    before = sum(p.numel() for p in module.parameters())
    report = fold_heads(module, theta=0.0, parts=PARTS, example_inputs=None)
    assert report.targets[""] == (5, 2, 2, 5, 4, 5)
    assert report.table()["folded"].tolist() == ["0 -> 5, 1 -> 2, 3 -> 5"]
    torch.testing.assert_close(call(module, inputs), wanted)
    (attention,) = find_attention(module, PARTS)
    assert attention.heads == 3
    assert attention.output.weight.shape == (WIDTH, 3 * HEAD)
    assert [len(attention.part(where)) for where in attention.inputs] == [3 * HEAD] * 3
    smaller = 4 * WIDTH if kind != "torch, keys of their own" else 3 * WIDTH + 20
    assert before - sum(p.numel() for p in module.parameters()) >= 3 * HEAD * smaller
    # What is folded again stands alone.
    assert fold_heads(module, theta=0.0, parts=PARTS).removed == 0


def test_heads_are_folded_twice():
    module = made("torch")
    copy_head(module, 0, 1)
    fold_heads(module, theta=0.0)
    inputs = torch.randn(2, 7, WIDTH, dtype=torch.float64)
    copy_head(module, 0, 2)
    wanted = call(module, inputs)
    fold_heads(module, theta=0.0)
    assert module.kept_heads == (2, 3, 4, 5)
    assert module.all_heads == 6
    torch.testing.assert_close(call(module, inputs), wanted)
    assert "heads 2, 3, 4, 5 of 6" in repr(module)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("weights", [True, False])
def test_every_way_to_call_torch_attention(batch_first, weights):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first).double()
    copy_head(module, 0, 4)
    fewer = copy.deepcopy(module)
    fold_heads(fewer, theta=0.0)
    assert type(fewer) is FewerHeads
    first = (2, 5) if batch_first else (5, 2)
    query = torch.randn(*first, WIDTH, dtype=torch.float64)
    keys = torch.randn(*((2, 7) if batch_first else (7, 2)), WIDTH, dtype=torch.float64)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    mask = torch.rand(5, 7) < 0.3
    mask[:, 0] = False
    by_head = torch.randn(2 * HEADS, 5, 7, dtype=torch.float64)
    by_head.view(2, HEADS, 5, 7)[:, 0] = by_head.view(2, HEADS, 5, 7)[:, 4]
    for how in (
        {},
        {"key_padding_mask": padding},
        {"attn_mask": mask},
        {"attn_mask": mask, "key_padding_mask": padding},
        {"attn_mask": torch.randn(5, 7, dtype=torch.float64)},
        {"attn_mask": by_head},
    ):
        found = fewer(query, keys, keys, need_weights=weights, **how)
        wanted = module(query, keys, keys, need_weights=weights, **how)
        torch.testing.assert_close(found[0], wanted[0])
        assert (found[1] is None) == (wanted[1] is None)
        if weights:
            each = module(query, keys, keys, average_attn_weights=False, **how)[1]
            torch.testing.assert_close(found[1], each[:, 1:].mean(1))
            one = fewer(query, keys, keys, average_attn_weights=False, **how)[1]
            torch.testing.assert_close(one, each[:, 1:])
    alone = torch.randn(5, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(fewer(alone, alone, alone)[0], module(alone, alone, alone)[0])
    with pytest.raises(ValueError, match="attn_mask too"):
        fewer(query, keys, keys, is_causal=True)
    with pytest.raises(ValueError, match="wanted"):
        fewer(query, keys, keys, attn_mask=torch.zeros(3, 5, 7))


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


def twin_heads(model):
    for layer in model.layers:
        copy_head(layer.self_attn, 1, 4)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_transformer_runs_and_trains_on_with_fewer_heads():
    model = encoder()
    twin_heads(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    inputs = torch.randn(2, 5, WIDTH)
    model(inputs).square().mean().backward()
    optimizer.step()
    moments = optimizer.state[model.layers[0].self_attn.in_proj_weight]["exp_avg"].clone()
    twin_heads(model)
    model.eval()
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[:, 4] = True
    with torch.no_grad():
        wanted = [model(inputs), model(inputs, src_key_padding_mask=padding)[:, :4]]
    report = fold_heads(model, optimizer, theta=0.0, example_inputs=inputs)
    assert report.removed == 2
    assert "2 of 12 heads removed" in repr(report)
    assert "2 of 12 removed" in report._repr_html_()
    with torch.no_grad():
        found = [model(inputs), model(inputs, src_key_padding_mask=padding)[:, :4]]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    weight = model.layers[0].self_attn.in_proj_weight
    kept = torch.ones(3, HEADS, HEAD, dtype=torch.bool)
    kept[:, 1] = False
    assert torch.equal(optimizer.state[weight]["exp_avg"], moments[kept.view(-1)])
    model.train()
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(made(inputs), model(inputs))
    again = copy.deepcopy(model)
    again.load_state_dict(model.state_dict())


def test_masks_are_cut_and_joined():
    model = made("torch").float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = Sparsifier(model, optimizer, density=0.5, seed=1)
    copy_head(model, 0, 3)
    rows = torch.cat([torch.arange(3 * 24).view(3, 6, 4)[part, 0] for part in range(3)])
    with torch.no_grad():
        model.in_proj_weight_mask[rows + 12] = model.in_proj_weight_mask[rows]
    joined = model.out_proj.weight_mask[:, :4] | model.out_proj.weight_mask[:, 12:16]
    fold_heads(model, optimizer, theta=0.0)
    masks = masks_of(model)
    assert masks["in_proj_weight"].shape == (60, 24)
    assert torch.equal(masks["out_proj.weight"][:, 8:12], joined)
    for name, mask in masks.items():
        assert not bool(model.get_parameter(name)[~mask].any())
    inputs = torch.randn(2, 3, WIDTH)
    call(model, inputs).sum().backward()
    optimizer.step()
    sparsifier.step()
    assert not bool(model.in_proj_weight[~masks["in_proj_weight"]].any())


def test_a_model_that_cannot_run_with_fewer_heads_stays_as_it_is():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Stubborn(), torch_wrapped())
    copy_head(model[1], 0, 1)
    copy_head(model[1], 0, 2)
    copy_head(model[2].inner, 2, 3)
    state, inputs = copy.deepcopy(model.state_dict()), torch.randn(2, 3, WIDTH)
    wanted = model(inputs)
    with pytest.raises(ValueError, match="all is as it was"):
        fold_heads(model, theta=0.0, example_inputs=inputs)
    assert model[1].num_heads == model[2].inner.num_heads == HEADS
    assert type(model[2].inner) is nn.MultiheadAttention
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model[1].q_proj.out_features == WIDTH
    torch.testing.assert_close(model(inputs), wanted)


def torch_wrapped():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch_attention()

        def forward(self, inputs):
            return self.inner(inputs, inputs, inputs)[0]

    return Wrapped()


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="no attention"):
        fold_heads(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="add_bias_kv"):
        fold_heads(nn.MultiheadAttention(8, 2, add_bias_kv=True))
    grouped = Plain()
    grouped.k_proj = nn.Linear(WIDTH, WIDTH // 2)
    with pytest.raises(ValueError, match="share keys"):
        fold_heads(grouped)
    grouped = Plain()
    grouped.num_heads = 5
    with pytest.raises(ValueError, match="5 heads"):
        fold_heads(grouped)
    for parts, words in (
        (HeadParts("all", "all", "all", "front", "count"), "no linear layer front"),
        (HeadParts("all", "all", "all", "back", "n"), "no number of heads 'n'"),
    ):
        with pytest.raises(ValueError, match=words):
            fold_heads(Fused(), parts={Fused: parts})
