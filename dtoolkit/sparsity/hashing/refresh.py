"""When hash tables are made again: often at first, ever more seldom."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["RefreshSchedule", "as_refresh"]

_LONGEST = 700.0  # exp of more is no float; such a refresh never comes


@dataclass(frozen=True)
class RefreshSchedule:
    """Refresh number t comes after ``sum(first * exp(growth * i) for i in range(t))`` steps.

    Number 0 is the building of the tables. As weights settle, the hashes change less, and tables
    may stand longer. Chen et al., "SLIDE", MLSys 2020 (there `first` is N0 = 50, `growth` lambda).
    Where the sum is no whole number, the refresh comes at the next whole step.

    Attributes
    ----------
    first : float
        Steps from the building to the first refresh, at least 1.
    growth : float
        0: always after as many steps.
    """

    first: float = 50.0
    growth: float = 0.1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.first) and self.first >= 1):
            raise ValueError(f"first={self.first}: wanted 1 step or more")
        if not (math.isfinite(self.growth) and self.growth >= 0):
            raise ValueError(f"growth={self.growth}: wanted 0 or more")

    def steps(self, upto: int) -> list[int]:
        """Steps, from 1 to `upto`, after which there is a refresh."""
        return list(self._steps(upto))

    def count(self, step: int) -> int:
        """Refreshes that are due once `step` steps are done, the building not counted."""
        return sum(1 for _ in self._steps(step))

    def due(self, step: int) -> bool:
        """Whether there is a refresh after step `step` (1 is the first)."""
        return any(one == step for one in self._steps(step))

    def _steps(self, upto: int) -> Iterator[int]:
        place, number = self.first, 0
        while place <= upto:
            yield math.ceil(place)
            number += 1
            place += self.first * math.exp(min(self.growth * number, _LONGEST))


def as_refresh(value: Any) -> RefreshSchedule | None:
    """Make a schedule of ``(first, growth)``, a number of steps, or one; None is never.

    Raises
    ------
    TypeError, ValueError
        None of these.
    """
    if value is None or isinstance(value, RefreshSchedule):
        return value
    parts = value if isinstance(value, tuple | list) else (value, 0)
    if len(parts) != 2 or not all(isinstance(one, int | float) for one in parts):
        raise TypeError(
            f"refresh={value!r}: wanted (first, growth), a number of steps, a RefreshSchedule or "
            "None"
        )
    return RefreshSchedule(float(parts[0]), float(parts[1]))
