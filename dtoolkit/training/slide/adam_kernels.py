"""Compiled loop of the row-sparse Adam: gradient, moments and weights of a row at once."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from dtoolkit.sparsity.hashing.bits import fetch_row
from dtoolkit.sparsity.spreading import compiled
from dtoolkit.training.slide.kernels import AHEAD

__all__ = ["by_factors"]


@compiled
def by_factors(part, parts, rows, ends, samples, places, delta, hidden, weight, m, v, constants):
    """Update the rows of a part whose gradient is the sum of ``delta * hidden`` of its samples."""
    rate, keep, add, keep_square, add_square, root, eps = constants
    gradient = np.empty(weight.shape[1], np.float32)
    entry, stop = parts[part]
    for number in range(entry, stop):
        soon = rows[min(number + AHEAD, stop - 1)]
        fetch_row(weight, soon)
        fetch_row(m, soon)
        fetch_row(v, soon)
        gradient[:] = 0
        while entry < ends[number]:
            other, factor = hidden[samples[entry]], delta[places[entry]]
            for k in range(gradient.size):
                gradient[k] += factor * other[k]
            entry += 1
        own, first, second = weight[rows[number]], m[rows[number]], v[rows[number]]
        for k in range(gradient.size):
            g = gradient[k]
            mean = keep * first[k] + add * g
            square = keep_square * second[k] + add_square * g * g
            first[k], second[k] = mean, square
            own[k] -= rate * mean / (np.sqrt(square) * root + eps)
