from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dtoolkit.sparsity import (
    Constant,
    Sparsifier,
    compile_sparse,
    masks_of,
    remove_masks,
    sparse_report,
    uncompile,
)
from dtoolkit.sparsity.tiles import compiling
from dtoolkit.sparsity.tiles.layers import SparseConv2d, SparseLinear

LR = 0.1


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5)
    )


def convolutions(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 12, 3, stride=2, dilation=2, padding=(1, 2), bias=False),
        nn.Conv2d(12, 12, 3, groups=12),
    )


def sparsify(model, structure="tw1-16", optimizer=None, **how):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    how = {"density": 0.25, **how}
    return Sparsifier(model, optimizer, structure=structure, **how), optimizer


def batch(step=0):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 24, generator=generator), torch.randint(5, (16,), generator=generator)


def step(model, optimizer, number):
    inputs, labels = batch(number)
    optimizer.zero_grad()
    cross_entropy(model(inputs), labels).backward()
    optimizer.step()


def kernels(model):
    return sparse_report(model).table().set_index("layer")["kernel"].to_dict()


@pytest.mark.parametrize("structure", ["tw1-16", "tw2-16", "tew-16", "channel", "unstructured"])
def test_the_compiled_model_computes_and_learns_the_same(structure):
    dense = network().double()
    sparsifier, optimizer = sparsify(dense, structure)
    compiled = copy.deepcopy(dense)
    assert compile_sparse(compiled, kernel="sparse") is compiled
    assert set(kernels(compiled).values()) == {"tiles"}
    other = torch.optim.SGD(compiled.parameters(), lr=LR, momentum=0.9)
    for number in range(5):
        inputs, labels = batch(number)
        for model, steps in ((dense, optimizer), (compiled, other)):
            steps.zero_grad()
            cross_entropy(model(inputs.double()), labels).backward()
            steps.step()
        sparsifier.step()
    for name, mask in masks_of(compiled).items():
        assert not bool(compiled.get_parameter(name)[~mask].any())
    for (name, wanted), (_, found) in zip(
        dense.state_dict().items(), compiled.state_dict().items(), strict=True
    ):
        torch.testing.assert_close(found, wanted, msg=name)


@pytest.mark.parametrize("structure", ["channel", "tw1-8"])
def test_convolutions(structure):
    model = convolutions().double()
    sparsify(model, structure)
    compiled = compile_sparse(copy.deepcopy(model), kernel="sparse")
    found = kernels(compiled)
    assert found.pop("3.weight") == "dense"
    assert set(found.values()) <= {"channels", "tiles"}
    images = torch.randn(2, 3, 12, 11, dtype=torch.float64)
    results = []
    for each in (model, compiled):
        own = images.clone().requires_grad_()
        out = each(own)
        assert out.is_contiguous()
        (out * torch.arange(out.numel()).view_as(out)).sum().backward()
        results.append((out, own.grad, {n: p.grad for n, p in each.named_parameters()}))
    torch.testing.assert_close(results[1][:2], results[0][:2])
    masks = masks_of(model)
    for name, gradient in results[0][2].items():
        wanted = gradient * masks[name] if name in masks else gradient
        torch.testing.assert_close(results[1][2][name], wanted, msg=name)
    torch.testing.assert_close(compiled(images[0]), model(images[0]))


@pytest.mark.parametrize("structure", ["channel", "tw1-8"])
@pytest.mark.parametrize("kernel", ["channels", "tiles"])
def test_every_kernel_of_a_convolution(structure, kernel):
    model = convolutions()[:1].double()
    sparsify(model, structure)
    images = torch.randn(2, 3, 12, 11, dtype=torch.float64)
    wanted = model(images)
    compile_sparse(model, kernel="sparse")
    model[0]._execution.kernel = kernel
    torch.testing.assert_close(model(images), wanted)


def test_what_runs_is_what_was_measured_faster(monkeypatch):
    model = network()
    sparsify(model)
    seconds = {"dense": 2.0, "tiles": 1.0}
    monkeypatch.setattr(compiling, "medians", lambda runs, device: {n: seconds[n] for n in runs})
    compile_sparse(model, rows=8)
    assert set(kernels(model).values()) == {"tiles"}
    frame = sparse_report(model).table()
    assert frame["ratio"].tolist() == [2.0] * 3
    assert frame["rows"].tolist() == [8] * 3
    assert frame["measured"].unique().tolist() == ["forward and backward"]
    assert (frame["multiplied"] < 0.7).all()
    seconds["tiles"] = 1.99
    compile_sparse(model.eval(), batch()[0])
    frame = sparse_report(model).table()
    assert set(frame["kernel"]) == {"dense"}
    assert frame["reason"].unique().tolist() == ["not faster by tiles"]
    assert frame["rows"].tolist() == [16] * 3
    assert frame["measured"].unique().tolist() == ["forward"]


def test_measuring_leaves_no_trace():
    model = network()
    sparsifier, optimizer = sparsify(model)
    step(model, optimizer, 0)
    sparsifier.step()
    before = {n: p.grad.clone() for n, p in model.named_parameters()}
    state = copy.deepcopy(model.state_dict())
    compile_sparse(model, batch()[0])
    assert sparse_report(model).table()["ratio"].notna().all()
    assert all(torch.equal(p.grad, before[n]) for n, p in model.named_parameters())
    assert all(torch.equal(value, state[n]) for n, value in model.state_dict().items())
    assert model.training


def test_a_kernel_that_does_not_run_leaves_the_layer_dense(monkeypatch):
    model = network()
    sparsify(model)

    def broken(self, inputs, mask):
        raise RuntimeError("no such operation\nmore")

    monkeypatch.setattr(SparseLinear, "_tiles", broken)
    compile_sparse(model)
    reasons = sparse_report(model).table()["reason"].unique()
    assert reasons.tolist() == ["tiles does not run here: no such operation"]
    model(batch()[0])


def test_layers_that_stay_dense_keep_their_zeros():
    model = network()
    _, optimizer = sparsify(model)
    compile_sparse(model, kernel="sparse")
    for layer in model[::2]:
        layer._execution.kernel = "dense"
    for number in range(3):
        step(model, optimizer, number)
    for name, mask in masks_of(model).items():
        assert not bool(model.get_parameter(name)[~mask].any())


def test_state_dicts_are_those_of_the_masked_model():
    model = network()
    _, optimizer = sparsify(model)
    plain = copy.deepcopy(model)
    compile_sparse(model, kernel="sparse")
    assert list(model.state_dict()) == list(plain.state_dict())
    step(model, optimizer, 0)
    plain.load_state_dict(model.state_dict())
    inputs = batch()[0]
    torch.testing.assert_close(plain(inputs), model(inputs))
    other = network(seed=1)
    sparsify(other, seed=5)
    compile_sparse(other, kernel="sparse")
    other(inputs)
    other.load_state_dict(plain.state_dict())
    torch.testing.assert_close(other(inputs), plain(inputs))
    assert uncompile(model) is model
    assert [type(layer) for layer in model[::2]] == [nn.Linear] * 3
    assert "_execution" not in model[0].__dict__
    assert torch.equal(model(inputs), plain(inputs))
    assert all(torch.equal(mask, masks_of(plain)[n]) for n, mask in masks_of(model).items())


def test_copies_and_pickles_stay_compiled_and_apart():
    model = network()
    sparsify(model)
    compile_sparse(model, kernel="sparse")
    inputs = batch()[0]
    wanted = model(inputs)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    copies.append(torch.load(stream, weights_only=False))
    for made in copies:
        assert torch.equal(made(inputs), wanted)
        assert kernels(made) == kernels(model)
        with torch.no_grad():
            made[0].weight.mul_(2)
            made[0].weight_mask[:16] = False
            made[0].weight[:16] = 0
        assert not torch.equal(made(inputs), wanted)
        assert torch.equal(model(inputs), wanted)


def test_tiles_follow_masks_that_change():
    model = network()
    sparsifier, optimizer = sparsify(model, method="set", schedule=Constant(every=1))
    compile_sparse(model, kernel="sparse")
    for number in range(4):
        step(model, optimizer, number)
        before = model[0].weight_mask.clone()
        assert sparsifier.step()
        assert not torch.equal(before, model[0].weight_mask)
        inputs = batch()[0]
        wanted = uncompile(copy.deepcopy(model))(inputs)
        torch.testing.assert_close(model(inputs), wanted)


def test_growth_by_gradient_needs_a_dense_gradient():
    how = {"method": "rigl", "schedule": Constant(every=1)}
    masks = []
    for compiled in (False, True):
        model = network()
        sparsifier, optimizer = sparsify(model, **how)
        if compiled:
            compile_sparse(model, kernel="sparse")
            step(model, optimizer, 0)
            with pytest.raises(RuntimeError, match="dense_gradient=True"):
                sparsifier.step()
            model = network()
            sparsifier, optimizer = sparsify(model, **how)
            compile_sparse(model, kernel="sparse", dense_gradient=True)
        for number in range(2):
            step(model, optimizer, number)
            sparsifier.step()
        masks.append(masks_of(model))
    assert all(torch.equal(mask, masks[1][name]) for name, mask in masks[0].items())


def test_half_precision_and_other_dtypes_after_compiling():
    model = network()
    sparsify(model)
    compile_sparse(model, kernel="sparse")
    inputs = batch()[0]
    wanted = model(inputs)
    torch.testing.assert_close(model.double()(inputs.double()).float(), wanted)
    halved = model.bfloat16()(inputs.bfloat16())
    torch.testing.assert_close(halved.float(), wanted, rtol=0.05, atol=0.05)


def test_frozen_weights_are_packed_once():
    model = network().eval()
    sparsify(model)
    compile_sparse(model, kernel="sparse", frozen=True)
    inputs = batch()[0]
    with torch.no_grad():
        wanted = model(inputs)
        packed = model[0]._execution._kept["packed"][1]
        model(inputs)
        assert model[0]._execution._kept["packed"][1] is packed
        model[0].weight.mul_(2)
        assert not torch.equal(model(inputs), wanted)
    torch.testing.assert_close(model(inputs), uncompile(copy.deepcopy(model))(inputs))


def test_weights_are_read_at_every_call():
    model = network().eval()
    sparsify(model)
    compile_sparse(model, kernel="sparse")
    inputs = batch()[0]
    with torch.no_grad():
        wanted = model(inputs)
        for parameter in model.parameters():
            parameter.data.mul_(2)  # behind autograd's back
        assert not torch.equal(model(inputs), wanted)
        torch.testing.assert_close(model(inputs), uncompile(copy.deepcopy(model))(inputs))
    with torch.inference_mode():
        model(inputs)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_transformer_layers_call_what_was_compiled():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    sparsify(model, "tw1-16")
    inputs, padding = torch.randn(3, 6, 32), torch.zeros(3, 6, dtype=torch.bool)
    padding[:, 5] = True
    with torch.no_grad():
        wanted = model(inputs, src_key_padding_mask=padding)[:, :5]
    compile_sparse(model, kernel="sparse")
    called = []
    model.layers[1].linear1.register_forward_hook(lambda *_: called.append(1))
    with torch.no_grad():
        found = model(inputs, src_key_padding_mask=padding)
    assert called
    torch.testing.assert_close(found[:, :5], wanted, rtol=1e-4, atol=1e-5)
    assert kernels(model)["layers.0.self_attn.in_proj_weight"] == "dense"
    compile_sparse(model, inputs)
    assert sparse_report(model).table().set_index("layer")["rows"]["layers.0.linear1.weight"] == 18
    uncompile(model)
    assert model.use_nested_tensor
    assert model.layers[0].activation_relu_or_gelu == 1


def test_reports_and_refusals():
    model = network()
    with pytest.raises(ValueError, match="no masks"):
        compile_sparse(model)
    sparsify(model)
    with pytest.raises(ValueError, match="kernel='fast'"):
        compile_sparse(model, kernel="fast")
    with pytest.raises(ValueError, match="rows=0"):
        compile_sparse(model, rows=0)
    with pytest.raises(TypeError, match="Module"):
        compile_sparse("model")
    with torch.no_grad():
        model[0].weight += 1
    with pytest.raises(ValueError, match="are not 0"):
        compile_sparse(model)
    with torch.no_grad():
        model[0].weight *= model[0].weight_mask
    compile_sparse(model, kernel="sparse")
    assert "3 of 3 masked layers run sparse" in repr(sparse_report(model))
    assert "Sparse kernels" in sparse_report(model)._repr_html_()
    assert "kernel='tiles'" in repr(model)
    remove_masks(model)
    model(batch()[0])
    pairs = nn.Sequential(nn.Linear(64, 64))
    sparsify(pairs, "2:4", density=0.5)
    compile_sparse(pairs)
    (row,) = sparse_report(pairs).table().to_dict("records")
    assert row["kernel"] == "dense"
    assert "no 2:4 kernel on cpu" in row["reason"] or row["measured_kernel"] == "tiles"


def test_layers_that_the_example_does_not_call_stay_dense():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(24, 64), nn.Linear(24, 64)

        def forward(self, inputs):
            return self.used(inputs)

    model = Two()
    sparsify(model)
    compile_sparse(model, batch()[0])
    frame = sparse_report(model).table().set_index("layer")
    assert frame["ratio"].notna().tolist() == [True, False]
    assert "not called" in frame["reason"]["unused.weight"]
    images = nn.Sequential(nn.Conv2d(3, 8, 3))
    sparsify(images, "channel")
    compile_sparse(images)
    assert isinstance(images[0], SparseConv2d)
    assert kernels(images) == {"0.weight": "dense"}
