"""Compiled loops of the active set: imported when first needed, since Numba takes a while.

Each call does one chunk, of samples or of rows, and writes where no other chunk does.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from dtoolkit.sparsity.hashing.bits import fetch_row, next_bit
from dtoolkit.sparsity.hashing.table_kernels import mixed
from dtoolkit.sparsity.spreading import compiled

__all__ = [
    "AHEAD",
    "cut",
    "deltas",
    "draw",
    "logits",
    "maxima",
    "pack",
    "pull",
    "scale",
    "sums",
    "turn",
    "unite",
]

ONE = np.uint64(1)
AHEAD = 8  # rows between the one that is worked on and the one that is fetched


@compiled
def unite(chunk, height, begin, end, ids, label_indptr, label_ids, rows, starts, out, sizes, found):
    """Unite buckets and labels of a chunk of samples, ascending, into `out` from `starts` on.

    A bit a neuron, and one for each 64 of these: what was set is found again without a look at
    all neurons.
    """
    words = np.zeros((rows >> 6) + 1, np.uint64)
    tops = np.zeros((words.size >> 6) + 1, np.uint64)
    for sample in range(chunk * height, min(begin.shape[0], (chunk + 1) * height)):
        for table in range(begin.shape[1]):
            for place in range(begin[sample, table], end[sample, table]):
                mark(words, tops, ids[table, place])
        hits = 0
        for place in range(label_indptr[sample], label_indptr[sample + 1]):
            hits += not mark(words, tops, label_ids[place])
        found[sample] = hits
        sizes[sample] = collect(words, tops, out, starts[sample])


@compiled
def mark(words, tops, row):
    """Set the bit of a neuron; False where it was set."""
    word, bit = row >> 6, ONE << np.uint64(row & 63)
    if words[word] & bit:
        return False
    words[word] |= bit
    tops[word >> 6] |= ONE << np.uint64(word & 63)
    return True


@compiled
def collect(words, tops, out, target):
    """Write what was marked in ascending order from `target` on, unmark it, and count it."""
    first = target
    for top in range(tops.size):
        while tops[top]:
            word = (top << 6) + next_bit(tops[top])
            while words[word]:
                out[target] = (word << 6) + next_bit(words[word])
                target += 1
                words[word] &= words[word] - ONE
            tops[top] &= tops[top] - ONE
    return target - first


@compiled
def draw(chunk, height, key, classes, drawn):
    """Draw distinct classes for each sample of a chunk, as many as `drawn` has columns."""
    words = np.zeros((classes >> 6) + 1, np.uint64)
    tops = np.zeros((words.size >> 6) + 1, np.uint64)
    for sample in range(chunk * height, min(drawn.shape[0], (chunk + 1) * height)):
        left, turn = drawn.shape[1], 0
        while left:
            left -= mark(words, tops, np.int64(mixed(key, sample, turn) % np.uint64(classes)))
            turn += 1
        collect(words, tops, drawn[sample], 0)


@compiled
def pack(chunk, height, starts, indptr, out, ids):
    """Move the sets of a chunk of samples together."""
    for sample in range(chunk * height, min(indptr.size - 1, (chunk + 1) * height)):
        shift = starts[sample] - indptr[sample]
        for place in range(indptr[sample], indptr[sample + 1]):
            ids[place] = out[place + shift]


@compiled
def cut(bound, bounds, indptr, ids, cuts):
    """Find in each sample's ascending set the first neuron that is not below a bound."""
    for sample in range(indptr.size - 1):
        first, last = indptr[sample], indptr[sample + 1]
        while first < last:
            middle = (first + last) // 2
            if ids[middle] < bounds[bound]:
                first = middle + 1
            else:
                last = middle
        cuts[bound, sample] = first


@compiled
def turn(part, bounds, cuts, ids, parts, rows, ends, samples, places):
    """Write the rows of a part that are active, and the samples of each: a counting sort."""
    low, start = bounds[part], parts[part, 0]
    place = np.zeros(bounds[part + 1] - low + 1, np.int64)
    for sample in range(cuts.shape[1]):
        for entry in range(cuts[part, sample], cuts[part + 1, sample]):
            place[ids[entry] - low + 1] += 1
    place[0] = start
    kept = start  # a part has as many entries as active rows, or more: these fit where those do
    for row in range(place.size - 1):
        if place[row + 1]:
            rows[kept] = low + row
            ends[kept] = place[row] + place[row + 1]
            kept += 1
        place[row + 1] += place[row]
    parts[part, 1] = kept
    for sample in range(cuts.shape[1]):
        for entry in range(cuts[part, sample], cuts[part + 1, sample]):
            row = ids[entry] - low
            samples[place[row]] = sample
            places[place[row]] = entry
            place[row] += 1


@compiled
def logits(part, parts, rows, ends, samples, places, weight, bias, hidden, values):
    """Compute the logits of the rows of a part, each row of weights read once."""
    entry, stop = parts[part]
    for number in range(entry, stop):
        row = rows[number]
        fetch_row(weight, rows[min(number + AHEAD, stop - 1)])
        own = weight[row]
        while entry < ends[number]:
            other = hidden[samples[entry]]
            total = np.float32(0)
            for k in range(own.size):
                total += own[k] * other[k]
            values[places[entry]] = total + bias[row]
            entry += 1


@compiled
def maxima(chunk, height, indptr, values, largest):
    """Largest logit of each sample; minus infinity where it has none."""
    for sample in range(chunk * height, min(indptr.size - 1, (chunk + 1) * height)):
        best = np.float32(-np.inf)
        for place in range(indptr[sample], indptr[sample + 1]):
            best = max(best, values[place])
        largest[sample] = best


@compiled
def sums(chunk, height, indptr, values, largest, total):
    """Sum of ``exp(logit - largest)`` of each sample."""
    for sample in range(chunk * height, min(indptr.size - 1, (chunk + 1) * height)):
        added = 0.0
        for place in range(indptr[sample], indptr[sample + 1]):
            added += np.exp(values[place] - largest[sample])
        total[sample] = added


@compiled
def deltas(
    chunk, height, indptr, ids, values, largest, total, label_indptr, label_ids, counts, out, losses
):
    """``p - 1[label] / labels`` of each entry, and the part of the loss of the labels held."""
    for sample in range(chunk * height, min(indptr.size - 1, (chunk + 1) * height)):
        losses[sample] = 0
        if counts[sample] == 0:
            out[indptr[sample] : indptr[sample + 1]] = 0
            continue
        share, norm = np.float32(1) / np.float32(counts[sample]), np.log(total[sample])
        label, last, loss = label_indptr[sample], label_indptr[sample + 1], np.float32(0)
        for place in range(indptr[sample], indptr[sample + 1]):
            over = values[place] - largest[sample]
            delta = np.exp(over) / total[sample]
            if label < last and label_ids[label] == ids[place]:
                delta -= share
                loss += (norm - over) * share
                label += 1
            out[place] = delta
        losses[sample] = loss


@compiled
def scale(chunk, height, indptr, delta, factors, out):
    """Multiply the entries of each sample of a chunk by a factor of its own."""
    for sample in range(chunk * height, min(indptr.size - 1, (chunk + 1) * height)):
        for place in range(indptr[sample], indptr[sample + 1]):
            out[place] = delta[place] * factors[sample]


@compiled
def pull(part, parts, rows, ends, samples, places, weight, delta, gradient):
    """Add what the rows of a part say of the inputs: ``gradient[part] = delta.T @ weight``."""
    gradient[part] = 0
    entry, stop = parts[part]
    for number in range(entry, stop):
        fetch_row(weight, rows[min(number + AHEAD, stop - 1)])
        own = weight[rows[number]]
        while entry < ends[number]:
            target, factor = gradient[part, samples[entry]], delta[places[entry]]
            for k in range(own.size):
                target[k] += factor * own[k]
            entry += 1
