"""Arrays made on the workers; random numbers that know neither ranks nor layouts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import dtoolkit as dt
from dtoolkit import arrays
from dtoolkit.philox import philox, seed_key
from tests.arrays.helpers import layouts, same


def test_constants_and_ranges(cluster3):
    for layout in layouts(8, 3):
        same(arrays.zeros(cluster3, (8, 2), layout=layout), np.zeros((8, 2)), exact=True)
        same(arrays.ones(cluster3, 8, layout=layout), np.ones(8), exact=True)
        same(arrays.full(cluster3, (8,), 2.5, layout=layout), np.full(8, 2.5), exact=True)
        same(arrays.arange(cluster3, 8, layout=layout), np.arange(8.0), exact=True)
        assert arrays.empty(cluster3, (8, 3), layout=layout).shape == (8, 3)
    same(arrays.arange(cluster3, 2, 11, 3), np.arange(2, 11, 3.0), exact=True)
    same(arrays.arange(cluster3, 5, 0, -2), np.arange(5, 0, -2.0), exact=True)
    same(arrays.arange(cluster3, 0.5, 3.1, 0.25), np.arange(0.5, 3.1, 0.25))
    assert arrays.arange(cluster3, 3, 0).shape == (0,)
    assert arrays.zeros(cluster3, (2, 2), dtype="bool").dtype == torch.bool
    same(np.full_like(arrays.zeros(cluster3, (4, 2)), 3), np.full((4, 2), 3.0))
    assert torch.ones_like(arrays.zeros(cluster3, 4, layout="cyclic")).layout.kind == "cyclic"


def test_nothing_is_sent_to_make_them(cluster3):
    cluster3.trace.clear()
    arrays.random(cluster3, (1000, 3), layout="cyclic")
    assert cluster3.trace.total == 0


def test_philox_gives_the_published_numbers():
    # Known answers of Random123 (kat_vectors): counter and key of zeros, of ones, of pi's digits.
    words = 0xFFFFFFFF
    known = [
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([words] * 4, (words, words), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]
    for counter, key, want in known:
        got = philox([torch.tensor([word]) for word in counter], key)
        assert [int(word) for word in got] == want


@pytest.mark.parametrize("make", [arrays.random, arrays.standard_normal])
def test_random_numbers_know_neither_ranks_nor_layouts(cluster_of, make):
    first = make(cluster_of(1), (23, 5), seed=7).to_numpy()
    for parts in (2, 3):
        for layout in layouts(23, parts):
            again = make(cluster_of(parts), (23, 5), seed=7, layout=layout)
            same(again, first, exact=True)
    # A column or row more leaves the others as they are.
    same(make(cluster_of(2), (30, 6), seed=7)[:23, :5], first, exact=True)
    assert not np.array_equal(make(cluster_of(2), (23, 5), seed=8).to_numpy(), first)


def test_seeds_are_hashed_the_same_everywhere():
    assert seed_key(0) == (1118125140, 1576368186)
    assert seed_key(np.int64(5)) == seed_key(5)
    with pytest.raises(TypeError, match="wanted an integer"):
        seed_key(0.5)


def test_distributions(cluster2):
    uniform = arrays.random(cluster2, (20_000, 3), seed=1).to_numpy()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-3
    normal = arrays.standard_normal(cluster2, (20_000, 3), seed=1).to_numpy()
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(normal.T) - np.eye(3)).max() < 0.03
    assert len(np.unique(uniform)) == uniform.size


def test_narrow_dtypes_have_the_leading_bits(cluster2):
    wide = arrays.random(cluster2, (50, 4), seed=3).to_numpy()
    narrow = arrays.random(cluster2, (50, 4), seed=3, dtype="float32").to_numpy()
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow, np.floor(wide * 2**24) / 2**24)
    half = arrays.random(cluster2, (50, 4), seed=3, dtype="bfloat16")
    np.testing.assert_array_equal(half.to_numpy(), np.floor(wide * 2**8) / 2**8)
    z = arrays.standard_normal(cluster2, (4000, 2), seed=3, dtype="complex64").to_numpy()
    assert z.dtype == np.complex64
    assert abs((abs(z) ** 2).mean() - 1) < 0.05
    assert arrays.random(cluster2, 5).shape == (5,)


def test_wrong_arguments_are_refused(cluster2):
    for shape in ((2, 2, 2), (), -1, (2, -1), "x", 2.5):
        with pytest.raises(ValueError, match="shape="):
            arrays.zeros(cluster2, shape)
    with pytest.raises(TypeError, match="does not fit"):
        arrays.full(cluster2, 3, 1j)
    with pytest.raises(TypeError, match="random numbers"):
        arrays.random(cluster2, 3, dtype="int64")
    with pytest.raises(ValueError, match="step"):
        arrays.arange(cluster2, 0, 3, 0)
    with pytest.raises(MemoryError, match="rank 0"):
        arrays.zeros(cluster2, (10**9, 10**4))
    with pytest.raises(dt.errors.LayoutError):
        arrays.zeros(cluster2, 3, layout=dt.Layout.block(4, 2))
