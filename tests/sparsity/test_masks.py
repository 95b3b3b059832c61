from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from dtoolkit.sparsity import Constant, Sparsifier, masks_of, remove_masks
from dtoolkit.sparsity.masks import erase
from tests.sparsity.models import OPTIMIZERS, Tied, batch, small_network, train_step


def sparse(method: str = "set", optimizer: str = "AdamW", seed: int = 0, **how):
    model = small_network(seed)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    how = {"density": 0.25, "schedule": Constant(every=3), **how}
    return model, stepper, Sparsifier(model, stepper, method=method, **how)


def equal(first: nn.Module, second: nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_erase_leaves_exact_zeros_and_all_else_as_it_is(dtype):
    tensor = torch.randn(300, 500).to(dtype)
    tensor[0, :3] = torch.tensor([float("nan"), float("inf"), -0.0])
    mask = torch.rand(300, 500) < 0.3
    mask[0, :3] = False
    before = tensor.clone()
    turned = tensor.clone().t()
    erase(mask, [tensor])
    erase(mask.t(), [turned])
    assert not tensor[~mask].any()
    assert torch.equal(tensor[mask], before[mask])
    assert torch.equal(turned.t(), tensor)


def test_masks_are_buffers_of_the_model():
    model, _, sparsifier = sparse()
    assert "0.weight_mask" in model.state_dict()
    assert sparsifier.masks["0.weight"] is model[0].weight_mask
    assert masks_of(model).keys() == sparsifier.masks.keys()
    assert model[1].weight.dim() == 1
    assert not hasattr(model[1], "weight_mask")


def test_masks_survive_copy_pickle_save_and_moves():
    model, _, sparsifier = sparse()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    others = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ]
    for other in others:
        assert equal(model, other)
        with pytest.raises(RuntimeError, match="has weights but no masks"):
            other.load_state_dict(small_network().state_dict())
    model.to(torch.bfloat16)
    assert all(mask.dtype == torch.bool for mask in sparsifier.masks.values())
    inputs, _ = batch()
    model(inputs.bfloat16()).float().sum().backward()
    sparsifier.optimizer.step()
    sparsifier.step()
    for name, mask in sparsifier.masks.items():
        assert not model.get_parameter(name)[~mask].any()
    assert all(mask.device.type == "meta" for mask in masks_of(model.to("meta")).values())


def test_a_checkpoint_without_masks_is_refused_in_words():
    model, _, sparsifier = sparse()
    dense = small_network().state_dict()
    for strict in (True, False):
        with pytest.raises(RuntimeError, match="Load dense weights before the Sparsifier is made"):
            model.load_state_dict(dense, strict=strict)
    with pytest.raises(RuntimeError) as raised:
        model.load_state_dict(dense)
    assert str(raised.value).count("has weights but no masks") == 1
    state = sparsifier.state_dict()
    del state["masks"]
    with pytest.raises(ValueError, match="has no masks"):
        sparsifier.load_state_dict(state)


def test_a_state_of_something_else_is_refused():
    _, _, sparsifier = sparse()
    state = sparsifier.state_dict()
    for change, match in (
        ({"method": "rigl"}, "method 'rigl', and this sparsifier's is 'set'"),
        ({"structure": "2:4"}, "structure '2:4'"),
        ({"version": 99}, "version 99: wanted 1"),
        ({"masks": {"0.weight": torch.ones(1).bool()}}, "shape"),
        ({"masks": {**state["masks"], "head": torch.ones(1).bool()}}, "'head'"),
    ):
        with pytest.raises(ValueError, match=match):
            sparsifier.load_state_dict({**state, **change})


@pytest.mark.parametrize("method", ["static", "snip", "magnitude", "set", "rigl", "growth"])
def test_a_resumed_run_is_bit_equal(method):
    model, optimizer, sparsifier = sparse(method)
    file = io.BytesIO()
    for step in range(10):
        if step == 4:
            states = [thing.state_dict() for thing in (model, optimizer, sparsifier)]
            torch.save(states, file)
        train_step(model, optimizer, step)
        sparsifier.step()
    for order in ((0, 1, 2), (2, 1, 0)):
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        again = sparse(method, seed=99)
        for place in order:
            again[place].load_state_dict(saved[place])
        for step in range(4, 10):
            train_step(again[0], again[1], step)
            again[2].step()
        assert equal(model, again[0])
        assert again[2].steps == 10


def test_a_copy_goes_on_like_the_original():
    original = sparse("rigl")
    for step in range(4):
        train_step(original[0], original[1], step)
        original[2].step()
    together = copy.deepcopy(original)
    model = copy.deepcopy(original[0])
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    optimizer.load_state_dict(copy.deepcopy(original[1].state_dict()))
    alone = Sparsifier(model, optimizer, method="rigl", density=0.25, schedule=Constant(every=3))
    assert equal(model, original[0])  # what the copy carries was taken over
    alone.load_state_dict(original[2].state_dict())
    unpickled = pickle.loads(pickle.dumps(original))
    for run in (original, together, (model, optimizer, alone), unpickled):
        for step in range(4, 8):
            train_step(run[0], run[1], step)
            run[2].step()
        assert equal(run[0], original[0])


def test_masks_that_cannot_be_those_asked_for_are_refused():
    model, optimizer, _ = sparse()
    with pytest.raises(ValueError, match=r"keeps 54 of 216 .*asked are 22\. Take old masks out"):
        Sparsifier(model, optimizer, density=0.1)
    del model[0]._buffers["weight_mask"]
    with pytest.raises(ValueError, match=r"none for '0\.weight'"):
        Sparsifier(model, optimizer, density=0.25)
    remove_masks(model)
    assert model.state_dict().keys() == small_network().state_dict().keys()
    model.load_state_dict(small_network().state_dict())
    Sparsifier(model, optimizer, density=0.1)


def test_a_name_that_is_taken_is_refused():
    model = nn.Linear(4, 4)
    model.weight_mask = "mine"
    with pytest.raises(ValueError, match="has an attribute 'weight_mask' already"):
        Sparsifier(model, torch.optim.SGD(model.parameters(), lr=0.1), density=0.5)


def test_a_tied_tensor_has_one_mask():
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sparsifier = Sparsifier(model, optimizer, method="rigl", density=0.5)
    assert list(sparsifier.masks) == ["embedding.weight", "hidden.weight"]
    assert "output.weight_mask" not in model.state_dict()
    model(torch.arange(20)).square().mean().backward()
    optimizer.step()
    sparsifier.step()
    mask = sparsifier.masks["embedding.weight"]
    assert int(mask.sum()) == 160
    assert not model.output.weight[~mask].any()
    model.load_state_dict(model.state_dict())
    table = sparsifier.table(torch.arange(20))
    assert table["tied_to"].tolist() == ["output.weight", ""]
    assert table["flops"].tolist() == [2 * 20 * 16 * 20, 2 * 20 * 16 * 16]


def test_a_removed_mask_is_missed():
    model, _, sparsifier = sparse()
    remove_masks(model)
    with pytest.raises(ValueError, match="is gone from the model"):
        sparsifier.step()
