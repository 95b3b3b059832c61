"""Random matrices by seed: the same call gives the same matrix on every machine.

All draw from NumPy's PCG64 through ``SeedSequence(seed)``, structure and values from streams of
their own, and return canonical CSR without duplicates. ``values`` is ``"ones"`` (default),
``"normal"`` or ``"uniform"``; ``dtype`` is float32 (default) or float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from dtoolkit.data.sampling import Values, check_count, check_probability, from_pairs, streams

__all__ = ["banded", "hubs", "power_law", "rmat", "uniform"]

_BATCH = 1 << 18
_LEAST_CORNER = 0.05


def rmat(
    n: int,
    edge_factor: int = 16,
    *,
    seed: int,
    probabilities: Sequence[float] = (0.57, 0.19, 0.19, 0.05),
    permute: bool = True,
    values: Values = "ones",
    dtype: DTypeLike = np.float32,
) -> csr_array:
    """Recursive-matrix (R-MAT, Kronecker) graph: hubs, communities, a heavy-tailed degree.

    ``edge_factor * n`` directed edges are drawn, each by halving the matrix in both directions
    until one cell is left, choosing a quadrant with the given probabilities each time. Duplicates
    are collapsed. Where ``n`` is no power of two, the next one is used and edges outside are drawn
    again.

    Parameters
    ----------
    n : int
        Rows and columns.
    edge_factor : int, optional
        Edges drawn per row.
    seed : int
        Same seed, same matrix.
    probabilities : four floats, optional
        Of the quadrants upper left, upper right, lower left, lower right; they sum to 1. The
        default is Graph500's.
    permute : bool, optional
        Renumber by one random permutation, the same for rows and columns. Without, hubs have the
        low numbers.
    values, dtype
        See the module.

    Returns
    -------
    scipy.sparse.csr_array, (n, n)

    Raises
    ------
    TypeError, ValueError
        If an argument is out of its range, named in the error.

    References
    ----------
    Chakrabarti, Zhan and Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SDM 2004.
    """
    check_count("n", n, least=1)
    check_count("edge_factor", edge_factor)
    shares = _quadrants(n, probabilities)
    rng, value_rng = streams(seed)
    levels = (n - 1).bit_length()
    left = edge_factor * n
    rows, columns = [], []
    while left:
        r, c = _descend(levels, min(left, _BATCH), shares, rng)
        inside = (r < n) & (c < n)
        rows.append(r[inside])
        columns.append(c[inside])
        left -= int(inside.sum())
    number = rng.permutation(n) if permute else np.arange(n)
    return from_pairs(
        number[_joined(rows)],
        number[_joined(columns)],
        (n, n),
        values=values,
        rng=value_rng,
        dtype=dtype,
    )


def uniform(
    n: int,
    degree: int,
    *,
    seed: int,
    values: Values = "ones",
    dtype: DTypeLike = np.float32,
) -> csr_array:
    """Draw ``degree * n`` pairs uniformly at random; duplicates are collapsed.

    Parameters
    ----------
    n : int
        Rows and columns.
    degree : int
        Pairs drawn per row.
    seed : int
        Same seed, same matrix.
    values, dtype
        See the module.

    Returns
    -------
    scipy.sparse.csr_array, (n, n)

    Raises
    ------
    TypeError, ValueError
        If an argument is out of its range, named in the error.
    """
    check_count("n", n, least=1)
    pairs = check_count("degree", degree) * n
    rng, value_rng = streams(seed)
    rows, columns = rng.integers(n, size=pairs), rng.integers(n, size=pairs)
    return from_pairs(rows, columns, (n, n), values=values, rng=value_rng, dtype=dtype)


def hubs(
    n: int,
    rows: int,
    cols: int,
    degree: int = 8,
    *,
    seed: int,
    values: Values = "ones",
    dtype: DTypeLike = np.float32,
) -> csr_array:
    """Matrix of a few full rows and columns, the case where a joint cover wins most.

    ``degree * n`` pairs (random row, one of the hub columns) and as many (one of the hub rows,
    random column); duplicates are collapsed; then one random permutation renumbers rows and
    columns.

    Parameters
    ----------
    n : int
        Rows and columns.
    rows, cols : int
        Number of hub rows and hub columns; 0 for none of that kind.
    degree : int, optional
        Pairs of each kind drawn per row.
    seed : int
        Same seed, same matrix.
    values, dtype
        See the module.

    Returns
    -------
    scipy.sparse.csr_array, (n, n)

    Raises
    ------
    TypeError, ValueError
        If an argument is out of its range, named in the error.
    """
    check_count("n", n, least=1)
    for name, count in (("rows", rows), ("cols", cols)):
        if check_count(name, count) > n:
            raise ValueError(f"{name}={count}: want at most n={n}")
    pairs = check_count("degree", degree) * n
    rng, value_rng = streams(seed)
    to_columns, to_rows = pairs if cols else 0, pairs if rows else 0
    number = rng.permutation(n)
    r = [rng.integers(n, size=to_columns), rng.integers(max(rows, 1), size=to_rows)]
    c = [rng.integers(max(cols, 1), size=to_columns), rng.integers(n, size=to_rows)]
    return from_pairs(
        number[_joined(r)],
        number[_joined(c)],
        (n, n),
        values=values,
        rng=value_rng,
        dtype=dtype,
    )


def banded(
    n: int,
    bandwidth: int,
    *,
    seed: int,
    density: float = 1.0,
    values: Values = "ones",
    dtype: DTypeLike = np.float32,
) -> csr_array:
    """Matrix whose entries lie within ``bandwidth`` of the diagonal, as a mesh's do.

    Parameters
    ----------
    n : int
        Rows and columns.
    bandwidth : int
        Largest distance of an entry from the diagonal; 0 gives a diagonal, 1 a tridiagonal matrix.
    seed : int
        Same seed, same matrix.
    density : float, optional
        Probability that a place off the diagonal in the band is an entry; the diagonal is full.
    values, dtype
        See the module.

    Returns
    -------
    scipy.sparse.csr_array, (n, n)

    Raises
    ------
    TypeError, ValueError
        If an argument is out of its range, named in the error.
    """
    check_count("n", n, least=1)
    width = min(check_count("bandwidth", bandwidth), n - 1)
    check_probability("density", density)
    rng, value_rng = streams(seed)
    rows, columns = [], []
    for offset in range(-width, width + 1):
        places = np.arange(max(0, -offset), min(n, n - offset))
        if offset and density < 1:
            places = places[rng.random(len(places)) < density]
        rows.append(places)
        columns.append(places + offset)
    return from_pairs(
        _joined(rows), _joined(columns), (n, n), values=values, rng=value_rng, dtype=dtype
    )


def power_law(
    n: int,
    degree: int,
    *,
    seed: int,
    local: int | None = None,
    local_share: float = 0.9,
    exponent: float = 0.565,
    values: Values = "ones",
    dtype: DTypeLike = np.float32,
) -> csr_array:
    """Power-law graph, its hubs anywhere (*scattered*) or most of its edges near the diagonal.

    ``degree * n`` edges are drawn; both ends are chosen with probability proportional to
    ``rank ** -exponent``, where one random permutation ranks the vertices (Chung and Lu's model:
    the degrees have a tail of exponent ``1 + 1 / exponent``). Duplicates are collapsed.

    The default exponent is calibrated so that 200,000 rows of degree 16 in block rows over 4 ranks
    need what two measured graphs need: about 554,000 of 600,000 foreign rows scattered, about
    177,000 with ``local=2000``.

    Parameters
    ----------
    n : int
        Rows and columns.
    degree : int
        Edges drawn per row.
    seed : int
        Same seed, same matrix.
    local : int, optional
        Where given, most edges end within that many rows of where they start, evenly spread; what
        would fall off the matrix is reflected at its border.
    local_share : float, optional
        Share of such edges.
    exponent : float, optional
        0 gives uniform ends; larger ones larger hubs.
    values, dtype
        See the module.

    Returns
    -------
    scipy.sparse.csr_array, (n, n)

    Raises
    ------
    TypeError, ValueError
        If an argument is out of its range, named in the error.

    References
    ----------
    Chung and Lu, "Connected components in random graphs with given expected degree sequences",
    Annals of Combinatorics 6 (2002).
    """
    check_count("n", n, least=1)
    edges = check_count("degree", degree) * n
    check_probability("local_share", local_share)
    if not 0 <= exponent < np.inf:
        raise ValueError(f"exponent={exponent}: want a number of at least 0")
    rng, value_rng = streams(seed)
    number = rng.permutation(n)
    heap = np.cumsum(np.arange(1, n + 1, dtype=np.float64) ** -exponent)
    rows, columns = (
        number[np.searchsorted(heap, rng.random(edges) * heap[-1], side="right").clip(max=n - 1)]
        for _ in range(2)
    )
    if local is not None:
        reach = min(check_count("local", local), n - 1)
        near = np.flatnonzero(rng.random(edges) < local_share)
        ends = rows[near] + rng.integers(-reach, reach + 1, size=len(near))
        ends = np.where(ends < 0, -1 - ends, ends)
        columns[near] = np.where(ends >= n, 2 * n - 1 - ends, ends)
    return from_pairs(rows, columns, (n, n), values=values, rng=value_rng, dtype=dtype)


def _quadrants(n: int, probabilities: Sequence[float]) -> NDArray[np.float64]:
    shares = np.asarray(probabilities, dtype=np.float64)
    if shares.shape != (4,) or not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"probabilities={probabilities!r}: want four shares that sum to 1")
    if n & (n - 1) and shares[0] < _LEAST_CORNER:
        raise ValueError(
            f"probabilities={probabilities!r}: n={n} is no power of two, and edges outside it are "
            f"drawn again: want a first share of at least {_LEAST_CORNER}"
        )
    return shares


def _descend(
    levels: int, count: int, shares: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows, columns = np.zeros(count, np.int64), np.zeros(count, np.int64)
    bounds = np.cumsum(shares)[:3]
    for _ in range(levels):
        quadrant = np.searchsorted(bounds, rng.random(count), side="right")
        rows = 2 * rows + quadrant // 2
        columns = 2 * columns + quadrant % 2
    return rows, columns


def _joined(parts: list[NDArray]) -> NDArray:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
