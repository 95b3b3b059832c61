"""Compiled loop of the row-sparse Adam: gradient, moments and weights of a row at once."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from dtoolkit.sparsity.hashing.spreading import compiled

__all__ = ["by_factors"]


@compiled
def by_factors(
    part, bounds, indptr, samples, places, delta, hidden, weight, first, second, *constants
):
    """Update the rows of a part whose gradient is the sum of ``delta * hidden`` of its samples."""
    rate, beta, gamma, root, eps = constants
    one, two = np.float32(beta), np.float32(gamma)
    rate, root, eps = np.float32(rate), np.float32(root), np.float32(eps)
    one_left, two_left = np.float32(1 - beta), np.float32(1 - gamma)
    width = weight.shape[1]
    gradient = np.empty(width, np.float32)
    for row in range(bounds[part], bounds[part + 1]):
        if indptr[row] == indptr[row + 1]:
            continue
        gradient[:] = 0
        for entry in range(indptr[row], indptr[row + 1]):
            sample, factor = samples[entry], delta[places[entry]]
            for k in range(width):
                gradient[k] += factor * hidden[sample, k]
        for k in range(width):
            g = gradient[k]
            m = one * first[row, k] + one_left * g
            v = two * second[row, k] + two_left * g * g
            first[row, k], second[row, k] = m, v
            weight[row, k] -= rate * m / (np.sqrt(v) * root + eps)
