from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dtoolkit.sparsity import TEW, TW1, TW2, VW, Magnitude, Sparsifier, Static, TileWise, masks_of
from dtoolkit.sparsity.structures import as_structure
from dtoolkit.sparsity.tiles.pruning import STAGES, masks_together, prune, taylor_scores

SHAPES = st.one_of(
    st.tuples(st.integers(1, 14), st.integers(1, 9)),
    st.tuples(st.integers(1, 9), st.integers(1, 4), st.just(3), st.just(2)),
)
NAMES = ("tw1-1", "tw1-4", "tw2-3", "tw2-5", "tew-3", "tew-4")


def uniform(shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def tiles_of(mask, structure):
    """Rows of each tile, of the outputs that survive where whole ones go first."""
    rows = mask.flatten(1)
    return (rows[rows.any(1)] if structure.columns else rows).split(structure.width)


def met(structure, mask, density):
    """Whether the asked number of weights is live, up to a segment."""
    shape = tuple(mask.shape)
    missed = abs(int(mask.sum()) - structure.count(shape, density))
    assert missed <= structure.slack(shape)
    assert mask.any()
    if not structure.restore:
        assert all(bool((tile == tile[:1]).all()) for tile in tiles_of(mask, structure))


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    shape=SHAPES,
    density=st.floats(0.05, 1.0),
    share=st.floats(0.0, 1.0),
    integers=st.booleans(),
)
def test_counts_are_met_and_segments_whole(name, shape, density, share, integers):
    structure = as_structure(name)
    scores = [uniform(shape, seed) for seed in range(3)]
    if integers:
        scores = [(score * 2**32 - 2**31).to(torch.int32) for score in scores]
    mask = structure.keep(scores[0], shape, density)
    met(structure, mask, density)
    drop = int(share * int(mask.sum()))
    met(structure, structure.exchange(mask, scores[1], scores[2], drop, density), density)
    if density == 1:
        assert mask.all()


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    shape=st.tuples(st.integers(2, 14), st.integers(4, 16)),
    densities=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=5),
)
def test_a_falling_density_is_met_at_every_stage(name, shape, densities):
    structure = as_structure(name)
    mask = torch.ones(shape, dtype=torch.bool)
    for number, density in enumerate(sorted(densities, reverse=True)):
        smaller = structure.keep(uniform(shape, number), shape, density, among=mask)
        assert bool((smaller <= mask).all())
        assert smaller.any()
        wanted = min(structure.count(shape, density), int(mask.sum()))
        assert abs(int(smaller.sum()) - wanted) <= structure.slack(shape)
        mask = smaller


def test_segments_by_hand():
    # Three outputs in tiles of two: the second tile is narrower, its segments are single weights.
    weight = torch.tensor([[3.0, 1.0], [4.0, 0.0], [2.0, 0.6]])
    structure = TW1(2)
    # Norms over lengths: 5/2 and 1/2, then 2 and 0.6.
    assert structure.keep(weight, (3, 2), 2 / 6).int().tolist() == [[1, 0], [1, 0], [0, 0]]
    assert structure.keep(weight, (3, 2), 3 / 6).int().tolist() == [[1, 0], [1, 0], [1, 0]]
    assert structure.keep(weight, (3, 2), 4 / 6).int().tolist() == [[1, 0], [1, 0], [1, 1]]


def test_outputs_go_first_and_tiles_close_up():
    weight = torch.tensor([[5.0, 4.0, 0.1, 0.2], [0.1] * 4, [6.0, 1.0, 0.1, 0.1], [0.2] * 4])
    # Density 1/4: half of the outputs, 0 and 2, are one tile now; half of its segments stay.
    mask = TW2(2).keep(weight, (4, 4), 0.25)
    assert mask.int().tolist() == [[1, 1, 0, 0], [0] * 4, [1, 1, 0, 0], [0] * 4]
    assert TW1(2).keep(weight, (4, 4), 0.25).int().tolist() == [[1, 0, 0, 0]] * 4


def test_single_weights_fill_the_count():
    weight = torch.tensor([[5.0, 0.1, 0.1, 0.1], [5.0, 0.1, 0.1, 3.0], [0.1] * 4, [0.1] * 4])
    mask = TEW(2, restore=1 / 16).keep(weight, (4, 4), 3 / 16)
    assert mask.int().tolist() == [[1, 0, 0, 0], [1, 0, 0, 1], [0] * 4, [0] * 4]


def test_what_is_dropped_first_is_what_counts_least():
    shape = (8, 6)
    structure = TW1(4)
    mask = structure.keep(uniform(shape), shape, 0.5)
    keep = torch.zeros(shape)
    grow = torch.zeros(shape)
    live, dead = mask[::4].nonzero()[0], (~mask[::4]).nonzero()[-1]
    keep += 1
    keep[4 * live[0] : 4 * live[0] + 4, live[1]] = 0.5
    grow[4 * dead[0] : 4 * dead[0] + 4, dead[1]] = 1
    changed = structure.exchange(mask, keep, grow, 4, 0.5)
    assert not changed[4 * live[0], live[1]]
    assert changed[4 * dead[0], dead[1]]
    assert int((changed & ~mask).sum()) == 4


def test_asked_sparsity_is_met_where_the_last_tile_is_narrower():
    weight = uniform((130, 64), 3)
    for name in ("tw1-128", "tw2-32", "tw1-48"):
        structure = as_structure(name)
        mask = structure.keep(weight, (130, 64), 0.25)
        assert abs(int(mask.sum()) - 130 * 64 // 4) <= structure.width // 2


def test_retained_score_of_the_published_comparison():
    kept: dict[str, list[float]] = {}
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        normal = [torch.randn(*s, generator=generator) for s in ((768, 768), (768, 1), (1, 768))]
        scores = (normal[0] * (0.28 * normal[1]).exp() * (0.28 * normal[2]).exp()).t().contiguous()
        for name in ("unstructured", "vw", "tew-32", "tw2-32", "tw2-128", "32x32"):
            structure = as_structure(name)
            mask = structure.keep(structure.pool(scores), (768, 768), 0.25)
            share = scores[mask].square().sum() / scores.square().sum()
            kept.setdefault(name, []).append(float(share))
    mean = {name: sum(found) / len(found) for name, found in kept.items()}
    wanted = dict(zip(mean, (0.80, 0.74, 0.66, 0.51, 0.51, 0.29), strict=True))
    assert mean == pytest.approx(wanted, abs=0.02)
    order = [mean[name] for name in ("unstructured", "vw", "tew-32", "tw2-32", "32x32")]
    assert order == sorted(order, reverse=True)


def test_a_convolution_is_seen_as_outputs_by_all_that_they_see():
    mask = TW1(4).keep(uniform((8, 3, 3, 3)), (8, 3, 3, 3), 0.5)
    assert bool((mask[:4] == mask[:1]).all())
    assert 0 < int(mask[0].sum()) < 27


def test_names_of_tiles():
    assert as_structure("tile-wise").name == as_structure("TW2").name == "tw2-128"
    assert as_structure("tw1-64").name == TW1(64).name == "tw1-64"
    assert as_structure("tew 32").name == "tew-32+5%"
    assert TileWise(8, columns=False, restore=0.01).name == "tew1-8+1%"
    assert as_structure("VW").name == "vw-16"
    assert "SC 2020" in VW().cite()
    for bad in (lambda: TW1(0), lambda: TEW(4, restore=1.0), lambda: as_structure("tw3-4")):
        with pytest.raises(ValueError, match="wanted"):
            bad()


@pytest.mark.parametrize("density", [0.06, 0.25, 0.5])
def test_random_masks_favour_no_tile(density):
    # 40 outputs in tiles of 16: the last has 8. Its segments must not come more often.
    structure = TW1(16)
    found = torch.zeros(3)
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(-(2**31), 2**31, (40, 30), generator=generator)
        mask = structure.keep(drawn.to(torch.int32), (40, 30), density)
        found += mask[[0, 16, 32]].double().mean(1).float() / 60
    assert found.tolist() == pytest.approx([density] * 3, abs=0.03)


def test_layers_are_pruned_together():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 20), nn.Linear(20, 10))
    with torch.no_grad():
        model[1].weight *= 2
    model.requires_grad_(False)
    size = 240 + 200
    for name in ("tw1-4", "tw2-4", "tew-4", "unstructured", "2x2", "vw-4"):
        scores = {n: p for n, p in model.named_parameters() if p.dim() == 2}
        masks = masks_together(scores, name, 0.3)
        live = sum(int(mask.sum()) for mask in masks.values())
        assert abs(live - 0.3 * size) <= 4, name
        dense = [float(mask.float().mean()) for mask in masks.values()]
        assert min(dense) > 0, name
        assert name == "vw-4" or dense[1] > dense[0], name
    # One threshold over all: the same choice in a layer as at the density that it got.
    alone = TW1(4).keep(model[0].weight.abs(), (20, 12), 0.5)
    both = masks_together({"a": model[0].weight}, TW1(4), 0.5)["a"]
    assert torch.equal(alone, both)


def test_a_sparsifier_goes_on_with_what_was_pruned():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 9))
    model(torch.randn(5, 12)).square().sum().backward()
    for stage in STAGES[:3]:
        found = prune(model, density=1 - stage, structure="tw2-4", scores=taylor_scores(model))
        masks = masks_of(model)
        assert found == {name: float(mask.double().mean()) for name, mask in masks.items()}
        assert all(not bool(model.get_parameter(name)[~mask].any()) for name, mask in masks.items())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: mask.clone() for name, mask in masks.items()}
    sparsifier = Sparsifier(model, optimizer, structure="tw2-4", distribution=found)
    assert all(torch.equal(before[name], mask) for name, mask in sparsifier.masks.items())


def test_pruning_says_what_is_wrong():
    model = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="none for weight"):
        prune(model, density=0.5, scores={})
    with pytest.raises(ValueError, match="shape"):
        prune(model, density=0.5, scores={"weight": torch.ones(2, 2)})
    with pytest.raises(ValueError, match="NaN"):
        prune(model, density=0.5, scores={"weight": torch.full((4, 4), math.nan)})
    with pytest.raises(ValueError, match="density"):
        prune(model, density=0)


def test_a_tile_wise_sparsifier_has_its_table():
    model = nn.Sequential(nn.Linear(16, 24), nn.Linear(24, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for method in (Static(), Magnitude()):
        made = Sparsifier(
            nn.Sequential(*model), optimizer, method=method, structure=TW1(8), density=0.25
        )
        frame = made.table()
        assert frame["real_density"].tolist() == pytest.approx([0.25, 0.25], abs=0.05)
        for module in model:
            del module._buffers["weight_mask"]
