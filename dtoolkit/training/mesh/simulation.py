"""A mesh in one process, with delays that are set: what the workers' mesh must equal.

Nothing here waits or sends. A micro-batch goes through the whole model, each stage with the version
of its weights that the delay says; then each stage's newest weights take its part of the gradient.
Delays follow from the number of stages, or are given: also such as no pipeline of that length has.
"""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dtoolkit.training.averaging import average, batch_statistics, model_parts, whole_state
from dtoolkit.training.mesh.averages import Averages
from dtoolkit.training.mesh.cutting import cut
from dtoolkit.training.mesh.drift import Meeting
from dtoolkit.training.mesh.flat import FlatWeights
from dtoolkit.training.mesh.merging import KINDS
from dtoolkit.training.mesh.optimizers import made_for
from dtoolkit.training.mesh.order import delay_of
from dtoolkit.training.norm import share_by_share
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.seeds import seeded
from dtoolkit.training.task import Examples, load_examples

if TYPE_CHECKING:
    from dtoolkit.training.strategies.asyncmesh import AsyncMesh

__all__ = ["Simulated", "simulate"]


@dataclass(frozen=True, eq=False)
class Simulated:
    """What a simulation has learned.

    Attributes
    ----------
    losses : tuple of float
        Mean loss of the samples of each step, as they were computed.
    model : dict of tensors
        State dict of the mean of the replicas.
    """

    losses: tuple[float, ...]
    model: dict[str, torch.Tensor]


def simulate(
    task: Any,
    mesh: AsyncMesh,
    *,
    steps: int,
    seed: int = 0,
    batch: int | None = None,
    delays: Sequence[int] | None = None,
) -> Simulated:
    """Train as a mesh does, in this process.

    Parameters
    ----------
    task : Task
        Without a penalty; of more than one stage, the model must draw nothing at random.
    mesh : AsyncMesh
        Its ``averaging`` is not "rounds"; no number of replicas stands for one.
    steps : int
    seed, batch
        As of :func:`dtoolkit.train`.
    delays : sequence of int, optional
        Updates by which each stage's weights are behind, instead of P - 1 - i.

    Returns
    -------
    Simulated

    Raises
    ------
    ValueError
        The mesh averages in rounds, or the delays are not one a stage.
    """
    if mesh.averaging == "rounds":
        raise ValueError("averaging='rounds' is not simulated: wanted an AsyncMesh with another")
    late = list(delays) if delays is not None else _delays(mesh)
    if len(late) != mesh.stages or any(one < 0 for one in late):
        raise ValueError(f"delays={delays!r}: wanted {mesh.stages} numbers of at least 0")
    examples = load_examples(task.train, "train")
    count = mesh.replicas or 1
    sampler = Sampler(len(examples), batch or task.batch, seed=seed, ranks=count)
    with seeded(seed, "model"):
        model = share_by_share(task.model().train())
    meeting = Meeting(count)
    lanes = [
        _Lane(task, mesh, copy.deepcopy(model), late, meeting, number=lane, seed=seed, steps=steps)
        for lane in range(count)
    ]
    losses = []
    for step in range(steps):
        done = [lane.differentiate(examples, sampler, step) for lane in lanes]
        losses.append(sum(done) / sampler.planned(step))
        if mesh.averaging == "gradients":
            _sum(lanes)
        for lane in lanes:
            lane.update(bool(sampler.planned(step, lane.number)) or mesh.averaging == "gradients")
        for lane in lanes:
            lane.begin(step)
        for lane in lanes:
            lane.end(step)
    states = [model_parts(lane.model) for lane in lanes]
    mean = average(states, [1.0] * count, statistics=batch_statistics(model))
    return Simulated(tuple(losses), whole_state(lanes[0].model, mean))


class _Lane:
    """One replica of the whole model."""

    def __init__(
        self,
        task: Any,
        mesh: AsyncMesh,
        model: nn.Module,
        delays: Sequence[int],
        meeting: Meeting,
        *,
        number: int,
        seed: int,
        steps: int,
    ) -> None:
        self._task, self.model, self.number, self._seed = task, model, number, seed
        self._joint = mesh.averaging == "gradients"
        learned = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.weights = FlatWeights(learned)
        stage = _stage_of(cut(model, mesh.stages, mesh.cut_at))
        self._delays = [delays[stage[id(value)]] for _, value in learned]
        self._versions = deque([self.weights.copies()], maxlen=max(delays) + 1)  # newest last
        self._optimizer = task.optimizer([value for _, value in learned])
        self._schedule = task.schedule(self._optimizer) if task.schedule else None
        self._stepped, self._follow = self._optimizer, None
        if mesh.optimizer is not None:
            self._stepped, self._follow = made_for(
                mesh.optimizer, [value for _, value in learned], self._optimizer
            )
        self._averages = [
            Averages(
                flat,
                self.weights.tensors[dtype],
                mesh.rule,
                seed=seed,
                steps=steps,
                start=meeting.start(number),
            )
            for dtype, flat in (self.weights.buffers if mesh.averaging in KINDS else {}).items()
        ]

    def differentiate(self, examples: Examples, sampler: Sampler, step: int) -> float:
        """Set the gradient of a step, each stage's by the version it is behind; sum of losses."""
        for _, value in self.weights.parameters:
            value.grad = None
        ids = sampler.share(step, self.number)[0]
        if not len(ids):
            return 0.0
        newest = self.weights.copies()
        self._load([self._behind(delay)[place] for place, delay in enumerate(self._delays)])
        with seeded(self._seed, "forward", step, self.number, 0):
            losses = self._task.loss(self.model, *examples.take(ids))
        weight = 1 / sampler.planned(step, None if self._joint else self.number)
        (losses.sum() * weight).backward()
        self._load(newest)
        return float(losses.detach().double().sum())

    def update(self, used: bool) -> None:
        """One step of the optimizer with the gradients that are there, and of the schedule."""
        if used:
            if self._follow is not None:
                self._follow()
            self._stepped.step()
        if self._schedule is not None:
            with warnings.catch_warnings():  # that another optimizer is stepped than it knows
                warnings.simplefilter("ignore", UserWarning)
                self._schedule.step()

    def begin(self, step: int) -> None:
        """Start the averages of a step."""
        for one in self._averages:
            one.begin(step)

    def end(self, step: int) -> None:
        """Merge those that are due, and keep the weights as a version."""
        for one in self._averages:
            one.end(step)
        self._versions.append(self.weights.copies())

    def _behind(self, delay: int) -> list[torch.Tensor]:
        return self._versions[max(0, len(self._versions) - 1 - delay)]

    def _load(self, values: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for (_, parameter), value in zip(self.weights.parameters, values, strict=True):
                parameter.copy_(value)


def _delays(mesh: AsyncMesh) -> list[int]:
    if mesh.pipeline == "sync":
        return [0] * mesh.stages
    return [delay_of(stage, mesh.stages) for stage in range(mesh.stages)]


def _stage_of(stages: Sequence[nn.Module]) -> dict[int, int]:
    return {id(value): number for number, one in enumerate(stages) for value in one.parameters()}


def _sum(lanes: Sequence[_Lane]) -> None:
    """Give all lanes the sum of their gradients."""
    if len(lanes) == 1:
        return
    flats = [lane.weights.gradients() for lane in lanes]
    for dtype, total in flats[0].items():
        for other in flats[1:]:
            total += other[dtype]
    for lane in lanes:
        lane.weights.load_gradients({dtype: flat.clone() for dtype, flat in flats[0].items()})
