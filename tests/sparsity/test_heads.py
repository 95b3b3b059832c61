from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtoolkit.sparsity import dominating_heads, head_similarity
from dtoolkit.sparsity.heads import fold_targets


def graph(heads, *edges):
    """Similarity of heads that are counted from 1, as in the paper."""
    alike = np.eye(heads, dtype=int)
    for one, other in edges:
        alike[one - 1, other - 1] = alike[other - 1, one - 1] = 1
    return alike


def path(heads):
    return graph(heads, *zip(range(1, heads), range(2, heads + 1), strict=True))


@pytest.mark.parametrize(
    ("similarity", "kept"),
    [
        (graph(4, *itertools.combinations(range(1, 5), 2)), {4}),
        (path(3), {2}),
        (path(4), {2, 3}),
        (graph(5, (1, 2), (1, 3), (1, 4), (1, 5)), {1}),
        (path(6), {2, 3, 4, 5}),
        (graph(4, (1, 2), (2, 3), (3, 4), (4, 1)), {1, 2, 3, 4}),
        (graph(3), {1, 2, 3}),
        (graph(1), {1}),
    ],
    ids=["clique", "path 3", "path 4", "star", "path 6", "cycle", "none alike", "one head"],
)
def test_published_examples(similarity, kept):
    wanted = sorted(head - 1 for head in kept)
    assert dominating_heads(similarity) == wanted
    assert dominating_heads(similarity.astype(bool)) == wanted
    assert dominating_heads(torch.from_numpy(similarity)) == wanted
    assert dominating_heads(similarity.tolist()) == wanted
    bare = similarity.copy()
    np.fill_diagonal(bare, 0)
    assert dominating_heads(bare) == wanted


def by_the_paper(similarity):
    """FIND_DOMINATING, word for word."""
    targets = []
    for i in range(len(similarity)):
        best = i
        for j in range(len(similarity)):
            s = similarity[best] - similarity[j]
            if (1 not in s and -1 in s) or (not s.any() and best < j):
                best = j
        targets.append(best)
    return targets


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10**6))
def test_any_graph(heads, seed):
    upper = np.triu(np.random.default_rng(seed).integers(0, 2, (heads, heads)), 1)
    similarity = upper + upper.T + np.eye(heads, dtype=int)
    targets = fold_targets(similarity)
    assert targets == by_the_paper(similarity)
    assert all(targets[target] == target for target in targets)
    assert all(similarity[head, target] for head, target in enumerate(targets))
    assert dominating_heads(similarity) == sorted(set(targets))


def test_similarity_is_the_largest_difference_of_the_slices():
    torch.manual_seed(0)
    query, key, value = torch.zeros(3, 6, 4).unbind()
    key[4, 1] = 0.15
    value[1, 0] = -0.2
    # Heads of two rows: 1 is like the others but for 0's value, 2 differs by 0.15 in its key.
    assert head_similarity(query, key, value, 3, theta=0.15).tolist() == [
        [1, 0, 0],
        [0, 1, 1],
        [0, 1, 1],
    ]
    assert head_similarity(query, key, value, 3, theta=0.2).tolist() == [[1] * 3] * 3
    assert head_similarity(query, key, value, 3, theta=0.1).tolist() == np.eye(3).tolist()


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="heads x heads"):
        dominating_heads(np.ones((2, 3)))
    with pytest.raises(ValueError, match="symmetric"):
        dominating_heads([[1, 1], [0, 1]])
    with pytest.raises(ValueError, match="0 and 1"):
        dominating_heads([[1, 0.5], [0.5, 1]])
    weight = torch.zeros(6, 4)
    with pytest.raises(ValueError, match="4 heads"):
        head_similarity(weight, weight, weight, 4)
    with pytest.raises(ValueError, match="theta"):
        head_similarity(weight, weight, weight, 3, theta=-1)
    with pytest.raises(ValueError, match="NaN"):
        head_similarity(weight, weight * torch.nan, weight, 3)
