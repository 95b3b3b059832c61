"""Compiled loop of a layer with sparse inputs: imported when it is first needed."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dtoolkit.sparsity.spreading import compiled

__all__ = ["pool", "pool_some"]


@compiled
def pool(chunk, height, starts, ids, values, weight, bias, out):
    """Outputs of a chunk of samples: each column by itself, so that any range of them is alike."""
    width = weight.shape[1]
    for sample in range(chunk * height, min(starts.size - 1, (chunk + 1) * height)):
        for k in range(width):
            out[sample, k] = bias[k]
        for entry in range(starts[sample], starts[sample + 1]):
            row, value = ids[entry], values[entry]
            for k in range(width):
                out[sample, k] += value * weight[row, k]


@compiled
def pool_some(chunk, height, indptr, units, starts, ids, values, weight, bias, out):
    """Outputs of a chunk of samples, of each sample's active units alone."""
    for sample in range(chunk * height, min(starts.size - 1, (chunk + 1) * height)):
        for place in range(indptr[sample], indptr[sample + 1]):
            unit = units[place]
            out[sample, unit] = bias[unit]
        for entry in range(starts[sample], starts[sample + 1]):
            row, value = ids[entry], values[entry]
            for place in range(indptr[sample], indptr[sample + 1]):
                out[sample, units[place]] += value * weight[row, units[place]]
