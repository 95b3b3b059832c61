from __future__ import annotations

import pytest
import torch
from torch import nn

from dtoolkit.sparsity import ERK, Block, Distribution, Method, RigL, Sparsifier
from tests.sparsity.models import small_network, train_step


def make(model: nn.Module | None = None, **how) -> Sparsifier:
    model = model or small_network()
    return Sparsifier(model, torch.optim.SGD(model.parameters(), lr=0.1), **how)


def test_names_and_objects_say_the_same():
    by_name = make(method="rigl", density=0.4, distribution="erk", structure="2x4", seed=7)
    by_object = make(method=RigL(), density=0.4, distribution=ERK(), structure=Block(2, 4), seed=7)
    assert all(map(torch.equal, by_name.masks.values(), by_object.masks.values()))
    another = make(method="rigl", density=0.4, distribution="erk", structure="2x4", seed=8)
    assert not all(map(torch.equal, by_name.masks.values(), another.masks.values()))


def test_a_method_and_a_distribution_of_ones_own():
    class Half(Distribution):
        name = "half of the first"

        def densities(self, shapes, density, *, limit=1.0):
            return {name: 0.5 if i == 0 else 1.0 for i, name in enumerate(shapes)}

    class First(Method):
        name = "first"

        def begin(self, layer, schedule):
            places = torch.arange(layer.weight.numel(), 0, -1).view(layer.shape)
            return layer.structure.keep(places, layer.shape, layer.density)

    masks = make(method=First(), distribution=Half()).masks
    assert masks["0.weight"].view(-1).nonzero().view(-1).tolist() == list(range(108))
    assert masks["9.weight"].all()


def test_every_layer_keeps_a_weight_unless_none_is_asked_for():
    assert all(int(mask.sum()) == 1 for mask in make(density=1e-6).masks.values())
    masks = make(density=0.5, distribution={"9": 0.0}).masks
    assert not masks["9.weight"].any()
    assert int(masks["7.weight"].sum()) == 480


def test_density_may_come_from_the_structure_or_the_distribution():
    assert all((m.float().mean() == 0.5) for m in make(structure="2:4", include="9").masks.values())
    assert make(distribution={"*": 0.25}).densities["0.weight"] == 0.25
    with pytest.raises(ValueError, match="density is not given"):
        make()
    with pytest.raises(ValueError, match=r"density=0\.75: this structure allows at most 0\.5"):
        make(structure="2:4", density=0.75)
    for density in (0, 1.5, -0.1):
        with pytest.raises(ValueError, match="wanted more than 0, and at most 1"):
            make(density=density)
    with pytest.raises(TypeError, match="densities by layer go to distribution="):
        make(density={"0": 0.5})
    with pytest.raises(ValueError, match="method='lottery': wanted one of 'static', 'snip'"):
        make(density=0.5, method="lottery")
    with pytest.raises(TypeError, match="the class RigL: wanted a name or a"):
        make(density=0.5, method=RigL)


def test_choices_name_their_sources():
    words = make(method="rigl", density=0.5, distribution="erk", structure="2:4").cite()
    assert words.count("Rigging the lottery") == 1
    assert "Accelerating sparse deep neural networks" in words
    assert make(density=0.5, method="growth").cite() == ""


def test_training_learns_under_a_mask():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sparsifier = Sparsifier(model, optimizer, method="rigl", density=0.2)
    inputs = torch.randn(256, 20)
    labels = (inputs[:, 0] > inputs[:, 1]).long()
    for _ in range(80):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        sparsifier.step()
    assert loss < 0.1


def test_channels_last_weights_keep_their_strides():
    model = small_network().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = Sparsifier(model, optimizer, density=0.2, structure="4x4")
    assert model[0].weight_mask.stride() == model[0].weight.stride()
    train_step(model, optimizer, 0)
    sparsifier.step()
    for name, mask in sparsifier.masks.items():
        assert not model.get_parameter(name)[~mask].any()
    same = make(density=0.2, structure="4x4").masks
    assert all(map(torch.equal, sparsifier.masks.values(), same.values()))


def test_a_compiled_or_wrapped_model_has_the_same_masks():
    bare = make(density=0.3).masks.values()
    wrapped = make(nn.DataParallel(small_network()), density=0.3)
    assert next(iter(wrapped.masks)) == "module.0.weight"
    assert all(map(torch.equal, bare, wrapped.masks.values()))


def test_the_table_counts_weights_and_operations():
    sparsifier = make(density=0.25, distribution="erk")
    before = sparsifier.model.training
    frame = sparsifier.table(torch.zeros(2, 3, 4, 4))
    assert sparsifier.model.training == before
    assert frame["layer"].tolist() == list(sparsifier.masks)
    first = frame.iloc[0]
    assert first["shape"] == (8, 3, 3, 3)
    assert first["parameters"] == 216
    assert first["live_parameters"] == int(sparsifier.masks["0.weight"].sum())
    assert first["real_density"] == pytest.approx(first["asked_density"], abs=0.5 / 216)
    assert first["flops"] == 2 * 2 * 216 * 16
    assert first["live_flops"] == pytest.approx(first["flops"] * first["real_density"])
    assert frame["flops"].tolist()[1:] == [2 * 2 * 72 * 4, 2 * 2 * 80 * 4, 2 * 2 * 960, 2 * 2 * 120]


def test_operations_of_attention_are_counted():
    model = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    frame = make(model, density=0.5).table(torch.zeros(3, 5, 8)).set_index("layer")
    assert frame.loc["self_attn.in_proj_weight", "flops"] == 2 * 15 * 8 * 24
    assert frame.loc["self_attn.out_proj.weight", "flops"] == 2 * 15 * 8 * 8
    assert frame.loc["linear1.weight", "flops"] == 2 * 15 * 8 * 16


def test_the_card_shows_what_was_asked_and_what_is():
    sparsifier = make(method="set", density=0.25)
    sparsifier.table(torch.zeros(1, 3, 4, 4))
    html = sparsifier._repr_html_()
    for words in ("0.25", "uniform", "set", "7.weight", "24 x 40", "FLOPs before", "masked"):
        assert words in html
    assert repr(sparsifier).startswith("Sparsifier(5 layers, 362 of 1,448 weights live (0.25)")
