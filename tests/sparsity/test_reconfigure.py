"""Cuts in detail: what counts as dead, what stays whole and why, what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.sparsity import apply_cuts, plan_cuts, reconfigure, zero_cuts
from tests.sparsity.brought_models import Small, bring, images, tokens


@pytest.fixture
def small():
    torch.manual_seed(0)
    return Small()


def adam(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(images()).square().sum().backward()
    optimizer.step()
    return optimizer


@torch.no_grad()
def kill(model, channel, *, reads=True):
    model.conv1.weight[channel] = 5e-5
    if reads:
        model.conv2.weight[:, channel] = -5e-5


# ------------------------------------------------------------------------------ what is dead


def test_a_channel_goes_when_dead_on_both_sides(small):
    optimizer = adam(small)
    kill(small, 1)
    kill(small, 3, reads=False)
    report = reconfigure(small, optimizer, images())
    assert report.plan.groups[0].cut == (1,)
    assert small.conv1.weight.shape == (3, 3, 3, 3)
    assert small.conv2.weight.shape == (6, 3, 3, 3)
    assert (small.conv1.out_channels, small.conv2.in_channels, small.norm1.num_features) == (3,) * 3
    assert small.norm1.running_var.shape == (3,)
    assert small.conv1.bias.shape == (3,)


def test_the_threshold_is_exclusive_and_nan_is_alive(small):
    with torch.no_grad():
        small.conv1.weight[0], small.conv2.weight[:, 0] = 0.25, 0.0
        small.conv1.weight[1], small.conv2.weight[:, 1] = 0.0, float("nan")
        small.conv1.weight[2:] = 1.0
    assert plan_cuts(small, images(), threshold=0.25, verify=False).groups[0].cut == ()
    assert plan_cuts(small, images(), threshold=0.26, verify=False).groups[0].cut == (0,)


def test_one_channel_stays_where_all_are_dead(small):
    with torch.no_grad():
        small.conv1.weight.fill_(1e-6)
        small.conv1.weight[2] = 2e-6
        small.conv2.weight.zero_()
    plan = plan_cuts(small, images())
    assert plan.groups[0].cut == (0, 1, 3)
    assert "conv1.weight: all 4 channels were to go, one stays" in plan.notes


def test_at_a_shortcut_the_union_stays():
    model, x = bring("resnet18")
    places = [f"layers.0.{block}.conv2" for block in (0, 1)]
    with torch.no_grad():
        for number, weight in enumerate(
            (model.conv1.weight, *(model.get_submodule(place).weight for place in places))
        ):
            weight[number] = 0.0  # dead in one of the three alone
            weight[5] = 0.0
        for name, weight in model.named_parameters():
            if name in ("layers.0.0.conv1.weight", "layers.0.1.conv1.weight") or (
                name in ("layers.1.0.conv1.weight", "layers.1.0.downsample.0.weight")
            ):
                weight[:, [0, 1, 2, 5]] = 0.0
    plan = plan_cuts(model, x)
    assert [group.cut for group in plan.groups if group.cut] == [(5,)]


def test_heads_of_queries_and_keys_need_dead_biases():
    model, x = bring("encoder")
    query, key = (getattr(model.layers[0].attention, name) for name in ("query", "key"))
    with torch.no_grad():
        for layer in (query, key):
            layer.weight[::4] = 0.0
    assert not plan_cuts(model, x).cut
    with torch.no_grad():
        for layer in (query, key):
            layer.bias[::4] = 0.0
    assert plan_cuts(model, x).cut == 4  # one of each head


def test_numbers_of_channels_are_rounded_up(small):
    plan = plan_cuts(small, images(), channels={"conv1": [0, 1, 2], "conv2": [0, 1]}, multiple=2)
    assert [group.width - len(group.cut) for group in plan.groups] == [2, 4]
    power = small.conv1.weight.square().sum((1, 2, 3)) + small.conv2.weight.square().sum((0, 2, 3))
    assert plan.groups[0].cut == tuple(sorted(power[:3].argsort()[:2].tolist()))  # the weakest go


def test_layers_of_one_group_are_cut_once():
    model, x = bring("resnet18")
    channels = {"conv1": [1], "layers.0.0.conv2": [1], "layers.0.1.conv2.weight": [-7]}
    assert plan_cuts(model, x, channels=channels).cut == 1


# ------------------------------------------------------------------------------ what is kept


def test_everything_stays_the_same_object(small):
    optimizer = torch.optim.SGD(
        [
            {"params": [small.fc.weight, small.conv1.weight], "lr": 0.5},
            {"params": [small.conv2.bias]},
        ],
        lr=0.1,
        momentum=0.9,
    )
    small.norm1.weight.requires_grad_(False)
    calls = []
    small.conv1.weight.register_hook(lambda gradient: calls.append(tuple(gradient.shape)))
    loss = small(images()).square().sum()
    loss.backward()
    optimizer.step()
    before = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    history = optimizer.state[small.conv1.weight]["momentum_buffer"].clone()
    gradient = small.conv1.weight.grad.clone()
    reconfigure(small, optimizer, images(), channels={"conv1": [0, 2]})
    assert [[id(p) for p in group["params"]] for group in optimizer.param_groups] == before
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.1]
    assert not small.norm1.weight.requires_grad
    assert torch.equal(optimizer.state[small.conv1.weight]["momentum_buffer"], history[[1, 3]])
    assert torch.equal(small.conv1.weight.grad, gradient[[1, 3]])
    small(images()).sum().backward()  # while the old loss is still there
    assert calls == [(4, 3, 3, 3), (2, 3, 3, 3)]
    assert loss.grad_fn is not None


def test_layout_in_memory_and_half_precision_stay():
    model = Small().to(torch.bfloat16, memory_format=torch.channels_last)
    x = images().to(torch.bfloat16, memory_format=torch.channels_last)
    reconfigure(model, None, x, channels={"conv1": [1]})
    assert model.conv2.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.conv2.weight.dtype == torch.bfloat16
    assert model(x).shape == (3, 5)


def test_batch_norm_without_statistics_or_weights():
    for norm in ({"track_running_stats": False}, {"affine": False}):
        torch.manual_seed(0)
        model = Small(**norm).eval()
        zeroed = copy.deepcopy(model)
        report = reconfigure(model, None, images(), keep=0.5)
        zero_cuts(zeroed, None, report.plan)
        torch.testing.assert_close(model(images()), zeroed(images()))
        assert report.plan.cut == 5


def test_masks_of_a_sparsifier_are_cut(small):
    optimizer = adam(small)
    sparsifier = dt.sparsity.Sparsifier(small, optimizer, density=0.5)
    masks = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    reconfigure(small, optimizer, images(), channels={"conv1": [0]})
    assert torch.equal(sparsifier.masks["conv2.weight"], masks["conv2.weight"][:, 1:])
    small(images()).sum().backward()
    optimizer.step()
    sparsifier.step()
    assert not small.conv2.weight[~sparsifier.masks["conv2.weight"]].any()


def test_tied_weights_are_cut_once():
    model, x = bring("tied")
    optimizer = torch.optim.AdamW(model.parameters())
    reconfigure(model, optimizer, x, keep=0.5)
    assert model.output.weight is model.embedding.weight
    assert model.embedding.weight.shape == (20, 8)
    assert (model.output.in_features, model.embedding.embedding_dim) == (8, 8)


def test_a_compiled_model_is_cut_and_compiled_again(small):
    compiled = torch.compile(small.eval(), backend="eager")
    before = compiled(images())
    reconfigure(compiled, adam(small), images(), channels={"conv1": [0]})
    assert small.conv1.out_channels == 3
    torch.testing.assert_close(compiled(images()), small(images()))
    assert before.shape == (3, 5)


def test_modes_and_running_statistics_are_left(small):
    small.train()
    small.norm2.eval()
    before = copy.deepcopy(small.state_dict())
    plan_cuts(small, images(), keep=0.5)
    assert small.training
    assert not small.norm2.training
    for name, value in small.state_dict().items():
        assert torch.equal(value, before[name]), name


# ------------------------------------------------------------------------- what is refused


def unchanged(model, optimizer, call, match, error=ValueError):
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=match):
        call(model, optimizer)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_state_of_another_shape_is_named_and_refused(small):
    optimizer = torch.optim.Adafactor(small.parameters())
    small(images()).sum().backward()
    optimizer.step()
    unchanged(
        small,
        optimizer,
        lambda m, o: reconfigure(m, o, images(), keep=0.5),
        r"Adafactor keeps 'row_var' of shape .* for 'conv1.weight'.*Nothing was changed",
    )


def test_an_error_while_cutting_undoes_all(small, monkeypatch):
    optimizer = adam(small)
    history = copy.deepcopy(optimizer.state_dict()["state"])
    plan = plan_cuts(small, images(), keep=0.5)

    def fails(self, name, value):
        if name == "num_features" and value == 3:
            raise MemoryError("no more")
        super(nn.BatchNorm2d, self).__setattr__(name, value)

    monkeypatch.setattr(nn.BatchNorm2d, "__setattr__", fails)
    unchanged(small, optimizer, lambda m, o: apply_cuts(m, o, plan), "no more", MemoryError)
    assert small.conv1.out_channels == 4
    for number, kept in optimizer.state_dict()["state"].items():
        for key, value in kept.items():
            assert torch.equal(value, history[number][key])


def test_wrong_arguments(small):
    x, other = images(), torch.optim.SGD(Small().parameters(), lr=0.1)
    plan = plan_cuts(small, x, keep=0.5)
    for call, match in (
        (lambda m, o: reconfigure(m, other, x, keep=0.5), "steps none of the model's"),
        (lambda m, o: reconfigure(m, o, x, keep=0.0), "keep=0.0: wanted more than 0"),
        (lambda m, o: reconfigure(m, o, x, keep=0.5, channels={}), "wanted one of them"),
        (lambda m, o: reconfigure(m, o, x, threshold=-1.0), "threshold=-1.0"),
        (lambda m, o: plan_cuts(m, x, channels={"conv1": [4]}), "4 is none of its 4 channels"),
        (lambda m, o: plan_cuts(m, x, channels={"fc": [0]}), "has to stay: is the model's output"),
        (lambda m, o: plan_cuts(m, x, channels={"conv9": [0]}), "wanted names of modules"),
        (lambda m, o: apply_cuts(nn.Linear(2, 2), o, plan), "made for another model"),
        (lambda m, o: apply_cuts(nn.DataParallel(m), o, plan), "wrapped for data-parallel"),
    ):
        unchanged(small, None, call, match)
    unchanged(small, None, lambda m, o: reconfigure("m", o, x), "wanted a torch.nn", TypeError)
    unchanged(small, None, lambda m, o: reconfigure(m, "o", x, keep=0.5), "optimizer", TypeError)
    apply_cuts(small, None, plan)
    unchanged(small, None, lambda m, o: apply_cuts(m, o, plan), "before the model was cut")


# --------------------------------------------------------------------------------- reports


def test_report_and_cards(small):
    report = reconfigure(small, adam(small), images(), channels={"conv1": [0]})
    table = report.table().set_index("layer")
    assert table.loc["conv1.weight", "channels_before"] == 4
    assert table.loc["conv2.weight", "inputs_after"] == 3
    assert table.loc["conv1.weight", "parameters_after"] == 81
    assert table.loc["conv1.weight", "flops_before"] == 2 * 3 * 4 * 27 * 36
    assert report.parameters == (389, 389 - 28 - 2 - 54)
    assert report.bytes[0] > report.bytes[1]
    assert report.flops[0] > report.flops[1]
    assert "1 of 10 channels cut" in repr(report)
    assert "conv1.weight: 3 -> 4 channels became 3 -> 3" in str(report)
    html = report._repr_html_()
    assert "Reconfiguration" in html
    assert "measured" in html
    assert "made by" in report.plan._repr_html_()
    with pytest.raises(AttributeError):
        report.plan = None


def test_plans_are_data(small):
    one, other = (plan_cuts(small, images(), keep=0.5) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != plan_cuts(small, images(), keep=0.75)
    assert one.kept["conv2.weight"][1].tolist() == one.kept["conv1.weight"][0].tolist()
    assert list(one.table()["cut"]) == [2, 3]
    assert small.conv1.weight.shape[0] == 4


def test_keyword_and_several_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.dense = nn.Embedding(20, 8), nn.Linear(4, 8)
            self.head = nn.Linear(8, 2)

        def forward(self, ids, values):
            return {"scores": self.head(self.tokens(ids).relu() + self.dense(values)[:, None])}

    for example in ({"ids": tokens(), "values": torch.randn(3, 4)}, (tokens(), torch.randn(3, 4))):
        model = Two()
        reconfigure(model, None, example, keep=0.5)
        assert model.tokens.weight.shape == (20, 4)
        assert model.dense.out_features == model.head.in_features == 4
