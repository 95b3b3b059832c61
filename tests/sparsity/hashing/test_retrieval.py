"""How often tables find a neuron, against 1 - (1 - p^K)^L; and when they are made again."""

from __future__ import annotations

import math

import pytest
import torch

from dtoolkit.sparsity.hashing import (
    HashTables,
    RefreshSchedule,
    as_refresh,
    make_family,
    retrieval_probability,
    tables_for,
)


@pytest.mark.parametrize(("family", "hashes", "draws"), [("simhash", 6, 200), ("dwta", 2, 600)])
def test_neurons_are_retrieved_as_often_as_the_formula_says(family, hashes, draws):
    """Over draws of the hash functions, for pairs near and far, p measured on other draws."""
    torch.manual_seed(0)
    inputs = torch.randn(12, 96)
    far = torch.linspace(0.2, 3, 12)[:, None]
    neurons = inputs + far * torch.randn(12, 96)
    tables = 8
    agreed, found = torch.zeros(12), torch.zeros(12)
    for seed in range(draws):
        measured = make_family(family, 96, tables=30, hashes=hashes, seed=10_000 + seed)
        agreed += (measured.values(inputs) == measured.values(neurons)).float().mean((0, 1))
        hashing = make_family(family, 96, tables=tables, hashes=hashes, seed=seed)
        kept = HashTables(hashing.codes(neurons), bits=hashing.bits)
        begin, end = kept.ranges(hashing.codes(inputs))
        for sample in range(12):
            slices = zip(kept.ids, begin[sample], end[sample], strict=True)
            found[sample] += any(sample in ids[a:b] for ids, a, b in slices)
    p, found = (agreed / draws).tolist(), (found / draws).tolist()
    assert max(p) > 0.85
    assert min(p) < 0.65
    for one, share in zip(p, found, strict=True):
        wanted = retrieval_probability(one, hashes=hashes, tables=tables)
        deviation = math.sqrt(wanted * (1 - wanted) / draws)
        assert abs(share - wanted) < 4 * deviation + 0.01, (one, share, wanted)
    assert max(found) - min(found) > 0.3


def test_probability_by_hand():
    assert retrieval_probability(0.5, hashes=2, tables=3) == pytest.approx(1 - 0.75**3)
    assert retrieval_probability(1.0, hashes=9, tables=1) == 1
    assert retrieval_probability(0.0, hashes=1, tables=50) == 0
    assert retrieval_probability(1e-4, hashes=3, tables=50) == pytest.approx(5e-11)
    assert tables_for(0.5, hashes=2, wanted=1 - 0.75**3) == 3
    assert tables_for(0.5, hashes=2, wanted=1 - 0.75**3 + 1e-6) == 4
    assert tables_for(0.9, hashes=8, wanted=0) == tables_for(1, hashes=8, wanted=0.99) == 1
    for wrong in ({"p": 1.1, "hashes": 1}, {"p": 0.5, "hashes": 0}):
        with pytest.raises(ValueError, match="wanted"):
            retrieval_probability(**wrong, tables=1)
    with pytest.raises(ValueError, match="tables=0"):
        retrieval_probability(0.5, hashes=1, tables=0)
    with pytest.raises(ValueError, match="p=0"):
        tables_for(0, hashes=1, wanted=0.5)


def test_refreshes_come_at_the_sum_of_a_growing_series():
    schedule = RefreshSchedule(50, 0.1)
    sums = [sum(50 * math.exp(0.1 * i) for i in range(t)) for t in range(1, 30)]
    wanted = [math.ceil(one) for one in sums if one <= 1000]
    assert wanted[:3] == [50, 106, 167]
    assert schedule.steps(1000) == wanted
    assert [step for step in range(1001) if schedule.due(step)] == wanted
    assert schedule.count(105) == 1
    assert schedule.count(106) == 2
    assert RefreshSchedule(10, 0).steps(35) == [10, 20, 30]
    assert RefreshSchedule(1, 1000.0).steps(10**6) == [1]
    assert as_refresh((50, 0.1)) == schedule
    assert as_refresh(7) == RefreshSchedule(7, 0)
    assert as_refresh(None) is None
    for wrong in ({"first": 0.5}, {"growth": -1}, {"first": math.inf}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RefreshSchedule(**wrong)
    with pytest.raises(TypeError, match="refresh='never'"):
        as_refresh("never")
