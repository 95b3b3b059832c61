"""Global batches and shares: every sample once an epoch, whoever computes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtoolkit.arrays import Layout
from dtoolkit.errors import LayoutError
from dtoolkit.training import Sampler


@st.composite
def samplers(draw: Any) -> tuple[Sampler, Sampler]:
    """A sampler, and the one of a single process."""
    samples = draw(st.integers(1, 40))
    batch = draw(st.integers(1, 50))
    accumulate = draw(st.integers(1, min(batch, samples, 5)))
    seed, ranks = draw(st.integers(0, 99)), draw(st.integers(1, 6))
    how = draw(st.sampled_from(["even", "block", "cyclic", "vector", "shards"]))
    more: dict[str, Any] = {}
    if how == "shards":
        more["shards"] = draw(st.integers(1, 9))
    elif how == "vector":
        owner = st.integers(0, ranks - 1)
        more["partition"] = draw(st.lists(owner, min_size=samples, max_size=samples))
    elif how != "even":
        more["partition"] = how
    same = {"seed": seed, "accumulate": accumulate}
    return Sampler(samples, batch, ranks=ranks, **same, **more), Sampler(
        samples, batch, ranks=1, **same
    )


@given(samplers())
def test_shares_make_up_the_batch_whatever_the_ranks(pair: tuple[Sampler, Sampler]) -> None:
    sampler, alone = pair
    steps = sampler.steps_per_epoch
    for epoch in (0, 1):
        ids = [sampler.batch(epoch * steps + step) for step in range(steps)]
        assert torch.cat(ids).sort().values.tolist() == list(range(sampler.samples))
        assert all(len(one) == sampler.size for one in ids[:-1])
    for step in (0, steps - 1, steps):
        assert sampler.epoch(step) == step // steps
        assert torch.equal(sampler.batch(step), alone.batch(step))
        shares = [sampler.share(step, rank) for rank in range(sampler.ranks)]
        assert all(len(share) == sampler.accumulate for share in shares)
        for micro, whole in enumerate(alone.micro_batches(step)):
            together = torch.cat([share[micro] for share in shares])
            assert together.sort().values.tolist() == whole.sort().values.tolist()
        assert sampler.planned(step) == len(sampler.batch(step))
        planned = [sampler.planned(step, rank) for rank in range(sampler.ranks)]
        assert sum(planned) == sampler.planned(step)
        for rank, count in enumerate(planned):
            assert sampler.has_samples(rank) or count == 0
    for rank in range(sampler.ranks):
        used = sum(sampler.planned(step, rank) for step in range(steps))
        assert sampler.has_samples(rank) == (used > 0)


def test_epochs_and_seeds_differ() -> None:
    one, other = (Sampler(30, 10, seed=seed, ranks=2) for seed in (0, 1))
    orders = [
        torch.cat([s.batch(step + 3 * e) for step in range(3)]).tolist()
        for s, e in ((one, 0), (one, 1), (other, 0))
    ]
    assert len({tuple(order) for order in orders}) == 3


def test_shares_without_partition_are_cut_as_torch_does() -> None:
    sampler = Sampler(23, 11, seed=4, ranks=3, accumulate=2)
    for step in range(3):
        for micro, ids in enumerate(torch.tensor_split(sampler.batch(step), 2)):
            for rank, want in enumerate(torch.tensor_split(ids, 3)):
                assert torch.equal(sampler.share(step, rank)[micro], want)


def test_owners_compute_their_samples() -> None:
    layout = Layout.from_parts([0, 2, 2, 0, 2, 0, 0], 3)
    sampler = Sampler(7, 7, seed=0, ranks=3, partition=layout)
    (mine,) = sampler.share(0, 2)
    assert sorted(mine.tolist()) == [1, 2, 4]
    assert [sampler.has_samples(rank) for rank in range(3)] == [True, False, True]
    assert sampler.planned(0, 1) == 0


def test_shards_do_not_depend_on_the_ranks() -> None:
    def by_shard(ranks: int) -> dict[int, list[list[int]]]:
        sampler = Sampler(29, 16, seed=1, ranks=ranks, shards=5, accumulate=2)
        shares = [pair for rank in range(ranks) for pair in sampler.shares(1, rank)]
        return {shard: [ids.tolist() for ids in micros] for shard, micros in shares}

    assert list(by_shard(3)) == [0, 1, 2, 3, 4]
    assert by_shard(1) == by_shard(2) == by_shard(3) == by_shard(7)
    with pytest.raises(ValueError, match="this sampler has no shards"):
        Sampler(29, 16, seed=1, ranks=2).shares(0, 0)


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("batch=0", {"batch": 0}),
        ("batch=True", {"batch": True}),
        ("ranks=1.5", {"ranks": 1.5}),
        ("accumulate=9: a batch of 8", {"accumulate": 9}),
        ("exclude each other", {"partition": "block", "shards": 2}),
        ("partition=", {"partition": "diagonal"}),
        ("partition=", {"partition": [0] * 9}),
        ("partition=", {"partition": Layout.block(10, 3)}),
    ],
)
def test_refusals(words: str, more: dict[str, Any]) -> None:
    given_ = {"samples": 10, "batch": 8, "seed": 0, "ranks": 2, **more}
    with pytest.raises((ValueError, LayoutError), match=words):
        Sampler(given_.pop("samples"), given_.pop("batch"), **given_)
