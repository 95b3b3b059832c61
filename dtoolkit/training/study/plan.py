"""The plan of a study: what is measured, what is modelled, what is left out, and why."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dtoolkit.comm.amounts import bytes_text, plural
from dtoolkit.comm.network import Network
from dtoolkit.training.study.cost import Estimate
from dtoolkit.training.study.device import Device
from dtoolkit.training.study.halving import Rung, rungs
from dtoolkit.training.study.setting import Axes, Setting

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CITATION", "Place", "Planned", "StudyPlan"]

CITATION = """\
M. Benington et al., Scaling Studies for Efficient Parameter Search and Parallelism for Large \
Language Model Pre-training, arXiv 2310.05350 (the setting; not its figures)
S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, \
arXiv 1910.02054
K. Jamieson and A. Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter \
Optimization, arXiv 1502.07943
V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, \
arXiv 2205.05198"""


@dataclass(frozen=True)
class Planned:
    """What is done with a setting.

    Attributes
    ----------
    setting : Setting
    how : {"measured", "modelled", "left out"}
    why : str
    fits : bool
        Whether it is expected to fit a worker's memory.
    memory : float
        Bytes a worker by the formula: weights, gradients, Adam's state, activations.
    estimate : Estimate or None
        Where it is modelled.
    """

    setting: Setting
    how: str
    why: str
    fits: bool
    memory: float
    estimate: Estimate | None = None


@dataclass(frozen=True)
class Place:
    """Where settings are measured.

    Attributes
    ----------
    workers : int
    memory : int or None
        Bytes of the worker that has least; None: no limit is known.
    words : str
    """

    workers: int
    memory: int | None
    words: str


@dataclass(frozen=True, repr=False)
class StudyPlan:
    """What a study will do (planned). Made by :func:`dtoolkit.training.study.plan_study`.

    Attributes
    ----------
    axes : Axes
    entries : tuple of Planned
    samples : int
        That a setting is trained with, if nothing stops it.
    eta : int
        Of the funnel: one in so many rivals goes on.
    seed : int
    memory_limit : int or None
        Bytes a worker, beside what devices and workers have.
    precision : str
        Of what is modelled.
    place : Place or None
    device : Device or None
    network : Network or None
    """

    axes: Axes
    entries: tuple[Planned, ...]
    samples: int
    eta: int
    seed: int
    memory_limit: int | None
    precision: str
    place: Place | None
    device: Device | None
    network: Network | None

    @cached_property
    def measured(self) -> tuple[Setting, ...]:
        """Settings that are trained."""
        return tuple(one.setting for one in self.entries if one.how == "measured")

    @property
    def modelled(self) -> tuple[Setting, ...]:
        """Settings whose time, bytes and memory are computed."""
        return tuple(one.setting for one in self.entries if one.how == "modelled")

    @property
    def left_out(self) -> tuple[tuple[Setting, str], ...]:
        """Settings of which nothing is known, and why."""
        return tuple((one.setting, one.why) for one in self.entries if one.how == "left out")

    @cached_property
    def groups(self) -> tuple[tuple[Setting, ...], ...]:
        """Settings that are trained, by what they have in common but for the learning rate."""
        found: dict[Setting, list[Setting]] = {}
        for setting in self.measured:
            found.setdefault(setting.rivals, []).append(setting)
        return tuple(map(tuple, found.values()))

    def funnel(self, rivals: int) -> tuple[Rung, ...]:
        """Rounds of so many rivals."""
        return rungs(rivals, self.eta)

    def steps(self, setting: Setting, share: float) -> int:
        """Steps after which a setting has seen its share of the samples; at least 2."""
        return max(2, -(-round(self.samples * share) // setting.batch))

    @property
    def trials(self) -> int:
        """Trainings, at most: one a setting and round of the funnel."""
        return sum(rung.rivals for group in self.groups for rung in self.funnel(len(group)))

    def table(self) -> pd.DataFrame:
        """One row a setting: its attributes, how it is treated, why, and its memory by formula.

        Returns
        -------
        DataFrame
            Columns of :class:`Setting`, ``how``, ``why``, ``fits``, ``memory`` (bytes a worker).
        """
        import pandas as pd

        names = [one.name for one in fields(Setting)]
        rows = [
            {
                **{name: getattr(entry.setting, name) for name in names},
                **{name: getattr(entry, name) for name in ("how", "why", "fits", "memory")},
            }
            for entry in self.entries
        ]
        return pd.DataFrame(rows, columns=[*names, "how", "why", "fits", "memory"])

    def facts(self) -> list[tuple[str, str]]:
        """Names and values that text and card show."""
        axes = self.axes
        ways = ", ".join(way.name for way in axes.ways)
        facts = [
            ("models", ", ".join(model.name for model in axes.models)),
            ("workers", ", ".join(f"{count:,}" for count in axes.workers)),
            ("strategies", ways),
            ("micro-batches", ", ".join(map(str, axes.micro_batches))),
            ("learning rates", _rates(axes)),
            ("scaling", " and ".join(axes.scaling)),
            ("measured", f"{len(self.measured):,} settings, at most {self.trials:,} trainings"),
        ]
        if self.place is not None:
            facts.append(("on", self.place.words))
        facts.append(("samples each", f"{self.samples:,}, one in {self.eta} goes on"))
        facts.append(("modelled", f"{len(self.modelled):,} settings, {self.precision} precision"))
        if self.device is not None:
            facts.append(("device", self.device.words))
        if self.network is not None:
            facts.append(("network", self.network.name))
        if self.memory_limit is not None:
            facts.append(("memory limit", f"{bytes_text(self.memory_limit)} a worker"))
        facts.append(("left out", f"{len(self.left_out):,} settings"))
        return facts

    def cite(self) -> str:
        """What to cite."""
        return CITATION

    def describe(self) -> dict[str, Any]:
        """What makes a study the one it is, as plain values: files are compared by it."""
        axes, place = self.axes, self.place
        return {
            "models": [[m.name, m.parameters, m.task is not None] for m in axes.models],
            "workers": list(axes.workers),
            "strategies": [[w.name, repr(w.strategy)] for w in axes.ways],
            "micro_batches": list(axes.micro_batches),
            "learning_rates": list(axes.learning_rates),
            "batch": list(axes.batches),
            "scaling": list(axes.scaling),
            "samples": self.samples,
            "eta": self.eta,
            "seed": self.seed,
            "cluster": None if place is None else [place.workers, place.words],
            "measured settings": [str(setting) for setting in self.measured],
        }

    def __repr__(self) -> str:
        lines = [f"  {name:<15} {value}" for name, value in self.facts()]
        heading = f"Plan of a study: {plural(len(self.entries), 'setting')}"
        return "\n".join([heading, *lines])

    def _repr_html_(self) -> str:
        from dtoolkit.figures.study_cards import study_plan_card

        return study_plan_card(self)


def _rates(axes: Axes) -> str:
    return ", ".join("the task's" if r is None else f"{r:g}" for r in axes.learning_rates)
