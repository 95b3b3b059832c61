"""How ranks agree to stop: at the same step, though each hears of it at another time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from dtoolkit.cluster import Context

__all__ = ["STOP", "Agreement"]

STOP = "stop"
"""The message that asks a run to stop."""

_BETWEEN = 0.05  # seconds between two questions, about: a stop is heard so much later
_MOST = 32  # steps between two questions: steps may become slow
_OVERDUE = 64  # steps after which ranks that do not meet by themselves are made to


class Agreement:
    """Questions among ranks, as seldom as a prompt stop allows.

    All ranks ask at the same steps: when they ask next follows from what all have said.

    Parameters
    ----------
    ctx : Context
    step : int
        Steps that are done.

    Attributes
    ----------
    stopped : bool
        All ranks have agreed to stop.
    """

    def __init__(self, ctx: Context, step: int) -> None:
        self.stopped = False
        self._ctx = ctx
        self._heard = False
        self._told = False
        self._last, self._next = step, step + 1
        self._since = time.perf_counter()

    def heard(self) -> bool:
        """Whether a stop was asked for, on this rank and once."""
        if self._told or not self._listen():
            return False
        self._told = True
        return True

    def due(self, step: int) -> bool:
        """Whether the ranks ask each other after so many steps."""
        return step >= self._next

    def overdue(self, step: int) -> bool:
        """Whether they have waited long for a step at which they meet."""
        return step >= self._next + _OVERDUE

    def agree(self, step: int) -> bool:
        """Whether any rank was asked to stop; collective."""
        now = time.perf_counter()
        took = (now - self._since) / max(1, step - self._last)
        heard = self._listen()
        if self._ctx.size > 1:
            mine = torch.tensor([float(heard), took], dtype=torch.float64)
            with self._ctx.comm.phase("agreement"):
                said = self._ctx.comm.all_gather(mine)
            heard, took = bool(said[:, 0].any()), float(said[:, 1].max())
        self.stopped = self.stopped or heard
        self._last, self._since = step, time.perf_counter()
        self._next = step + min(_MOST, max(1, int(_BETWEEN / max(took, 1e-6))))
        return self.stopped

    def _listen(self) -> bool:
        self._heard = self._heard or STOP in self._ctx.messages()
        return self._heard
