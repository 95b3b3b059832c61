"""How a launch is to be run: what the owner of it asked for, beside the function itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cloudpickle

from dtoolkit.cluster.instrument import Instrument

__all__ = ["FOREVER", "Terms", "check_deadline"]

FOREVER = 1e9
"""Seconds that a launch may take where it has no time-out."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked of a launch.

    Attributes
    ----------
    timeout : float
        Seconds that it may take.
    keep : str
        Key under which the results stay on the workers; empty to bring them here.
    elastic : bool
    silence : float or None
        Seconds without a sign of life after which a rank is hung; None: for ever.
    instruments : tuple of Instrument
    """

    timeout: float
    keep: str = ""
    elastic: bool = False
    silence: float | None = None
    instruments: tuple[Instrument, ...] = ()

    @property
    def hooks(self) -> bool:
        """Whether the ranks must tell what they do."""
        return bool(self.instruments) or self.silence is not None

    def pickled(self) -> bytes:
        """The instruments as they are now; empty if there are none.

        Raises
        ------
        TypeError
            They cannot be pickled.
        """
        if not self.instruments:
            return b""
        try:
            return cloudpickle.dumps(self.instruments, protocol=5)
        except Exception as error:  # whatever a class's own pickling raises
            raise TypeError(
                f"instruments are sent to the workers, but cannot be pickled: {error}"
            ) from error


def check_deadline(deadline: Any) -> float | None:
    """Seconds of silence that a launch bears.

    Raises
    ------
    ValueError, TypeError
    """
    if deadline is None:
        return None
    if isinstance(deadline, bool) or not isinstance(deadline, int | float):
        raise TypeError(f"deadline must be a number of seconds or None, got {deadline!r}")
    if not deadline > 0:
        raise ValueError(f"deadline must be a positive number of seconds or None, got {deadline}")
    return float(deadline)
