"""What averages that come late do to learning, on two problems small enough to be exact.

Under a constant drift (every weight moves by one a step) it shows how much of the movement a rule
keeps; on a noisy quadratic, what it costs or gains where nothing drifts. Both run the code that
trains (:class:`~dtoolkit.training.mesh.averages.Averages`), with all replicas in one process.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from dtoolkit.training.mesh.averages import Averages, Start
from dtoolkit.training.mesh.merging import Rule
from dtoolkit.training.seeds import number

__all__ = ["Meeting", "drift_speed", "noisy_quadratic"]


class Meeting:
    """Means of replicas that live in one process.

    Each replica has a :meth:`start`; the n-th means of all are one, and are asked for once all
    have started them.

    Parameters
    ----------
    replicas : int
    """

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._given: list[dict[int, torch.Tensor]] = [{} for _ in range(replicas)]
        self._turns = [0] * replicas
        self._means: dict[int, tuple[torch.Tensor, int]] = {}  # and how many have taken it

    def start(self, replica: int) -> Start:
        """What a replica starts its means with."""

        def started(values: torch.Tensor) -> Callable[[], torch.Tensor]:
            turn = self._turns[replica]
            self._turns[replica] += 1
            self._given[replica][turn] = values
            return lambda: self._mean(turn)

        return started

    def _mean(self, turn: int) -> torch.Tensor:
        """The mean of a turn, the same object for all; it is forgotten when all have it."""
        if turn not in self._means:
            total, *rest = (given.pop(turn) for given in self._given)
            for one in rest:
                total += one
            self._means[turn] = total / self._replicas, 0
        mean, taken = self._means.pop(turn)
        if taken + 1 < self._replicas:
            self._means[turn] = mean, taken + 1
        return mean


def drift_speed(
    rule: Rule, *, size: int = 400, rounds: int = 40, warm: int = 10, seed: int = 0
) -> float:
    """Speed of weights that all replicas move by one a step, under a rule.

    Parameters
    ----------
    rule : Rule
    size : int
        Weights.
    rounds, warm : int
        Rounds through the parts, and how many of them pass before the speed is taken.
    seed : int

    Returns
    -------
    float
        Movement a step: 1 without averages. Plain averages with a fixed order whose K = 1 / share
        is an integer above the delay give exactly 1 - share * delay; the other rules give 1.
    """
    weights = torch.zeros(size, dtype=torch.float64)
    averages = Averages(
        weights,
        [("weights", size)],
        rule,
        seed=seed,
        steps=rounds * rule.parts,
        start=Meeting(1).start(0),
    )
    before = 0.0
    for step in range(rounds * rule.parts):
        if step == warm * rule.parts:
            before = float(weights.mean())
        weights += 1
        averages.begin(step)
        averages.end(step)
    return (float(weights.mean()) - before) / ((rounds - warm) * rule.parts)


def noisy_quadratic(
    rule: Rule | None,
    *,
    size: int = 2000,
    replicas: int = 4,
    steps: int = 3000,
    last: int = 500,
    rate: float = 0.02,
    noise: float = 1.0,
    begin: float = 1.0,
    seed: int = 0,
) -> float:
    """Loss of the mean of replicas that descend a quadratic with noisy gradients.

    The curvatures go evenly from 0.1 to 1; a replica's gradient is curvature times weight, plus
    normal noise. Replicas that average all they have in every step give 2.50. Here nothing is
    gained by adding back what was learned meanwhile: at a delay of 10 the moving average is worse
    than the plain rule. At 50 it is better, because plain averages then forget slowly where they
    began; from ``begin=0`` the plain rule is the better one there too, and "update" is far off.

    Parameters
    ----------
    rule : Rule or None
        None: replicas never meet.
    size, replicas, steps : int
    last : int
        Steps at the end that the loss is a mean over.
    rate, noise : float
        Learning rate; standard deviation of the noise.
    begin : float
        What all weights begin at.
    seed : int

    Returns
    -------
    float
        Mean over the last steps of half the sum of curvature times squared weight, of the mean
        model.
    """
    curvature = torch.linspace(0.1, 1.0, size)
    generator = torch.Generator().manual_seed(number(seed, "noisy quadratic"))
    models, meeting = torch.full((replicas, size), float(begin)), Meeting(replicas)
    averages = [] if rule is None else [
        Averages(
            models[replica],
            [("weights", size)],
            rule,
            seed=seed,
            steps=steps,
            start=meeting.start(replica),
        )
        for replica in range(replicas)
    ]  # fmt: skip
    total = 0.0
    for step in range(steps):
        models -= rate * (
            curvature * models + noise * torch.randn(models.shape, generator=generator)
        )
        for one in averages:
            one.begin(step)
        for one in averages:
            one.end(step)
        if step >= steps - last:
            total += float((curvature * models.mean(0) ** 2).sum()) / 2
    return total / last
