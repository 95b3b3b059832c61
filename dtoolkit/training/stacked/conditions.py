"""What a simulated run goes through: times, failures, and the rules that are assumed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from dtoolkit.training.seeds import number
from dtoolkit.training.stacked.endurance import best_period
from dtoolkit.training.steptimes import check_count, check_time

__all__ = ["Conditions", "Patch"]

Patch = Literal["needed", "always", "free"]

_BLOCK = 4096  # numbers drawn at once


@dataclass(frozen=True)
class Conditions:
    """Times in seconds, as :func:`~dtoolkit.training.stacked.simulate` takes them."""

    steps: int
    mtbf: float
    shape: float
    compute: float
    reduce: tuple[float, float]
    save: float
    restart: float
    patch: Patch
    sets: bool
    replace: float
    catch_up: float
    pause: float

    @classmethod
    def of(cls, *, reduce: float | tuple[float, float], **given: Any) -> Conditions:
        """Check them.

        Raises
        ------
        TypeError, ValueError
            Naming the one that is wrong.
        """
        low, high = reduce if isinstance(reduce, tuple) else (reduce, reduce)
        made = cls(reduce=(low, high), **given)
        check_count("steps", made.steps)
        for name in ("mtbf", "shape", "compute", "save", "restart", "replace", "catch_up", "pause"):
            check_time(name, getattr(made, name))
        for name in ("mtbf", "shape", "compute"):
            if getattr(made, name) == 0:
                raise ValueError(f"{name}=0: wanted above 0")
        for value in (low, high):
            check_time("reduce", value)
        if high < low:
            raise ValueError(f"reduce={reduce!r}: wanted (least, most)")
        if made.patch not in get_args(Patch):
            raise ValueError(f"patch={made.patch!r}: wanted one of {', '.join(get_args(Patch))}")
        return made

    @property
    def ideal(self) -> float:
        """Seconds of all steps without failures, checkpoints and redundancy."""
        return self.steps * (self.compute + sum(self.reduce) / 2)

    def period(self, endurable: float) -> float:
        """Best time between checkpoints, where so many losses are endured."""
        if math.isinf(endurable):
            return math.inf
        return best_period(save=self.save, restart=self.restart, failure=self.mtbf * endurable)

    def after(self, policy: str, effect: str) -> float:
        """Seconds from a loss on in which survivors pause, and compute what was lost with it."""
        if effect == "fatal":
            return 0.0
        always = self.patch == "always" and effect == "masked" and policy == "stacked"
        patched = self.patch != "free" and effect == "patched"
        return self.pause + (self.compute if always or patched else 0.0)

    def gaps(self, seed: int) -> Iterator[float]:
        """Seconds from one failure to the next, Weibull."""
        scale = self.mtbf / math.gamma(1 + 1 / self.shape)
        for u in self.uniform(seed, "arrival"):
            yield scale * (-math.log1p(-u)) ** (1 / self.shape)

    def reduces(self, seed: int) -> Iterator[float]:
        """Seconds of each all-reduce."""
        low, high = self.reduce
        for u in self.uniform(seed, "reduce"):
            yield low + (high - low) * u

    def uniform(self, seed: int, name: str) -> Iterator[float]:
        """Numbers from 0 to 1, by Philox: the same on every machine."""
        draw = np.random.Generator(np.random.Philox(number(seed, f"stacked.simulate.{name}")))
        while True:
            yield from draw.random(_BLOCK).tolist()

    def rules(self, policies: Sequence[str]) -> tuple[str, ...]:
        """What is assumed for these policies, in sentences."""
        low, high = self.reduce
        between = f"{low:g} s" if low == high else f"{low:g} to {high:g} s, uniform"
        rules = [
            f"a group is lost every {self.mtbf:g} s in the mean (Weibull, shape {self.shape:g}), "
            "however many are left; each survivor is as likely to be the next",
            f"a step computes shards of {self.compute:g} s each, and all-reduces in {between}",
            "a loss is noticed at the all-reduce, one in a checkpoint at the next step's; those in "
            "a restart are ignored"
            + (f"; survivors go on after {self.pause:g} s" if self.pause else ""),
            "a wipe-out goes back to the last checkpoint, and all groups are there again after "
            f"{self.restart:g} s",
            f"a checkpoint takes {self.save:g} s, in the best period of each policy by the formula",
        ]
        if "stacked" in policies:
            rules.append(f"stacked: {_PATCHED[self.patch]}")
        if "replication" in policies:
            replicas = "sets of r groups that share all their types"
            if not self.sets:
                replicas = "neighbours: any r groups in a row share a type"
            rules.append(f"replication computes r shards a group always; replicas are {replicas}")
        if "shrink" in policies or "replica" in policies:
            again = "" if self.patch == "free" else ", and computed in the time of one"
            rules.append(
                f"shrink and replica: shards of a group that is lost are spread over those that "
                f"are left{again}; for a replica a newcomer is there after {self.replace:g} s and "
                f"receives the state in {self.catch_up:g} s, while all wait"
            )
        return tuple(rules)


_PATCHED = {
    "needed": "survivors compute what was lost, for the time of one shard, where today's order "
    "does not cover all types; else a loss costs nothing",
    "always": "survivors compute for the time of one shard after each loss",
    "free": "survivors compute what was lost in no time",
}
