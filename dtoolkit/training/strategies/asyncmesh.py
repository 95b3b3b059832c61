"""AsyncMesh: a mesh of stages by replicas in which nobody waits for anybody."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from dtoolkit.training.finite import check_gradients
from dtoolkit.training.local_step import check_workers, step_schedule
from dtoolkit.training.mesh.cutting import cut
from dtoolkit.training.mesh.merging import KINDS, Rule
from dtoolkit.training.mesh.optimizers import OPTIMIZERS, made_for
from dtoolkit.training.mesh.order import versions_kept
from dtoolkit.training.mesh.pipelines import Asynchronous, Pipeline, Synchronous
from dtoolkit.training.mesh.replicas import Gradients, Replicas, Rounds, Sparse
from dtoolkit.training.mesh.stage import Stage
from dtoolkit.training.mesh.whole import held_by, one_model
from dtoolkit.training.mesh.wire import Wire
from dtoolkit.training.optimizer_state import load_optimizer, optimizer_state
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["AsyncMesh"]

_PIPELINES: dict[str, type[Pipeline]] = {"async": Asynchronous, "sync": Synchronous}
_AVERAGING = (*KINDS, "gradients", "rounds")


class AsyncMesh(Strategy):
    """Stages of a model over workers, and replicas of each stage, with late gradients and averages.

    After AsyncMesh (arXiv 2601.22442). Worker ``lane * stages + stage`` holds one stage of one
    replica. Both axes can be asynchronous or synchronous, so that the rivals are settings:

    ================================  ==========================================================
    asynchronous pipeline             ``stages=P, pipeline="async"``
    synchronous pipeline              ``stages=P, pipeline="sync"``, ``accumulate=`` micro-batches
    asynchronous sparse averaging     ``averaging="ema"``, "update" or "plain", ``share=, delay=``
    SPARTA                            ``averaging="plain", delay=0``
    synchronous data parallel         ``averaging="gradients"``
    DiLoCo                            ``averaging="rounds", local_steps=, outer=``
    ================================  ==========================================================

    *Pipeline.* Activations and gradients go from worker to worker. The asynchronous one has one
    micro-batch a step and is never emptied: stage i of P keeps P - i versions of its weights,
    forward and backward of a micro-batch use the same one, and the gradient updates the newest,
    P - 1 - i updates later (:mod:`dtoolkit.training.mesh.order`). The optimizer "nadam" makes up
    for the delay by looking ahead; "adamw" is its control.

    *Averages.* No gradients are summed over replicas. After each update a share of the weights is
    averaged, a different one each step; nobody waits, and the mean is merged into the newest
    weights `delay` steps later (:mod:`dtoolkit.training.mesh.merging`). Replicas weigh the same,
    and take steps of their own with the mean gradient of their share of the batch. Buffers
    (running statistics of batch norm) stay a worker's own.

    The one model is the mean of the replicas. Every worker makes the whole model, from which its
    stage is cut and with which it evaluates; it computes, learns and sends its stage alone. A
    task's loss must be one of what ``model(inputs)`` gives: the last stage calls it with the last
    modules, and with what the stage before them gave. Waiting, which steps report as idle, counts
    what messages take to travel.

    Parameters
    ----------
    stages : int
        Of the model, which is cut where they are most equal
        (:mod:`dtoolkit.training.mesh.cutting`).
    replicas : int, optional
        By default as many as there are workers for.
    pipeline : {"async", "sync"}
    averaging : {"ema", "update", "plain", "gradients", "rounds"}
    share : float
        Part of the weights that a step averages: K = ceil(1 / share) steps visit all.
    delay : int
        Steps until an average is merged; 0: it is waited for.
    fixed : bool
        Visit the weights in one order for the whole run; else a new one is drawn for each round.
    strength : float
        Of what "ema" and "update" add to a mean that comes late.
    decay : (float, float, int)
        Of "ema": its decay, to what it rises on a cosine until the last step that the run is asked
        for, and after how many steps that begins.
    optimizer : {"nadam", "adamw"}, optional
        With the learning rates of the task's optimizer; by default that optimizer itself.
    cut_at : sequence of int, optional
        The modules with which stages begin, from the second stage on.
    local_steps : int
        Of a round.
    outer : (float, float)
        Learning rate and Nesterov momentum of the optimizer that ends a round.

    Raises
    ------
    ValueError, TypeError
    """

    name: ClassVar[str] = "asyncmesh"
    batch_norm: ClassVar[str] = "local"
    replicated: ClassVar[bool] = False
    promise: ClassVar[Promise] = Promise(
        trajectory="one process with averaging='gradients' and a synchronous pipeline, to "
        "rounding; else one process with the same delays set by hand, to rounding",
        resume="bit-equal, at every step: versions, micro-batches in flight and averages under "
        "way are part of the state",
        other_workers="refused: every worker has a state of its own",
    )

    def __init__(
        self,
        stages: int = 1,
        replicas: int | None = None,
        *,
        pipeline: Literal["async", "sync"] = "async",
        averaging: Literal["ema", "update", "plain", "gradients", "rounds"] = "ema",
        share: float = 0.05,
        delay: int = 10,
        fixed: bool = False,
        strength: float = 1.0,
        decay: tuple[float, float, int] = (0.5, 0.99, 1000),
        optimizer: Literal["nadam", "adamw"] | None = None,
        cut_at: Sequence[int] | None = None,
        local_steps: int = 20,
        outer: tuple[float, float] = (0.7, 0.9),
    ) -> None:
        self.stages = _count("stages", stages)
        self.replicas = None if replicas is None else _count("replicas", replicas)
        self.pipeline = _one_of("pipeline", pipeline, tuple(_PIPELINES))
        self.averaging = _one_of("averaging", averaging, _AVERAGING)
        self.share, self.delay, self.fixed = share, delay, bool(fixed)
        self.strength, self.decay = strength, tuple(decay)
        _ = self.rule  # which refuses what makes no sense
        self.optimizer = optimizer
        if optimizer is not None:
            _one_of("optimizer", optimizer, tuple(OPTIMIZERS))
        self.cut_at = None if cut_at is None else tuple(cut_at)
        self.local_steps = _count("local_steps", local_steps)
        self.outer = _outer(outer)

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        if settings.compression is not None:
            raise ValueError(
                f"compression={settings.compression!r} with {self.name!r}: parts of the weights "
                "and activations travel as they are; choose a smaller share= instead"
            )
        if settings.accumulate > 1 and self._keeps:
            raise ValueError(
                f"accumulate={settings.accumulate} with {self.name!r}: the asynchronous pipeline "
                "has one micro-batch a step; wanted accumulate=1, or pipeline='sync'"
            )
        if settings.partition is not None and self.stages > 1:
            raise ValueError(
                "partition= says which worker computes a sample, and with stages all workers of a "
                "replica do; wanted none"
            )

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        lanes = self._lanes(replica)
        self._replica = replica
        self._across, self._along = replica.comm.grid((lanes, self.stages))
        self._sampler = Sampler(
            len(replica.examples),
            replica.sampler.size,
            seed=replica.settings.seed,
            ranks=lanes,
            partition=replica.settings.partition,
            accumulate=replica.settings.accumulate,
        )
        modules = cut(replica.model, self.stages, self.cut_at)
        self._held = held_by(replica.model, modules)
        self._stage = Stage(
            replica,
            modules[self._along.rank],
            number=self._along.rank,
            stages=self.stages,
            lane=self._across.rank,
            keeps=self._keeps,
        )
        self._wire = Wire(self._along)
        self._pipeline = _PIPELINES["async" if self._keeps else "sync"](
            self._stage, self._wire, self._share, self._weight
        )
        self._others = self._replicas(replica.settings)
        self._own = None
        if self.optimizer is not None:
            learned = [value for _, value in self._stage.weights.parameters]
            self._own = made_for(self.optimizer, learned, replica.optimizer)
        if getattr(replica.task, "penalty", None) and (self.stages > 1 or self._own is not None):
            raise ValueError(
                "the task has a penalty, which is of the whole model, and no worker updates that; "
                "wanted a task without, or stages=1 and optimizer=None"
            )

    def until(self, replica: Replica, step: int, meeting: int) -> None:
        """See :meth:`Strategy.until`."""
        self._meeting = meeting

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        start, waited = time.perf_counter(), self._waited
        self._wire.turn()
        staleness = self._pipeline.step(step)
        with replica.comm.phase("gradient-sum"):
            self._others.combine()
        check_gradients(replica, step)
        planned = self._sampler.planned(step, self._across.rank)
        used = bool(planned) or self._others.joint
        self._update(replica, used)
        with replica.comm.phase("averaging"):
            self._others.settle(step)
        self._stage.updates += 1
        if step + 1 == self._meeting:
            self._wire.drain()  # what it waits for here is counted in this step
        loss, samples = self._stage.taken()
        idle = self._waited - waited
        return StepReport(
            loss,
            samples,
            planned if self._stage.last else 0,
            time.perf_counter() - start - idle,
            idle,
            staleness=staleness,
            local_steps=int(used),
        )

    def reconcile(self, replica: Replica) -> dict[str, torch.Tensor]:
        """See :meth:`Strategy.reconcile`: the mean of the replicas."""
        return one_model(replica.model, self._held, replicas=self._across, pipeline=self._along)

    def pause(self, replica: Replica) -> None:
        """See :meth:`Strategy.pause`: what was sent has left; what is under way stays so."""
        self._wire.drain()

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Strategy.own_state`."""
        replica = self._replica
        optimizer = replica.optimizer if self._own is None else self._own[0]
        return {
            "workers": replica.size,
            "held": dict(self._held[self._stage.number]),
            "optimizer": optimizer_state(optimizer, replica.parameters),
            "pipeline": self._pipeline.own_state(),
            "replicas": self._others.own_state(),
        }

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Strategy.restore`."""
        replica = self._replica
        check_workers(self.name, own, replica.size)
        with torch.no_grad():
            for name, value in self._held[self._stage.number].items():
                value.copy_(own["held"][name])
        optimizer = replica.optimizer if self._own is None else self._own[0]
        load_optimizer(optimizer, own["optimizer"], replica.parameters)
        self._pipeline.restore(own["pipeline"])
        self._others.restore(own["replicas"])

    def cite(self) -> str:
        """What to cite."""
        return (
            "AsyncMesh, arXiv 2601.22442; D. Narayanan et al., PipeDream: generalized pipeline "
            "parallelism for DNN training, SOSP 2019; A. Douillard et al., DiLoCo: distributed "
            "low-communication training of language models, arXiv 2311.08105"
        )

    def summary(self) -> dict[str, Any]:
        """See :meth:`Strategy.summary`."""
        sizes = [sum(v.numel() for v in held.values()) for held in self._held]
        versions = [
            versions_kept(number, self.stages) if self._keeps else 1
            for number in range(self.stages)
        ]
        return {
            "mesh": f"{self.stages} stages x {self._across.size} replicas",
            "numbers a stage": sizes,
            "versions a stage": versions,
        }

    # ------------------------------------------------------------------------------- helpers

    @property
    def _keeps(self) -> bool:
        """Whether versions of weights are kept: one stage alone is never late."""
        return self.pipeline == "async" and self.stages > 1

    def _lanes(self, replica: Replica) -> int:
        lanes = replica.size // self.stages if self.replicas is None else self.replicas
        if not lanes or lanes * self.stages != replica.size:
            raise ValueError(
                f"stages={self.stages}, replicas={self.replicas}: {replica.size} workers are no "
                "such mesh; wanted stages x replicas workers"
            )
        return lanes

    def _replicas(self, settings: Settings) -> Replicas:
        across, weights = self._across, self._stage.weights
        if self.averaging == "gradients":
            return Gradients(across, weights)
        if self.averaging == "rounds":
            rate, momentum = self.outer
            return Rounds(
                across, weights, local_steps=self.local_steps, rate=rate, momentum=momentum
            )
        return Sparse(across, weights, self.rule, seed=settings.seed, steps=settings.steps)

    @property
    def rule(self) -> Rule:
        """How replicas are averaged, where they are in parts."""
        if len(self.decay) != 3:
            raise ValueError(f"decay={self.decay!r}: wanted (low, high, steps before it rises)")
        low, high, hold = self.decay
        kind: Any = self.averaging if self.averaging in KINDS else "plain"
        return Rule(kind, self.share, self.delay, self.fixed, self.strength, low, high, int(hold))

    def _share(self, step: int) -> list[torch.Tensor]:
        return self._sampler.share(step, self._across.rank)

    def _weight(self, step: int) -> float:
        lane = None if self._others.joint else self._across.rank
        return 1 / self._sampler.planned(step, lane)

    def _update(self, replica: Replica, used: bool) -> None:
        if used and self._own is None:
            replica.update(1)  # divided already
            return
        if used and self._own is not None:
            optimizer, follow = self._own
            follow()
            optimizer.step()
        step_schedule(replica)
        replica.zero_grad()

    @property
    def _waited(self) -> float:
        return self._wire.waited + self._others.waited


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r}: wanted an integer")
    if value < 1:
        raise ValueError(f"{name}={value}: wanted at least 1")
    return value


def _one_of(name: str, value: Any, wanted: tuple[str, ...]) -> str:
    if value not in wanted:
        raise ValueError(f"{name}={value!r}: wanted one of {', '.join(wanted)}")
    return str(value)


def _outer(value: Any) -> tuple[float, float]:
    both = tuple(value) if isinstance(value, Sequence) else ()
    if (
        len(both) != 2
        or not all(isinstance(v, int | float) and v >= 0 for v in both)
        or both[1] >= 1
    ):
        raise ValueError(f"outer={value!r}: wanted (learning rate, momentum below 1)")
    return float(both[0]), float(both[1])
