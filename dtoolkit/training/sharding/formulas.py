"""What a ZeRO stage costs: bytes that a worker holds, and words that it sends in a step.

Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
SC 2020 (arXiv 1910.02054), sections 5 and 7; Benington et al. (arXiv 2310.05350) study its stages.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

__all__ = ["PRECISIONS", "STAGES", "check_stage", "memory", "words"]

STAGES = (0, 1, 2, 3)

PRECISIONS = {"mixed": (2, 2, 4), "fp32": (4, 4, 0), "fp64": (8, 8, 0)}
"""Bytes of a parameter, of its gradient, and of the copy of it that the optimizer keeps."""

_STATE = {"mixed": 4, "fp32": 4, "fp64": 8}  # bytes of one word of the optimizer's state


def memory(
    psi: float, n: int, stage: int, *, precision: str = "mixed", state_words: int = 2
) -> float:
    """Bytes of parameters, gradients and optimizer state that a worker holds.

    In mixed precision with Adam that is 16 psi; 4 psi + 12 psi/n; 2 psi + 14 psi/n; 16 psi/n for
    stages 0 to 3; in single precision 16 psi; 8 psi + 8 psi/n; 4 psi + 12 psi/n; 16 psi/n.
    Activations, buffers, frozen parameters and room for messages are no part of it.

    Parameters
    ----------
    psi : float
        Learned parameters.
    n : int
        Workers.
    stage : {0, 1, 2, 3}
        0: nothing is sharded; 1: optimizer state; 2: gradients too; 3: parameters too.
    precision : {"mixed", "fp32", "fp64"}
        "mixed": parameters and gradients in 2 bytes; the optimizer keeps parameters and its state
        in 4.
    state_words : int
        What the optimizer keeps of each parameter: Adam 2, SGD with momentum 1, without 0.

    Returns
    -------
    float
        Bytes; where workers hold parts that differ by one element, their mean.

    Raises
    ------
    ValueError
        An argument is out of range; the text names it.

    Examples
    --------
    >>> [memory(1e9, 64, stage) / 1e9 for stage in (0, 1, 2, 3)]
    [16.0, 4.1875, 2.21875, 0.25]
    """
    _check(psi, n, stage)
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: wanted one of {', '.join(PRECISIONS)}")
    if isinstance(state_words, bool) or not isinstance(state_words, Integral) or state_words < 0:
        raise ValueError(f"state_words={state_words!r}: wanted an integer of at least 0")
    parameters, gradients, copy = PRECISIONS[precision]
    kept = copy + int(state_words) * _STATE[precision]
    parts = (kept, gradients, parameters)  # in the order in which stages shard them
    whole, shared = sum(parts[stage:]), sum(parts[:stage])
    return float(psi * whole + psi * shared / n)


def words(psi: float, n: int, stage: int) -> float:
    """Words that a worker sends in a step: 2, 2, 2, 3 times psi (n - 1)/n for stages 0 to 3.

    Parameters, source and errors are those of :func:`memory`. Where parts differ by one element
    that is the mean of the workers.
    """
    _check(psi, n, stage)
    return float((3 if stage == 3 else 2) * psi * (n - 1) / n)


def check_stage(stage: int) -> int:
    """The number of a stage.

    Raises
    ------
    ValueError
        There is no such stage.
    """
    if isinstance(stage, bool) or not isinstance(stage, Integral) or int(stage) not in STAGES:
        raise ValueError(f"stage={stage!r}: wanted 0, 1, 2 or 3")
    return int(stage)


def _check(psi: float, n: int, stage: int) -> None:
    check_stage(stage)
    real = isinstance(psi, Real) and not isinstance(psi, bool) and math.isfinite(psi)
    if not real or psi < 0:
        raise ValueError(f"psi={psi!r}: wanted a number of parameters, 0 or more")
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
        raise ValueError(f"n={n!r}: wanted an integer of at least 1")
