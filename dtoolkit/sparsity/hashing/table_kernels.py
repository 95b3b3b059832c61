"""Compiled loops of the hash tables; each call does one table, or one chunk of inputs."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from dtoolkit.sparsity.spreading import compiled

__all__ = ["cap", "direct", "find", "mixed", "sort"]

DIGIT = 11  # bits of a pass of the sort: its counters stay in the first cache


@compiled
def sort(table, codes, bits, ids, ordered):
    """Sort the neurons of a table by code, those of a code by id: a radix sort, which is stable."""
    n = codes.shape[1]
    spare_ids, spare_codes = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        ids[table, i] = i
        ordered[table, i] = codes[table, i]
    place = np.empty((1 << DIGIT) + 1, np.int64)
    for low in range(0, bits, DIGIT):
        place[:] = 0
        for i in range(n):
            place[((ordered[table, i] >> low) & ((1 << DIGIT) - 1)) + 1] += 1
        for digit in range(1 << DIGIT):
            place[digit + 1] += place[digit]
        for i in range(n):
            digit = (ordered[table, i] >> low) & ((1 << DIGIT) - 1)
            spare_ids[place[digit]] = ids[table, i]
            spare_codes[place[digit]] = ordered[table, i]
            place[digit] += 1
        ids[table, :] = spare_ids
        ordered[table, :] = spare_codes


@compiled
def cap(table, ids, ordered, sizes, capacity, drawn, key):
    """Leave at most `capacity` ids of each code: the last that came, or a reservoir's."""
    n, kept, first = ids.shape[1], 0, 0
    while first < n:
        code, last = ordered[table, first], first
        while last < n and ordered[table, last] == code:
            count = last - first
            if count < capacity:
                slot = count
            elif drawn:
                slot = mixed(key, table, ids[table, last]) % np.uint64(count + 1)
            else:
                slot = count % capacity  # the oldest of a full bucket
            if slot < capacity:
                ids[table, kept + np.int64(slot)] = ids[table, last]
            last += 1
        stays = min(capacity, last - first)
        ordered[table, kept : kept + stays] = code
        kept += stays
        first = last
    sizes[table] = kept


@compiled
def mixed(key, table, item):
    """64 bits that depend on key, table and item: two rounds of SplitMix64."""
    word = np.uint64(key)
    for part in (np.uint64(table), np.uint64(item)):
        word = word + (part + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = word ^ (word >> np.uint64(31))
    return word


@compiled
def direct(table, ordered, sizes, shift, directory):
    """Write where the codes with each value of the highest bits begin."""
    entries, entry = directory.shape[1], 0
    for i in range(sizes[table]):
        top = ordered[table, i] >> shift
        while entry <= top:
            directory[table, entry] = i
            entry += 1
    while entry < entries:
        directory[table, entry] = sizes[table]
        entry += 1


@compiled
def find(chunk, height, codes, ordered, directory, shift, begin, end):
    """Look up the buckets of a chunk of inputs."""
    for row in range(chunk * height, min(codes.shape[1], (chunk + 1) * height)):
        for table in range(codes.shape[0]):
            code = codes[table, row]
            first = directory[table, code >> shift]
            last = directory[table, (code >> shift) + 1]
            if shift:
                first = least(ordered, table, first, last, code)
                last = least(ordered, table, first, last, code + 1)
            begin[row, table], end[row, table] = first, last


@compiled
def least(ordered, table, first, last, code):
    """First place, from `first` to `last`, whose code is `code` or more."""
    while first < last:
        middle = (first + last) // 2
        if ordered[table, middle] < code:
            first = middle + 1
        else:
            last = middle
    return first
