"""Compiled loops of DWTA: imported when first needed, since Numba takes a while."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from dtoolkit.sparsity.hashing.bits import LANES, winners
from dtoolkit.sparsity.spreading import compiled

__all__ = ["dense_codes", "sparse_codes"]

EMPTY = np.int8(-1)


@compiled
def dense_codes(chunk, height, rows, places, donors, hashes, codes):
    """Codes of one chunk of dense vectors: ``codes[:, chunk * height : (chunk + 1) * height]``."""
    last = min(rows.shape[0], (chunk + 1) * height)
    features, bins = rows.shape[1], places.shape[0]
    block = np.empty((features, LANES), np.float32)
    found = np.empty((bins, LANES), np.int8)
    code, signs = np.empty(LANES, np.int32), np.empty(LANES, np.int32)
    values = np.empty(bins, np.int8)
    for first in range(chunk * height, last, LANES):
        lanes = min(LANES, last - first)
        for lane in range(LANES):
            row = first + min(lane, lanes - 1)
            for k in range(features):
                value = rows[row, k]
                block[k, lane] = value if value != 0 else -np.inf
        for b in range(bins):
            winners(block, places, found, b)
        signs[:] = 0
        for table in range(codes.shape[0]):
            code[:] = 0
            for b in range(table * hashes, (table + 1) * hashes):
                for lane in range(LANES):
                    value = np.int32(found[b, lane])
                    code[lane] = (code[lane] << 3) | value
                    signs[lane] |= value
            for lane in range(lanes):
                codes[table, first + lane] = code[lane]
        for lane in range(lanes):
            if signs[lane] < 0:  # a bin is empty
                for b in range(bins):
                    values[b] = found[b, lane]
                join(values, donors, hashes, codes, first + lane)


@compiled
def sparse_codes(chunk, height, indptr, indices, data, starts, uses, places, donors, hashes, codes):
    """Codes of one chunk of the rows of a CSR matrix without stored zeros."""
    bins, size = places.shape
    best = np.empty(bins, np.float32)
    values = np.empty(bins, np.int8)
    for row in range(chunk * height, min(indptr.size - 1, (chunk + 1) * height)):
        values[:] = EMPTY
        for entry in range(indptr[row], indptr[row + 1]):
            feature, value = indices[entry], data[entry]
            for use in range(starts[feature], starts[feature + 1]):
                b, place = uses[use] // size, uses[use] % size
                if (
                    values[b] == EMPTY
                    or value > best[b]
                    or (value == best[b] and place < values[b])
                ):
                    best[b], values[b] = value, place
        join(values, donors, hashes, codes, row)


@compiled
def join(values, donors, hashes, codes, row):
    """Fill empty bins, and write the codes of a vector from the values of its bins."""
    bins = values.size
    for table in range(codes.shape[0]):
        code = 0
        for b in range(table * hashes, (table + 1) * hashes):
            value = values[b]
            turn, donor = 0, donors[b, 0]
            while value == EMPTY and turn < bins:
                value = values[donor]
                donor = (donor + donors[b, 1]) % bins
                turn += 1
            code = (code << 3) | (value if value != EMPTY else 0)
        codes[table, row] = code
