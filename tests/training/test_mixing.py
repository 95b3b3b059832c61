"""Gossip without gradients: what mixing keeps, where it leads, and how fast."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtoolkit.training.mixing import (
    complete,
    gain,
    masses_of,
    matching,
    mixed,
    pairs,
    ring,
    second_eigenvalue,
)

samples_of_ranks = st.lists(st.integers(0, 100), min_size=1, max_size=9)


def drawn(mass):
    return pairs(mass, matching(len(mass), seed=3, step=5))


def apart(models, mean):
    """Consensus distance: root of the mean squared distance from the mean."""
    return float(np.sqrt(((models - mean) ** 2).sum(1).mean()))


@pytest.mark.parametrize("make", [ring, complete, drawn])
@given(samples_of_ranks)
def test_rows_sum_to_one_and_the_mean_by_mass_stays(make, samples):
    mass = masses_of(samples)
    matrix = make(mass)
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(mass @ matrix, mass, rtol=1e-12)
    assert mass.min() >= 0.5
    assert mass.sum() == pytest.approx(len(samples))


@pytest.mark.parametrize("make", [ring, complete, drawn])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_doubly_stochastic_where_samples_are_even(make, ranks):
    matrix = make(masses_of([7] * ranks))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-15)
    np.testing.assert_allclose(matrix.sum(0), 1, rtol=1e-12)


def test_worked_numbers():
    np.testing.assert_allclose(ring(np.ones(4))[0], [1 / 3, 1 / 3, 0, 1 / 3])
    np.testing.assert_allclose(ring(np.ones(2)), pairs(np.ones(2), [(0, 1)]))
    np.testing.assert_allclose(ring(np.ones(3)), complete(np.ones(3)))
    np.testing.assert_allclose(masses_of([9, 0, 0]), [2, 0.5, 0.5])
    np.testing.assert_allclose(pairs([2, 0.5, 1], [(0, 1)]), [[0.8, 0.2, 0]] * 2 + [[0, 0, 1]])
    assert ring([1]).tolist() == [[1]]


@pytest.mark.parametrize("ranks", [4, 5, 8, 16])
def test_distances_on_a_ring_fall_by_the_second_eigenvalue(ranks):
    matrix = ring(np.ones(ranks))
    factor = second_eigenvalue(matrix)
    assert factor == pytest.approx((1 + 2 * np.cos(2 * np.pi / ranks)) / 3)
    models = np.random.default_rng(0).normal(size=(ranks, 30))
    mean, distances = models.mean(0), []
    for _ in range(60):
        distances.append(apart(models, mean))
        models = matrix @ models
        assert apart(models, mean) <= factor * distances[-1] * (1 + 1e-9) + 1e-14
    np.testing.assert_allclose(models.mean(0), mean, atol=1e-12)
    late = [now / before for before, now in pairwise(distances) if now > 1e-9]
    np.testing.assert_allclose(late[-1], factor, rtol=0.02)


def test_unequal_masses_fall_by_it_too():
    mass = masses_of([10, 0, 30, 0, 5])
    matrix = ring(mass)
    models = np.random.default_rng(1).normal(size=(5, 30))
    mean = mass @ models / mass.sum()
    for _ in range(40):
        before, models = models, matrix @ models
    rate = apart(models, mean) / apart(before, mean)
    assert rate == pytest.approx(second_eigenvalue(matrix), rel=0.01)
    np.testing.assert_allclose(mass @ models / mass.sum(), mean, rtol=1e-9)


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_random_pairs_fall_as_expected(ranks):
    models = np.random.default_rng(0).normal(size=(ranks, 10))
    models -= models.mean(0)
    left = [(drawn_at(ranks, s) @ models) for s in range(3000)]
    ratio = np.mean([apart(one, 0) ** 2 for one in left]) / apart(models, 0) ** 2
    # A pair's mean is a projection: E|Mx|^2 = x E[M] x, and E[M] has this eigenvalue.
    assert ratio == pytest.approx((ranks - 2) / (2 * (ranks - 1)), rel=0.05, abs=1e-12)


def drawn_at(ranks, step):
    return pairs(np.ones(ranks), matching(ranks, seed=0, step=step))


@given(st.integers(1, 12), st.integers(0, 2**40), st.integers(0, 10**6))
def test_matchings_are_perfect(ranks, seed, step):
    matched = matching(ranks, seed=seed, step=step)
    assert matched == matching(ranks, seed=seed, step=step)
    flat = [rank for pair in matched for rank in pair]
    assert len(set(flat)) == len(flat) == ranks - ranks % 2
    assert all(a < b for a, b in matched)


def test_all_pairs_are_drawn_alike():
    counts = np.zeros((4, 4))
    for step in range(3000):
        for pair in matching(4, seed=1, step=step):
            counts[pair] += 1
    assert counts[np.triu_indices(4, 1)] == pytest.approx(1000, rel=0.1)
    assert counts[np.tril_indices(4)].sum() == 0


@pytest.mark.parametrize("make", [ring, complete])
@pytest.mark.parametrize("samples", [[5, 5, 5, 5], [8, 0, 3, 0], [0, 0, 0, 9], [1, 2, 3, 4]])
def test_what_ranks_learned_ends_as_its_mean_by_samples(make, samples):
    """From one model, each moves by itself; mixing alone then leads to the mean by samples."""
    mass = masses_of(samples)
    start = np.random.default_rng(2).normal(size=7)
    moves = np.random.default_rng(3).normal(size=(4, 7))
    gains = [gain(m, n, sum(samples), 4) for m, n in zip(mass, samples, strict=True)]
    models = start + np.array(gains)[:, None] * moves
    for _ in range(400):
        models = make(mass) @ models
    want = start + np.average(moves, axis=0, weights=samples)
    np.testing.assert_allclose(models, np.tile(want, (4, 1)), rtol=1e-9)
    assert max(gains) <= 2


def test_pairs_lead_there_too():
    samples = [8, 0, 3, 0]
    mass = masses_of(samples)
    moves = np.random.default_rng(3).normal(size=(4, 7))
    gains = [gain(m, n, 11, 4) for m, n in zip(mass, samples, strict=True)]
    models = np.array(gains)[:, None] * moves
    for step in range(100):
        models = pairs(mass, matching(4, seed=0, step=step)) @ models
    np.testing.assert_allclose(models[2], np.average(moves, axis=0, weights=samples), rtol=1e-9)


def test_mixed_is_the_row_of_the_matrix_and_leaves_equal_models():
    mass = masses_of([4, 1, 0, 2])
    models = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    for make in (ring, complete, drawn):
        matrix = make(mass)
        for rank in range(4):
            near = {s: models[s] for s in range(4) if matrix[rank, s]}
            want = torch.tensor(matrix[rank]).float() @ models
            torch.testing.assert_close(mixed(near, matrix[rank]), want)
            same = dict.fromkeys(near, models[0])
            assert torch.equal(mixed(same, matrix[rank]), models[0])
    a = mixed({0: models[0], 1: models[1]}, pairs(mass, [(0, 1)])[0])
    b = mixed({0: models[0], 1: models[1]}, pairs(mass, [(0, 1)])[1])
    assert torch.equal(a, b)
