"""Stochastic block model: graphs with planted communities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.sparse import csr_array

from dtoolkit.data.canonical import from_triplets
from dtoolkit.data.sampling import Values, check_count, from_pairs, streams

__all__ = ["block_model"]


def block_model(
    sizes: Sequence[int],
    probabilities: ArrayLike,
    *,
    seed: int,
    directed: bool = False,
    permute: bool = False,
    values: Values = "ones",
    dtype: DTypeLike = np.float32,
) -> csr_array:
    """Graph in which an edge's probability depends on the blocks of its two ends alone.

    Each pair of different vertices is an edge independently of all others. The time taken grows
    with the edges, not with the pairs: the gaps between edges are drawn.

    Parameters
    ----------
    sizes : sequence of int
        Vertices of each block, numbered block after block.
    probabilities : array-like, (blocks, blocks), or pair of floats
        Probability of an edge from a vertex of block i to one of block j; symmetric unless
        ``directed``. A pair is (within a block, between blocks).
    seed : int
        Same seed, same matrix.
    directed : bool, optional
        Without, the matrix is symmetric, values included.
    permute : bool, optional
        Hide the blocks: renumber the vertices by a random permutation.
    values, dtype
        As for the other generators: "ones", "normal" or "uniform"; float32 or float64.

    Returns
    -------
    scipy.sparse.csr_array, (n, n) with n = sum(sizes)

    Raises
    ------
    TypeError, ValueError
        If an argument is out of its range, named in the error.

    References
    ----------
    Holland, Laskey and Leinhardt, "Stochastic blockmodels: first steps", Social Networks 5 (1983).
    Batagelj and Brandes, "Efficient generation of large random networks", Physical Review E 71
    (2005), for the gaps.
    """
    counts = np.array([check_count("sizes", size) for size in sizes], dtype=np.int64)
    if len(counts) == 0:
        raise ValueError("sizes is empty: want at least one block")
    table = _probability_table(probabilities, len(counts), directed)
    rng, value_rng = streams(seed)
    rows, columns = _edges(counts, table, directed, rng)
    n = int(counts.sum())
    number = rng.permutation(n) if permute else np.arange(n)
    lower = from_pairs(
        number[rows], number[columns], (n, n), values=values, rng=value_rng, dtype=dtype
    )
    if directed:
        return lower
    # Each edge was drawn once: its mirror has its value.
    half = lower.tocoo()
    return from_triplets(
        np.concatenate([half.row, half.col]),
        np.concatenate([half.col, half.row]),
        np.concatenate([half.data, half.data]),
        (n, n),
        what="block model",
    )


def _probability_table(probabilities: ArrayLike, blocks: int, directed: bool) -> NDArray:
    table = np.asarray(probabilities, dtype=np.float64)
    if table.shape == (2,):
        within, between = table
        table = np.where(np.eye(blocks, dtype=bool), within, between)
    if table.shape != (blocks, blocks):
        raise ValueError(
            f"probabilities has shape {table.shape}: want ({blocks}, {blocks}), or a pair "
            "(within, between)"
        )
    if not ((table >= 0) & (table <= 1)).all():
        raise ValueError("probabilities has entries that are not from 0 to 1")
    if not directed and (table != table.T).any():
        raise ValueError("probabilities is not symmetric: want directed=True, or a symmetric table")
    return table


def _edges(
    sizes: NDArray, table: NDArray, directed: bool, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """Edges between numbered vertices; of an undirected graph, those with row > column."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows, columns = [], []
    for i in range(len(sizes)):
        for j in range(len(sizes) if directed else i + 1):
            cells = _successes(int(sizes[i] * sizes[j]), table[i, j], rng)
            row = starts[i] + cells // max(int(sizes[j]), 1)
            column = starts[j] + cells % max(int(sizes[j]), 1)
            kept = row != column if directed else row > column
            rows.append(row[kept])
            columns.append(column[kept])
    return np.concatenate(rows), np.concatenate(columns)


def _successes(trials: int, probability: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of the trials that succeed, ascending."""
    if trials == 0 or probability == 0:
        return np.zeros(0, np.int64)
    parts = []
    last = -1
    while last < trials - 1:
        expected = (trials - last) * probability
        gaps = rng.geometric(probability, size=int(expected + 4 * expected**0.5) + 8)
        places = last + np.cumsum(np.minimum(gaps, trials + 1))
        parts.append(places[places < trials])
        last = int(places[-1])
    return np.concatenate(parts)
