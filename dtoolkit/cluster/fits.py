"""Lines through measured times: what a message takes at no bytes, and a byte."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

__all__ = ["errors_of", "line_through", "pair_lines"]

APART = 1.5  # times as long, or as short, as usual: a pair is another kind of connection


def pair_lines(
    times: dict[tuple[int, int], list[list[float]]],
    kinds: dict[tuple[int, int], bool],
    sizes: Sequence[int],
) -> tuple[dict[Any, tuple[float, float]], list[float]]:
    """Lines through the times of each kind of pairs, and of pairs that stand apart; their errors.

    Pairs of one kind differ in what was measured because the machine was busy, unless all times of
    a pair are longer, or shorter, than is usual for its kind.

    Parameters
    ----------
    times : dict
        By pair: for each size the seconds of some messages.
    kinds : dict
        By pair, also of pairs that were not measured: whether its ranks are on one host.
    sizes : sequence of int
        Bytes.

    Returns
    -------
    lines : dict
        By kind, and by pair for those that stand apart: seconds at no bytes, and a byte.
    errors : list of float
        Relative, of the lines of the kinds at each size.
    """
    lines: dict[Any, tuple[float, float]] = {}
    errors: list[float] = []
    for kind in sorted(set(kinds.values())):
        mine = [pair for pair in times if kinds[pair] == kind]
        usual = [
            statistics.median(itertools.chain(*(times[pair][n] for pair in mine)))
            for n in range(len(sizes))
        ]
        lines[kind] = line_through(sizes, usual)
        errors += errors_of(lines[kind], sizes, usual)
        for pair in mine:
            if any(
                min(found) > APART * t or max(found) < t / APART
                for found, t in zip(times[pair], usual, strict=True)
            ):
                lines[pair] = line_through(
                    sizes, [statistics.median(found) for found in times[pair]]
                )
    return lines, errors


def line_through(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Seconds at no bytes, and seconds a byte: the line of least squares of relative errors."""
    scale = max(sizes)
    weighted = np.array([[1 / t, size / scale / t] for size, t in zip(sizes, seconds, strict=True)])
    (at_once, per_scale), _ = nnls(weighted, np.ones(len(sizes)))
    if per_scale <= 0:  # larger ones were no slower: the machine was busier with the small ones
        at_once, per_scale = 0.0, seconds[int(np.argmax(sizes))]
    return float(at_once), float(per_scale) / scale


def errors_of(
    line: tuple[float, float], sizes: Sequence[float], seconds: Sequence[float]
) -> list[float]:
    """Relative errors of a line."""
    return [abs(line[0] + size * line[1] - t) / t for size, t in zip(sizes, seconds, strict=True)]
