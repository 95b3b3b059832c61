"""Random plans of faults: when they come, on which rank, and of which kind, from a seed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from dtoolkit.faults.corrupt import Corrupt
from dtoolkit.faults.ending import Hang, Kill, Raise
from dtoolkit.faults.fault import WHERE, Fault
from dtoolkit.faults.links import CutLink
from dtoolkit.faults.memory import OutOfMemory
from dtoolkit.philox import seed_key

__all__ = ["KINDS", "random_plan"]

_Make = Callable[..., Fault]

_MAKERS: dict[str, _Make] = {
    "kill": lambda rank, peer, seed, **when: Kill(rank, **when),
    "hang": lambda rank, peer, seed, **when: Hang(rank, **when),
    "raise": lambda rank, peer, seed, **when: Raise(rank, **when),
    "memory": lambda rank, peer, seed, **when: OutOfMemory(rank, **when),
    "cut": lambda rank, peer, seed, **when: CutLink(rank, peer, **when),
    "nan": lambda rank, peer, seed, **when: _corrupt(rank, "nan", "gradients", seed, when),
    "inf": lambda rank, peer, seed, **when: _corrupt(rank, "inf", "gradients", seed, when),
    "bitflip": lambda rank, peer, seed, **when: _corrupt(rank, "bitflip", "parameters", seed, when),
}
KINDS = tuple(_MAKERS)
"""Names of the kinds of faults that a plan can be made of."""


def random_plan(
    *,
    seed: int,
    ranks: int,
    mtbf: float,
    steps: int | None = None,
    seconds: float | None = None,
    arrivals: str = "exponential",
    shape: float = 0.78,
    kinds: str | Iterable[str] | Mapping[str, float] = "kill",
    where: str | Sequence[str] = "begin",
) -> tuple[Fault, ...]:
    """Draw faults as they come to a gang of workers; the same on every machine.

    Times between one fault and the next are drawn one after the other; each fault then draws its
    rank, all alike, and its kind. A plan that is longer begins with the shorter one.

    Parameters
    ----------
    seed : int
    ranks : int
        Workers, from 0.
    mtbf : float
        Mean time between two faults of the whole gang, in steps or in seconds. The mean of one
        worker is `ranks` times as long.
    steps : int, optional
        Faults at steps 0 to `steps` - 1: a fault comes at the beginning of the step that its time
        is in.
    seconds : float, optional
        Instead of `steps`: faults within so many seconds from the beginning of the launch.
    arrivals : {"exponential", "weibull"}
        Distribution of the times between. ``"weibull"`` with a `shape` below 1 has more short and
        more long ones: failures come in clusters.
    shape : float
        Of the Weibull distribution; 0.78 is what large clusters have been found to have (Schroeder
        and Gibson, "A large-scale study of failures in high-performance computing systems", DSN
        2006: 0.7 to 0.8).
    kinds : str, sequence or mapping
        Names of :data:`KINDS`; in a mapping with weights. ``"hang"`` is for good, ``"cut"`` takes
        the rank and another one, ``"nan"`` and ``"inf"`` go into gradients and ``"bitflip"`` into
        parameters.
    where : str or sequence of str
        Parts of a step to draw from (with `steps`): ``"begin"``, ``"backward"``, ``"exchange"``.

    Returns
    -------
    tuple of Fault
        In order of time.

    Raises
    ------
    TypeError, ValueError
        An argument is out of range, or not exactly one of `steps` and `seconds` is given.

    Examples
    --------
    >>> print(*random_plan(seed=1, ranks=4, steps=20, mtbf=8.0), sep="; ")  # doctest: +SKIP
    """
    _check(ranks, mtbf, shape, arrivals)
    if (steps is None) == (seconds is None):
        raise ValueError(f"wanted steps= or seconds=, one of them; got {steps!r} and {seconds!r}")
    end = _end("steps", steps) if steps is not None else _end("seconds", seconds)
    names, below = _weighed(kinds)
    parts = (where,) if isinstance(where, str) else tuple(_listed("where", where, WHERE))
    if not parts or any(part not in WHERE for part in parts):
        raise ValueError(f"where={where!r}: wanted of {', '.join(WHERE)}")
    if steps is None and parts != ("begin",):
        raise ValueError(f"where={where!r} is a part of a step: it goes with steps=, not seconds=")
    if ranks == 1 and "cut" in names:
        raise ValueError("kinds: 'cut' takes two ranks, and there is 1")
    scale = mtbf / math.gamma(1 + 1 / shape) if arrivals == "weibull" else mtbf
    power = 1 / shape if arrivals == "weibull" else 1.0
    plan: list[Fault] = []
    time = 0.0
    while True:
        gap, on, other, kind, part = _drawn(seed, len(plan))
        time += scale * (-math.log1p(-gap)) ** power
        if time >= end:
            return tuple(plan)
        rank = int(on * ranks)
        peer = (rank + 1 + int(other * (ranks - 1))) % ranks
        name = names[int(np.searchsorted(below, kind, side="right"))]
        when: dict[str, Any] = {"after": time}
        if steps is not None:
            when = {"at_step": int(time)}
            if name not in _IN_STATE:
                when["where"] = parts[int(part * len(parts))]
        plan.append(_MAKERS[name](rank, peer, seed + len(plan), **when))


_IN_STATE = ("nan", "inf", "bitflip")
_NUMBERS = 5  # that a fault is made of


def _corrupt(rank: int, kind: str, what: str, seed: int, when: Mapping[str, Any]) -> Fault:
    if "at_step" not in when:
        raise ValueError(f"kinds: {kind!r} goes into the tensors of a step; give steps=")
    return Corrupt(rank, what=what, kind=kind, seed=seed, **when)


def _drawn(seed: int, fault: int) -> list[float]:
    """Numbers from 0 to below 1 for one fault of a plan: they depend on the seed and its place."""
    key = np.array(seed_key(seed, domain="dtoolkit.faults.plans"), dtype=np.uint64)
    bits = np.random.Philox(key=key, counter=[0, 0, fault, 0]).random_raw(_NUMBERS)
    return [float(one) * 2.0**-53 for one in bits >> np.uint64(11)]


def _weighed(kinds: str | Iterable[str] | Mapping[str, float]) -> tuple[list[str], Any]:
    """Names of the kinds, and the probability of one or one before it."""
    if isinstance(kinds, str):
        kinds = (kinds,)
    listed = _listed("kinds", kinds, KINDS)
    weights = dict(kinds) if isinstance(kinds, Mapping) else dict.fromkeys(listed, 1.0)
    for name, weight in weights.items():
        if name not in KINDS:
            raise ValueError(f"kinds: {name!r} is none of {', '.join(KINDS)}")
        if not _is_number(weight) or not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"kinds: the weight of {name!r} is {weight!r}; wanted 0 or more")
    if not sum(weights.values()) > 0:
        raise ValueError(f"kinds={kinds!r}: wanted a kind with a weight above 0")
    below = np.cumsum([float(weight) for weight in weights.values()])
    below /= below[-1]
    last = max(number for number, weight in enumerate(weights.values()) if weight)
    below[last:] = 1.0  # whatever the rounding of the sum
    return list(weights), below


def _listed(argument: str, names: Any, known: Iterable[str]) -> list[str]:
    """Names as a list; what is no sequence of texts is refused."""
    listed = list(names) if isinstance(names, Iterable) else None
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise TypeError(f"{argument}={names!r}: wanted names, of {', '.join(known)}")
    return listed


def _check(ranks: int, mtbf: float, shape: float, arrivals: str) -> None:
    try:
        enough = operator.index(ranks) >= 1
    except TypeError:
        raise TypeError(f"ranks={ranks!r}: wanted an integer") from None
    if not enough:
        raise ValueError(f"ranks={ranks!r}: wanted 1 or more")
    for name, value in (("mtbf", mtbf), ("shape", shape)):
        if not _is_number(value):
            raise TypeError(f"{name}={value!r} is not a number")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name}={value!r}: wanted a finite number above 0")
    if arrivals not in ("exponential", "weibull"):
        raise ValueError(f"arrivals={arrivals!r}: wanted 'exponential' or 'weibull'")


def _end(name: str, value: Any) -> float:
    if not _is_number(value) or (name == "steps" and int(value) != value):
        raise TypeError(f"{name}={value!r} is no {'integer' if name == 'steps' else 'number'}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name}={value!r}: wanted 0 or more, and finite")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
