"""Group lasso: its value, its share, what it leaves out."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dtoolkit.sparsity import GroupLasso
from tests.sparsity.brought_models import bring, images


def two_layers():
    model = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.Flatten(), nn.Linear(2, 3, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([3.0, -2.0]).view(2, 1, 1, 1))
        model[2].weight.copy_(torch.tensor([[0.0, 1.0], [3.0, 2.0], [4.0, 2.0]]))
    return model


def test_worked_numbers():
    # Outputs of the convolution: 3 and 2. Inputs of the linear layer: (0, 3, 4) and (1, 2, 2).
    # Its outputs, and the input of the first, are left out.
    lasso = GroupLasso(two_layers(), strength=0.5)
    assert float(lasso.norm().detach()) == pytest.approx(3 + 2 + 5 + 3, abs=1e-6)
    assert float(lasso().detach()) == pytest.approx(6.5, abs=1e-6)


def test_a_channel_of_zeros_counts_the_root_of_the_constant():
    model = two_layers()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    lasso = GroupLasso(model, strength=1.0)
    assert float(lasso.norm().detach()) == pytest.approx(4e-4)
    lasso().backward()
    assert not model[0].weight.grad.any()  # and not NaN


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.8])
def test_the_share_at_the_first_call_is_the_ratio(ratio):
    model, x = bring("resnet18")
    lasso = GroupLasso(model, ratio)
    loss = cross_entropy(model(x), torch.tensor([0, 1, 2]))
    penalty = lasso(loss)
    assert float(penalty / (loss + penalty)) == pytest.approx(ratio, rel=1e-5)
    assert lasso.share(loss) == pytest.approx(ratio, rel=1e-5)
    strength = lasso.strength
    assert float(lasso(2 * loss)) == pytest.approx(float(penalty))  # set once, for good
    assert lasso.strength == strength
    penalty.backward()
    assert model.layers[0][0].conv1.weight.grad.abs().sum() > 0


def test_grouped_depthwise_and_transposed_channels():
    torch.manual_seed(0)
    first, last = nn.Conv2d(2, 4, 1), nn.Conv2d(6, 1, 1)
    for layer, axes in (
        (nn.Conv2d(4, 6, 3, groups=2), "grouped"),
        (nn.Conv2d(4, 4, 3, groups=4), "depthwise"),
        (nn.ConvTranspose2d(4, 6, 3), "transposed"),
    ):
        w = layer.weight.detach()
        rows, columns = (w.flatten(1).norm(dim=1), w.transpose(0, 1).flatten(1).norm(dim=1))
        if axes == "grouped":
            columns = torch.cat(
                [half.transpose(0, 1).flatten(1).norm(dim=1) for half in w.chunk(2)]
            )
        expected = rows.sum() + (0 if axes == "depthwise" else columns.sum())
        ends = first.weight.flatten(1).norm(dim=1).sum() + last.weight.flatten(2).norm(dim=0).sum()
        lasso = GroupLasso(nn.Sequential(first, layer, last), strength=1.0)
        assert float(lasso.norm().detach()) == pytest.approx(float(expected + ends), rel=1e-5)


def test_an_example_leaves_out_what_cannot_be_cut():
    model, x = bring("encoder")
    lasso = GroupLasso(model, strength=1.0, example_inputs=x)
    lasso().backward()
    assert model.layers[0].up.weight.grad is not None
    assert model.head.weight.grad is None
    names = {entry.layer: entry for entry in lasso._entries}
    assert (names["layers.0.up"].inputs, names["layers.0.up"].outputs) == (False, True)
    assert (names["layers.0.down"].inputs, names["layers.0.down"].outputs) == (True, False)


def test_as_the_penalty_of_a_task():
    lasso = GroupLasso(two_layers(), strength=0.5)
    sent = pickle.loads(pickle.dumps(lasso))
    other = two_layers()
    with torch.no_grad():
        other[0].weight.mul_(2)
    assert float(sent(other)) == pytest.approx(9.0, abs=1e-5)
    with pytest.raises(ValueError, match="call with a model"):
        sent()


def test_strength_goes_on_from_a_saved_state():
    one, other = GroupLasso(two_layers()), GroupLasso(two_layers())
    one(torch.tensor(2.0))
    other.load_state_dict(one.state_dict())
    assert other.strength == one.strength == pytest.approx(0.2 * 2 / (13 * 0.8))
    assert "strength 0.038" in repr(other)
    assert "Lym" in one.cite()


def test_wrong_arguments():
    model = two_layers()
    for call, match in (
        (lambda: GroupLasso(model, 1.0), "ratio=1.0"),
        (lambda: GroupLasso(model, strength=-1.0), "strength=-1.0"),
        (lambda: GroupLasso(model, strength=float("inf")), "strength=inf: wanted 0 or more, and f"),
        (lambda: GroupLasso(nn.ReLU()), "no convolution or linear layer"),
        (lambda: GroupLasso(model)(), "strength is not known"),
        (lambda: GroupLasso(model)(model), "strength is not known"),
        (lambda: GroupLasso(model)(torch.tensor(0.0)), "above 0"),
        (lambda: GroupLasso(model)(torch.tensor(float("nan"))), "above 0"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match=r"wanted a torch\.nn\.Module"):
        GroupLasso(images())
    with pytest.raises(TypeError, match="ratio='a': wanted a number"):
        GroupLasso(model, "a")
    with pytest.raises(TypeError, match="strength='a': wanted a number"):
        GroupLasso(model, strength="a")
