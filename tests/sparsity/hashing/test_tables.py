"""Buckets against plain dictionaries: every id, first in first out, and reservoirs."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from dtoolkit.philox import seed_key
from dtoolkit.sparsity.hashing import HashTables

WORD = (1 << 64) - 1


def codes_of(tables: int, n: int, kinds: int, bits: int, seed: int = 0) -> np.ndarray:
    """Codes of which some come often and most seldom, up to the highest."""
    generator = np.random.default_rng(seed)
    there = np.append(generator.integers(0, 1 << bits, kinds - 1), (1 << bits) - 1)
    often = 1 / np.arange(1, kinds + 1)
    return generator.choice(there, (tables, n), p=often / often.sum()).astype(np.int32)


def buckets_of(codes: np.ndarray) -> list[dict[int, list[int]]]:
    tables = []
    for row in codes.tolist():
        found = defaultdict(list)
        for neuron, code in enumerate(row):
            found[code].append(neuron)
        tables.append(found)
    return tables


@pytest.mark.parametrize(("bits", "kinds"), [(1, 2), (6, 20), (12, 300), (24, 300), (30, 5)])
def test_uncapped_buckets_hold_every_id_in_order(bits, kinds):
    codes = codes_of(4, 500, kinds, bits)
    tables = HashTables(codes, bits=bits)
    assert (tables.shift > 0) == (bits > 13)  # both ways of looking up are tried
    asked = np.stack([np.append(np.unique(row)[:2], [0, (1 << bits) - 1, row[7]]) for row in codes])
    begin, end = tables.ranges(asked)
    for table, wanted in enumerate(buckets_of(codes)):
        for code, ids in wanted.items():
            assert tables.bucket(table, code).tolist() == ids
        for place, code in enumerate(asked[table].tolist()):
            found = tables.ids[table, begin[place, table] : end[place, table]]
            assert found.tolist() == wanted.get(code, [])
    sizes = [len(ids) for one in buckets_of(codes) for ids in one.values()]
    told = tables.buckets()
    assert (told.count, told.largest, told.dropped) == (len(sizes), max(sizes), 0)
    assert told.mean == pytest.approx(np.mean(sizes))


@pytest.mark.parametrize("bits", [8, 22])
@pytest.mark.parametrize("capacity", [1, 3, 64])
def test_a_full_bucket_lets_the_oldest_go(bits, capacity):
    codes = codes_of(3, 400, 12, bits)
    tables = HashTables(codes, bits=bits, capacity=capacity, policy="fifo")
    dropped = 0
    for table, wanted in enumerate(buckets_of(codes)):
        for code, ids in wanted.items():
            slots = [-1] * capacity
            for count, neuron in enumerate(ids):
                slots[count % capacity] = neuron
            kept = [neuron for neuron in slots if neuron >= 0]
            assert tables.bucket(table, code).tolist() == kept
            assert set(kept) == set(ids[-capacity:])
            dropped += len(ids) - len(kept)
    assert tables.buckets().dropped == dropped
    assert dropped > 0


def test_a_reservoir_is_what_its_draws_say():
    codes = codes_of(3, 400, 12, 8)
    tables = HashTables(codes, bits=8, capacity=5, policy="reservoir", seed=9)
    low, high = seed_key(9, "reservoir", domain="dtoolkit.sparsity")
    for table, wanted in enumerate(buckets_of(codes)):
        for code, ids in wanted.items():
            slots = ids[:5]
            for count, neuron in enumerate(ids[5:], start=5):
                slot = mixed(low | high << 32, table, neuron) % (count + 1)
                if slot < 5:
                    slots[slot] = neuron
            assert tables.bucket(table, code).tolist() == slots


def test_a_reservoir_keeps_every_id_as_often():
    kept = np.zeros(40)
    codes = np.zeros((50, 40), np.int32)  # 50 tables of one bucket
    for seed in range(40):
        tables = HashTables(codes, bits=1, capacity=10, policy="reservoir", seed=seed)
        kept += np.bincount(np.concatenate([tables.bucket(t, 0) for t in range(50)]), minlength=40)
    assert kept.sum() == 40 * 50 * 10
    share = kept / 2000
    assert np.abs(share - 0.25).max() < 4.5 * np.sqrt(0.25 * 0.75 / 2000)


def test_tables_without_neurons_are_empty():
    tables = HashTables(np.empty((3, 0), np.int32), bits=20)
    begin, end = tables.ranges(np.ones((3, 5), np.int32))
    assert (begin == end).all()
    assert tables.buckets().count == 0
    assert "0 neurons in 3 tables, uncapped" in repr(tables)


def test_refusals_name_what_is_wrong():
    codes = np.array([[0, 4]], np.int32)
    with pytest.raises(ValueError, match="from 0 to 4: wanted 0 to 3"):
        HashTables(codes, bits=2)
    with pytest.raises(ValueError, match="bits=31"):
        HashTables(codes, bits=31)
    with pytest.raises(ValueError, match="capacity=0"):
        HashTables(codes, bits=3, capacity=0)
    with pytest.raises(ValueError, match="policy='lifo': wanted one of fifo, reservoir"):
        HashTables(codes, bits=3, capacity=1, policy="lifo")
    with pytest.raises(ValueError, match=r"shape \(2, 1\): wanted \(1, n\)"):
        HashTables(codes, bits=3).ranges(np.zeros((2, 1), np.int32))


def mixed(key: int, table: int, item: int) -> int:
    word = key
    for part in (table, item):
        word = (word + (part + 1) * 0x9E3779B97F4A7C15) & WORD
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & WORD
        word ^= word >> 31
    return word
