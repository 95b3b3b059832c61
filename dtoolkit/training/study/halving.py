"""Successive halving: who goes on, who stops early, and why (pure).

Rivals are trained on a small share of the samples; the best part of them goes on to a share that is
as many times larger, until one is left, which gets all (Jamieson and Talwalkar, arXiv 1502.07943).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Rung", "Verdict", "judge", "rungs"]


@dataclass(frozen=True)
class Rung:
    """A round of the funnel.

    Attributes
    ----------
    share : float
        Part of all samples that a rival has seen at its end.
    rivals : int
        That take part, at most.
    keep : int
        That go on.
    """

    share: float
    rivals: int
    keep: int


@dataclass(frozen=True)
class Verdict:
    """What a rung decided.

    Attributes
    ----------
    going_on : tuple of int
        Places of those that go on, in their order.
    stopped : dict of int to str
        Places of those that stop, and why.
    """

    going_on: tuple[int, ...]
    stopped: dict[int, str]


def rungs(rivals: int, eta: int) -> tuple[Rung, ...]:
    """Rounds in which all rivals but one are stopped; the last round sees all samples.

    Parameters
    ----------
    rivals : int
        At least 1.
    eta : int
        One in so many goes on, at least 2.

    Examples
    --------
    >>> [(rung.rivals, rung.keep, rung.share) for rung in rungs(4, 2)]
    [(4, 2, 0.25), (2, 1, 0.5), (1, 1, 1.0)]
    """
    if rivals < 1:
        raise ValueError(f"rivals={rivals!r}: wanted at least 1")
    if eta < 2:
        raise ValueError(f"eta={eta!r}: wanted at least 2")
    counts = [rivals]
    while counts[-1] > 1:
        counts.append(math.ceil(counts[-1] / eta))
    last = len(counts) - 1
    return tuple(
        Rung(1 / eta ** (last - place), count, counts[min(place + 1, last)])
        for place, count in enumerate(counts)
    )


def judge(losses: Sequence[float | None], keep: int, names: Sequence[str]) -> Verdict:
    """Let the rivals with the smallest losses go on; the first of equal ones.

    Parameters
    ----------
    losses : sequence of float or None
        None: it failed. It stops, as does one whose loss is not finite.
    keep : int
    names : sequence of str
        What each is called in the reasons.

    Returns
    -------
    Verdict
    """
    finite = [i for i, loss in enumerate(losses) if loss is not None and math.isfinite(loss)]
    ranked = sorted(finite, key=lambda place: (losses[place], place))
    best = ranked[0] if ranked else None
    stopped = {}
    for place, loss in enumerate(losses):
        if place in ranked[:keep]:
            continue
        if loss is None:
            stopped[place] = "it failed"
        elif place not in finite:
            stopped[place] = f"its loss was {loss}"
        else:
            stopped[place] = (
                f"its loss was {loss:.4g}, place {ranked.index(place) + 1} of {len(losses)}; the "
                f"best, {names[best or 0]}, had {losses[best or 0]:.4g}"
            )
    return Verdict(tuple(sorted(ranked[:keep])), stopped)
