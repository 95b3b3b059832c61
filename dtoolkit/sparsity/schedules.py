"""When masks change, and by how much.

One object serves both families of methods: those that swap connections ask it for the share to be
replaced (`fraction`), those that prune gradually for the density of the moment (`density`). Write a
subclass of :class:`Schedule` for one of your own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dtoolkit.sparsity.citing import Cited
from dtoolkit.sparsity.naming import pick

__all__ = ["Constant", "Cosine", "Cubic", "Schedule", "as_schedule"]


@dataclass(frozen=True, kw_only=True)
class Schedule(Cited, ABC):
    """Updates of the masks over the steps of a run.

    Attributes
    ----------
    every : int
        Steps from one update to the next.
    start : int
        Updates come at ``start + every``, ``start + 2 every`` ...
    stop : int or None
        Step of the last update; masks stay as they are from then on. None: never.
    share : float
        Share of the live weights that the first update replaces, in [0, 1].
    """

    name: ClassVar[str]
    needs_stop: ClassVar[bool] = True

    every: int = 50
    start: int = 0
    stop: int | None = None
    share: float = 0.3

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every={self.every}: wanted 1 step or more")
        if self.start < 0:
            raise ValueError(f"start={self.start}: wanted 0 or more")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share={self.share}: wanted 0 to 1")
        if self.stop is None and self.needs_stop:
            raise ValueError(
                f"stop is not given: {type(self).__name__} has to know the step of its last "
                "update, such as three quarters of the run's steps"
            )
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop={self.stop}: wanted more than start={self.start}")

    @abstractmethod
    def decay(self, progress: float) -> float:
        """Fall from 1 at the start (`progress` 0) to what is left at the stop (`progress` 1)."""

    def due(self, step: int) -> bool:
        """Whether masks are updated after step `step` (1 is the optimizer's first)."""
        if step <= self.start or (self.stop is not None and step > self.stop):
            return False
        return (step - self.start) % self.every == 0 or step == self.stop

    def fraction(self, step: int) -> float:
        """Share of the live weights that the update after `step` replaces."""
        return self.share * self.decay(self._progress(step))

    def density(self, step: int, final: float) -> float:
        """Density after `step` of a layer that starts dense and ends at `final`."""
        return final + (1 - final) * self.decay(self._progress(step))

    def _progress(self, step: int) -> float:
        if self.stop is None:
            return 0.0
        return min(max((step - self.start) / (self.stop - self.start), 0.0), 1.0)


class Constant(Schedule):
    """The same share at every update; the final density at once."""

    name = "constant"
    needs_stop = False

    def decay(self, progress: float) -> float:
        """1: it does not fall."""
        return 1.0

    def density(self, step: int, final: float) -> float:
        """The final density: pruned in one shot."""
        return final


class Cosine(Schedule):
    """The share falls along half a cosine to 0 at the stop.

    Evci et al., "Rigging the lottery: making all tickets winners", ICML 2020, section 3: there
    every 100 steps, share 0.3, stop at three quarters of the run.
    """

    name = "cosine"
    citation = "U. Evci et al., Rigging the lottery: making all tickets winners, ICML 2020"

    def decay(self, progress: float) -> float:
        """(1 + cos(pi progress)) / 2."""
        return (1 + math.cos(math.pi * progress)) / 2


class Cubic(Schedule):
    """The way to go falls with the third power: much is pruned early, little at the end.

    Zhu and Gupta, "To prune, or not to prune", 2017, equation 1: sparsity
    s_f (1 - (1 - t)^3) for the progress t.
    """

    name = "cubic"
    citation = (
        "M. Zhu and S. Gupta, To prune, or not to prune: exploring the efficacy of pruning for "
        "model compression, 2017"
    )

    def decay(self, progress: float) -> float:
        """(1 - progress)^3."""
        return (1 - progress) ** 3


def as_schedule(value: Any, *, stop: int = 1000) -> Schedule:
    """Make a schedule of a name or an object; None is a constant one.

    Parameters
    ----------
    value : str, Schedule or None
    stop : int
        Step of the last update of a cosine and a cubic one that come by name.

    Raises
    ------
    ValueError, TypeError
        None of these.
    """
    named: dict[str, Callable[[], Schedule]] = {
        "constant": Constant,
        "cosine": lambda: Cosine(stop=stop),
        "cubic": lambda: Cubic(stop=stop),
    }
    return Constant() if value is None else pick("schedule", value, named, Schedule)
