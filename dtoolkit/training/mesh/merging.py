"""What a replica makes of a mean that comes late: the rules of asynchronous sparse averaging.

From AsyncMesh (arXiv 2601.22442). The mean of step t - delay arrives at step t, when the replica
has moved on. The plain rule takes it as it is and forgets what was learned meanwhile; the other two
add it back, as it is or as a moving average over the visits of an element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from dtoolkit.training.mesh.partitions import parts_of

__all__ = ["KINDS", "Kind", "Rule", "decay_at", "merged", "moved"]

Kind = Literal["plain", "update", "ema"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Rule:
    """How replicas are averaged.

    Attributes
    ----------
    kind : {"plain", "update", "ema"}
        What is made of a mean that comes late (:func:`merged`).
    share : float
        Part of the elements that a step averages.
    delay : int
        Steps between the start of an average and its use; 0: a step waits for its own, which is
        SPARTA.
    fixed : bool
        Keep one order of the elements for the whole run, instead of drawing one for each round
        (:mod:`~dtoolkit.training.mesh.partitions`).
    strength : float
        Of what is added back.
    low, high, hold : float, float, int
        The moving average's decay (:func:`decay_at`).

    Raises
    ------
    TypeError, ValueError
    """

    kind: Kind = "ema"
    share: float = 0.05
    delay: int = 10
    fixed: bool = False
    strength: float = 1.0
    low: float = 0.5
    high: float = 0.99
    hold: int = 1000

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: wanted one of {', '.join(KINDS)}")
        parts_of(self.share)
        for name in ("delay", "hold"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name}={value!r}: wanted an integer")
            if value < 0:
                raise ValueError(f"{name}={value}: wanted at least 0")
        for name in ("strength", "low", "high"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name}={value!r}: wanted a number")
            most = math.inf if name == "strength" else 1.0
            if not 0 <= value < most:
                raise ValueError(f"{name}={value}: wanted at least 0 and below {most}")

    @property
    def parts(self) -> int:
        """K: parts that each tensor is cut into."""
        return parts_of(self.share)


def decay_at(step: int, steps: int, rule: Rule) -> float:
    """Decay of the moving average in a step.

    Parameters
    ----------
    step : int
    steps : int
        At which the decay has reached ``rule.high``.
    rule : Rule

    Returns
    -------
    float
        ``rule.low`` for the first ``rule.hold`` steps, then on a cosine to ``rule.high``.
    """
    if step < rule.hold or steps <= rule.hold:
        return rule.low
    way = min((step - rule.hold) / (steps - rule.hold), 1.0)
    return rule.low + (rule.high - rule.low) * (1 - math.cos(math.pi * way)) / 2


def moved(
    average: torch.Tensor, now: torch.Tensor, then: torch.Tensor, *, decay: float, first: bool
) -> torch.Tensor:
    """Moving average of how far elements move within the delay.

    Parameters
    ----------
    average : torch.Tensor
        So far.
    now, then : torch.Tensor
        The replica's own values, and those that it had given to the mean.
    decay : float
    first : bool
        The elements are visited for the first time: there is no average yet.
    """
    way = now - then
    return way if first else decay * average + (1 - decay) * way


def merged(
    rule: Rule,
    mean: torch.Tensor,
    now: torch.Tensor,
    then: torch.Tensor,
    average: torch.Tensor | None = None,
) -> torch.Tensor:
    """What becomes of elements whose mean has come.

    Parameters
    ----------
    rule : Rule
    mean : torch.Tensor
        Over the replicas, of the values that they had when it was started.
    now, then : torch.Tensor
        As of :func:`moved`.
    average : torch.Tensor, optional
        What :func:`moved` gave; for "ema".

    Returns
    -------
    torch.Tensor
        "plain": the mean; "update": the mean and what was learned since; "ema": the mean and what
        is learned on average in that time.
    """
    if rule.kind == "plain":
        return mean
    back = now - then if rule.kind == "update" else average
    assert back is not None
    return mean + rule.strength * back
