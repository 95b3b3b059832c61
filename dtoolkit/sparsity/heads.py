"""Which attention heads stand for others: similarity, and the dominating set.

Dhurandhar et al., "NeuroPrune: a neuro-inspired topological sparse training algorithm for large
language models", ACL Findings 2024, algorithm 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["dominating_heads", "fold_targets", "head_similarity"]


def dominating_heads(similarity: Any) -> list[int]:
    """Find the heads that are kept: those that no other head dominates.

    A head is dominated by one that is similar to all that it is similar to and to more, or to
    exactly the same and comes later.

    Parameters
    ----------
    similarity : array_like, shape (heads, heads)
        Symmetric, of 0 and 1 or bool; every head is similar to itself, whatever the diagonal says.

    Returns
    -------
    list of int
        Ascending, counted from 0 (the paper counts from 1).

    Raises
    ------
    ValueError
        It is not square, not symmetric, or holds something else than 0 and 1.

    Examples
    --------
    A path of four: its ends are dominated by their neighbours.

    >>> dominating_heads([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]])
    [1, 2]
    """
    return sorted(set(fold_targets(similarity)))


def fold_targets(similarity: Any) -> list[int]:
    """Find the head that stands for each: itself where it is kept.

    Parameters
    ----------
    similarity : array_like, shape (heads, heads)
        As in :func:`dominating_heads`.

    Returns
    -------
    list of int
        One entry a head, counted from 0. Who stands for another stands for itself too.

    Raises
    ------
    ValueError
        As in :func:`dominating_heads`.
    """
    alike = _checked(similarity)
    targets = []
    for head in range(len(alike)):
        best = head
        for other in range(len(alike)):
            more = bool((alike[other] & ~alike[best]).any())
            less = bool((alike[best] & ~alike[other]).any())
            if not less and (more or other > best):
                best = other
        targets.append(best)
    return targets


def head_similarity(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, *, theta: float = 0.15
) -> NDArray[np.int64]:
    """Compare heads by their slices of the query, key and value weights.

    Parameters
    ----------
    query, key, value : tensor, shape (heads x head width, inputs)
    heads : int
    theta : float
        Heads are similar where no two weights at the same place differ by more.

    Returns
    -------
    int64 array, shape (heads, heads)
        1 for similar, 0 for not; the diagonal is 1.

    Raises
    ------
    ValueError
        Rows cannot be divided among the heads, `theta` is negative, or weights are NaN.
    """
    if theta < 0:
        raise ValueError(f"theta={theta}: wanted 0 or more")
    slices = []
    for name, weight in (("query", query), ("key", key), ("value", value)):
        if heads < 1 or weight.shape[0] % heads:
            raise ValueError(f"{name}: {weight.shape[0]} rows, which {heads} heads cannot share")
        if bool(weight.isnan().any()):
            raise ValueError(f"{name}: NaN in its weights, heads cannot be compared by that")
        slices.append(weight.detach().reshape(heads, -1))
    whole = torch.cat(slices, dim=1)
    alike = np.eye(heads, dtype=np.int64)
    for head in range(heads - 1):
        distances = (whole[head + 1 :] - whole[head]).abs().amax(1)
        near = (distances <= theta).cpu().numpy()
        alike[head, head + 1 :] = alike[head + 1 :, head] = near
    return alike


def _checked(similarity: Any) -> NDArray[np.bool_]:
    if isinstance(similarity, torch.Tensor):
        similarity = similarity.detach().cpu().numpy()
    alike = np.asarray(similarity)
    if alike.ndim != 2 or alike.shape[0] != alike.shape[1]:
        raise ValueError(f"similarity of shape {alike.shape}: wanted heads x heads")
    if not np.isin(alike, (0, 1)).all():
        raise ValueError("similarity: wanted 0 and 1 alone")
    if not (alike == alike.T).all():
        raise ValueError("similarity: wanted a symmetric matrix")
    alike = alike.astype(bool)
    np.fill_diagonal(alike, True)
    return alike
