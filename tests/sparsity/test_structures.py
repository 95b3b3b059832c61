from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtoolkit.sparsity.structures import as_structure

NAMES = ("unstructured", "2:4", "1:3", ":4", "4x4", "3x2", "channel")
SHAPES = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.just(3), st.just(2)),
)


def scores(structure, shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(structure.arrangement(shape), generator=generator)


def holds(structure, mask, density):
    """Whether the mask is made of whole units, exactly as many as asked, in allowed patterns."""
    shape = tuple(mask.shape)
    units = structure.gather(mask)
    assert torch.equal(structure.spread(units, shape), mask)
    assert int(units.sum()) == structure.count(shape, density)
    if ":" in structure.name and density < 1:
        most = max(structure.n or 0, -(-density * structure.m // 1))
        assert int(units.sum(1).max()) <= most


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    shape=SHAPES,
    density=st.floats(0.01, 1.0),
    seed=st.integers(0, 999),
)
def test_counts_are_exact_and_units_whole(name, shape, density, seed):
    structure = as_structure(name)
    if structure.limit < density < 1:
        density *= structure.limit
    mask = structure.keep(scores(structure, shape, seed), shape, density)
    holds(structure, mask, density)
    assert bool(mask.any())
    live = int(structure.gather(mask).sum())
    changed = structure.exchange(
        mask,
        scores(structure, shape, seed + 1),
        scores(structure, shape, seed + 2),
        live // 2,
        density,
    )
    holds(structure, changed, density)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    shape=st.tuples(st.integers(1, 6), st.integers(4, 16)),
    densities=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5),
)
def test_a_falling_density_is_met_at_every_stage(name, shape, densities):
    structure = as_structure(name)
    mask = torch.ones(shape, dtype=torch.bool)
    for number, density in enumerate(sorted(densities, reverse=True)):
        smaller = structure.keep(scores(structure, shape, number), shape, density, among=mask)
        assert bool((smaller <= mask).all())
        units = int(structure.gather(smaller).sum())
        assert units == structure.count(shape, density)
        mask = smaller


def test_two_of_four_by_hand():
    structure = as_structure("2:4")
    weight = torch.tensor([[0.1, -4.0, 3.0, 0.2, 5.0, 5.0, 5.0, 5.0]])
    mask = structure.keep(structure.pool(weight), (1, 8), 0.5)
    assert mask.tolist() == [[False, True, True, False, True, True, False, False]]
    third = structure.keep(structure.pool(weight), (1, 8), 3 / 8)
    assert third.tolist() == [[False, True, False, False, True, True, False, False]]


def test_groups_run_along_input_channels_of_a_convolution():
    structure = as_structure("2:4")
    mask = structure.keep(scores(structure, (6, 8, 3, 3)), (6, 8, 3, 3), 0.5)
    assert (mask.permute(0, 2, 3, 1).reshape(-1, 4).sum(1) == 2).all()


def test_blocks_by_hand():
    structure = as_structure("2x2")
    weight = torch.tensor([[3.0, 3.0, 4.0], [3.0, 3.0, 0.0], [5.0, 0.0, 2.0]])
    # Root mean squares: 3, sqrt(8) / sqrt(12.5), 2; edge blocks by the elements they have.
    expected = [[3.0, 8.0**0.5], [12.5**0.5, 2.0]]
    assert torch.allclose(structure.pool(weight), torch.tensor(expected))
    mask = structure.keep(structure.pool(weight), (3, 3), 0.5)
    assert mask.int().tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 0]]


def test_small_and_large_values_are_pooled_without_loss():
    structure = as_structure("channel")
    rows = torch.tensor([[1e-30, 0.0], [2e-30, 0.0], [0.0, 0.0]])
    assert structure.keep(structure.pool(rows), (3, 2), 1 / 3)[:, 0].tolist() == [
        False,
        True,
        False,
    ]
    assert torch.isfinite(structure.pool(torch.full((2, 2), 1e30))).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_ties_are_broken_by_index_in_every_dtype(name, dtype):
    structure = as_structure(name)
    for value in (0.0, 1.0, 300.0):
        weight = torch.full((8, 12), value, dtype=dtype)
        mask = structure.keep(structure.pool(weight), (8, 12), 0.25)
        holds(structure, mask, 0.25)
        first = structure.keep(structure.pool(torch.zeros(8, 12)), (8, 12), 0.25)
        assert torch.equal(mask, first)


def test_names_of_structures():
    assert as_structure("16x8").name == as_structure("block 16x8").name == "16x8"
    assert as_structure("block").name == "4x4"
    assert as_structure("N:M").name == ":4"
    assert as_structure("1:4").default == 0.25
    for bad in ("5:4", "0:4", "hexagons", "2:1"):
        with pytest.raises(ValueError, match="wanted"):
            as_structure(bad)
