from __future__ import annotations

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from dtoolkit.sparsity.structures import as_structure
from dtoolkit.sparsity.tiles import tile_layout, tile_linear

STRUCTURES = ("tw1-8", "tw2-8", "tew-8", "channel", "4x4", "2:4", "unstructured")


def problem(structure, outputs, inputs, density, dtype=torch.float64, seed=0):
    """Weight, mask, bias and inputs."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64)
    kind = as_structure(structure)
    mask = kind.keep(kind.pool(weight), (outputs, inputs), density)
    bias = torch.randn(outputs, generator=generator, dtype=torch.float64)
    batch = torch.randn(3, 4, inputs, generator=generator, dtype=torch.float64)
    return (weight * mask).to(dtype), mask, bias.to(dtype), batch.to(dtype)


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def compare(weight, mask, bias, batch, layout):
    """Hold outputs and gradients against those of the dense layer, whose weights are masked."""
    tensors = [t.clone().requires_grad_() for t in (batch, weight, bias)]
    out = tile_linear(*tensors, layout)
    wanted = functional.linear(*tensors)
    close(out, wanted)
    gradient = torch.randn_like(out)
    found = torch.autograd.grad(out, tensors, gradient)
    dense = torch.autograd.grad(wanted, tensors, gradient)
    close(found[0], dense[0])
    close(found[1], dense[1] * mask)
    close(found[2], dense[2])
    assert not bool(found[1][~mask].any())


@settings(max_examples=80, deadline=None)
@given(
    structure=st.sampled_from(STRUCTURES),
    outputs=st.integers(1, 40),
    inputs=st.integers(2, 40),
    density=st.floats(0.02, 1.0),
    width=st.sampled_from([None, 1, 8, 100]),
)
def test_products_and_gradients_are_those_of_the_masked_weight(
    structure, outputs, inputs, density, width
):
    if structure == "2:4":
        density = min(density, 0.5)
    weight, mask, bias, batch = problem(structure, outputs, inputs, density)
    compare(weight, mask, bias, batch, tile_layout(mask, width=width))


@pytest.mark.parametrize("compiles", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_single_weights_over_many_rows(monkeypatch, compiles, threads):
    if not compiles:
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # PyTorch's sparse product instead
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    weight, mask, bias, _ = problem("tew-8", 40, 33, 0.4)
    layout = tile_layout(mask, width=8)
    assert layout.singles is not None
    generator = torch.Generator().manual_seed(1)
    for rows in (1, 63, 64, 300):  # blocks have 64 rows of float64
        batch = torch.randn(rows, 33, generator=generator, dtype=torch.float64)
        compare(weight, mask, bias, batch, layout)


def test_masks_without_tiles_and_layers_without_bias():
    weight, mask, bias, batch = problem("tw1-8", 16, 12, 0.5)
    nothing = torch.zeros_like(mask)
    layout = tile_layout(nothing)
    assert layout.name == "bias alone"
    compare(weight * 0, nothing, bias, batch, layout)
    layout = tile_layout(mask)
    close(tile_linear(batch, weight, None, layout), functional.linear(batch, weight))
    assert tile_linear(batch[:0], weight, bias, layout).shape == (0, 4, 16)
    assert tile_linear(batch[0, 0], weight, bias, layout).shape == (16,)


def test_gradcheck():
    weight, mask, bias, batch = problem("tew-8", 16, 12, 0.4)
    layout = tile_layout(mask)
    live = weight[mask]

    def product(batch, live, bias):
        whole = torch.zeros_like(weight).masked_scatter(mask, live)
        return tile_linear(batch, whole, bias, layout)

    tensors = [t.clone().requires_grad_() for t in (batch, live, bias)]
    assert torch.autograd.gradcheck(product, tensors, fast_mode=True)


def test_tiles_of_the_structures_are_found():
    for structure, width in itertools.product(("tw1", "tw2"), (80, 128)):
        weight = torch.randn(512, 512, generator=torch.Generator().manual_seed(1))
        kind = as_structure(f"{structure}-{width}")
        mask = kind.keep(weight.abs(), (512, 512), 0.25)
        layout = tile_layout(mask)
        assert layout.singles is None
        assert layout.live is None
        assert len(layout.flat) == int(mask.sum())
        assert layout.width <= width
    channel = torch.zeros(64, 512, dtype=torch.bool)
    channel[[3, 4, *range(20, 60)]] = True
    layout = tile_layout(channel)
    assert layout.name == "live outputs"
    assert layout.outputs.tolist() == [3, 4, *range(20, 60)]


def test_single_weights_leave_the_tiles():
    weight = torch.randn(512, 256, generator=torch.Generator().manual_seed(2))
    kind = as_structure("tew-128")
    mask = kind.keep(weight.abs(), (512, 256), 0.25)
    layout = tile_layout(mask)
    assert len(layout.flat) == int(mask.sum())
    share = len(layout.singles.columns) / mask.numel()
    assert share == pytest.approx(0.05, abs=0.01)
    assert layout.width <= 128


def test_masked_weights_are_not_read():
    weight, mask, bias, batch = problem("tw1-8", 16, 12, 0.5)
    mask = mask.clone()
    mask[0, 0] = False  # a hole in a segment, where there was one
    wanted = functional.linear(batch, weight * mask, bias)
    filled = weight.masked_fill(~mask, float("nan"))
    for width in (8, 16):
        close(tile_linear(batch, filled, bias, tile_layout(mask, width=width)), wanted)


def test_a_dense_gradient_on_demand():
    weight, mask, bias, batch = problem("tw1-8", 16, 12, 0.5)
    weight.requires_grad_()
    layout = tile_layout(mask)
    tile_linear(batch, weight, bias, layout, dense_gradient=True).square().sum().backward()
    wanted = copy.deepcopy(weight.detach()).requires_grad_()
    functional.linear(batch, wanted, bias).square().sum().backward()
    close(weight.grad, wanted.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("structure", ["tw1-16", "tew-16"])
def test_half_precision_is_as_exact_as_dense(structure, dtype):
    exact = problem(structure, 64, 48, 0.3)
    weight, mask, bias, batch = problem(structure, 64, 48, 0.3, dtype)
    layout = tile_layout(mask, width=16)
    results = []
    for product in (functional.linear, lambda *t: tile_linear(*t, layout)):
        tensors = [t.clone().requires_grad_() for t in (batch, weight, bias)]
        out = product(*tensors)
        assert out.dtype == dtype
        gradients = torch.autograd.grad(out, tensors, torch.ones_like(out))
        results.append([out.detach().double(), *(g.double() for g in gradients)])
    tensors = [t.clone().requires_grad_() for t in (exact[3], exact[0], exact[2])]
    out = functional.linear(*tensors)
    true = [out.detach(), *torch.autograd.grad(out, tensors, torch.ones_like(out))]
    for place, (dense, sparse, wanted) in enumerate(zip(*results, true, strict=True)):
        if place == 2:
            dense, wanted = dense * mask, wanted * mask
        worst = (dense - wanted).abs().max()
        assert (sparse - wanted).abs().max() <= 2 * worst + 1e-6


def test_autocast_runs_in_its_dtype():
    weight, mask, bias, batch = problem("tew-8", 16, 12, 0.5, torch.float32)
    weight.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layout = tile_layout(mask, width=8)
        assert layout.singles is not None
        out = tile_linear(batch, weight, bias, layout)
        assert out.dtype == torch.bfloat16
        out.float().sum().backward()
    assert weight.grad.dtype == torch.float32
    assert torch.equal(weight.grad.bool() & ~mask, torch.zeros_like(mask))


def test_inputs_need_not_be_contiguous():
    weight, mask, bias, batch = problem("tew-8", 16, 12, 0.4)
    turned = batch.transpose(0, 1)
    close(
        tile_linear(turned, weight, bias, tile_layout(mask)),
        functional.linear(turned, weight, bias),
    )
    wide = batch.repeat(1, 1, 2)[..., ::2]
    close(tile_linear(wide, weight, bias, tile_layout(mask)), functional.linear(wide, weight, bias))
