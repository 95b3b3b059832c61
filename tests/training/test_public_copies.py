"""Gossip over compressed links without gradients: what both ends keep, and where it leads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dtoolkit.training import mixing
from dtoolkit.training.compression import RandomK, Sign, TopK
from dtoolkit.training.public_copies import PublicCopies

RANKS, N = 4, 200
CODERS = [TopK(share=0.1), RandomK(share=0.2), Sign(), TopK(share=1)]


class Neighbours:
    """Ranks with models of their own, and their links."""

    def __init__(self, coder, *, samples=(1, 1, 1, 1), pairs=False):
        generator = torch.Generator().manual_seed(0)
        self.models = [
            torch.randn(N, generator=generator, dtype=torch.float64) for _ in range(RANKS)
        ]
        origin = torch.zeros(N, dtype=torch.float64)
        self.links = [PublicCopies(coder, origin, seed=3, rank=rank) for rank in range(RANKS)]
        self.mass = mixing.masses_of(samples)
        self.pace, self.pairs = coder.pace(N), pairs
        self.mean = self.mean_now()

    def mean_now(self):
        return sum(m * x for m, x in zip(self.mass, self.models, strict=True)) / self.mass.sum()

    def apart(self):
        return float(sum((x - self.mean).square().sum() for x in self.models)) ** 0.5

    def step(self, step):
        matrix = mixing.ring(self.mass)
        if self.pairs:
            matrix = mixing.pairs(self.mass, mixing.matching(RANKS, seed=0, step=step))
        for source in range(RANKS):
            for target in np.flatnonzero(matrix[source]).tolist():
                if source != target:
                    said = self.links[source].say(target, self.models[source], step=step)
                    self.links[target].hear(source, said, step=step)
                    ends = self.links[source].mine[target], self.links[target].theirs[source]
                    assert torch.equal(*ends)
        self.models = [
            self.links[rank].mixed(self.models[rank], matrix[rank], self.pace)
            for rank in range(RANKS)
        ]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("coder", CODERS)
def test_models_meet_at_their_mean(coder, pairs):
    there = Neighbours(coder, pairs=pairs)
    first = there.apart()
    for step in range(150):
        there.step(step)
    torch.testing.assert_close(there.mean_now(), there.mean, rtol=1e-10, atol=1e-12)
    assert there.apart() < 0.15 * first


@pytest.mark.parametrize("coder", CODERS)
def test_the_mean_by_mass_stays_with_uneven_samples(coder):
    there = Neighbours(coder, samples=(9, 0, 3, 1))
    for step in range(20):
        there.step(step)
        torch.testing.assert_close(there.mean_now(), there.mean, rtol=1e-10, atol=1e-12)


def test_going_on_from_what_was_kept():
    one, two = (Neighbours(TopK(share=0.1)) for _ in range(2))
    for step in range(5):
        one.step(step)
    two.models = [model.clone() for model in one.models]
    for link, own in zip(two.links, [link.own_state() for link in one.links], strict=True):
        link.restore(own)
    for step in range(5, 9):
        one.step(step)
        two.step(step)
    assert all(torch.equal(a, b) for a, b in zip(one.models, two.models, strict=True))
    other = PublicCopies(TopK(), torch.zeros(N + 1), seed=3, rank=0)
    with pytest.raises(ValueError, match="public copies"):
        other.restore(one.links[0].own_state())


def test_models_that_are_not_finite_are_refused():
    link = PublicCopies(TopK(), torch.zeros(4), seed=0, rank=0)
    with pytest.raises(FloatingPointError, match="not finite"):
        link.say(1, torch.tensor([1, float("nan"), 0, 0]), step=0)
