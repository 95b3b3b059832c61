"""What a run does when something goes wrong: the policies, by name."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dtoolkit.errors import (
    ClusterClosed,
    ClusterTooSmall,
    CommunicationError,
    DtoolkitError,
    LaunchCancelled,
    LaunchTimeout,
    RankError,
    VersionMismatch,
    WipeOut,
    WorkerLost,
)

if TYPE_CHECKING:
    from dtoolkit.training.settings import Settings
    from dtoolkit.training.strategy import Strategy

__all__ = ["DEADLINE", "Abort", "Policy", "Restart", "count", "not_finite", "wiped_out"]

DEADLINE = 15.0
"""Seconds without a sign of life after which a worker counts as hung, unless ``deadline=`` says."""


@dataclass(frozen=True)
class Policy:
    """What all policies share.

    Attributes
    ----------
    name : str
    elastic : bool
        Workers that are left go on by themselves; else whatever goes wrong ends all of them.
    deadline : float or None
        Seconds without a sign of life after which a worker counts as hung, where the call names no
        other; None: nobody looks.
    attempts : int
        How often the run may be started again from its checkpoint.
    repeats : int
        The same failure so many times at the same step ends the run with it.
    """

    name: ClassVar[str] = ""
    elastic: ClassVar[bool] = False
    deadline: ClassVar[float | None] = DEADLINE

    @property
    def attempts(self) -> int:
        """How often the run may be started again from its checkpoint."""
        return 0

    @property
    def repeats(self) -> int:
        """How often the same failure is taken at the same step."""
        return _WITHOUT_PROGRESS

    def restarts_after(self, error: BaseException) -> bool:
        """Whether the run is started again after a launch has ended with this error."""
        return False

    def check(
        self, strategy: Strategy, settings: Settings, *, batch_norm: bool, ranks: int
    ) -> None:
        """Refuse what the policy cannot recover, on the client, before anything is sent.

        Parameters
        ----------
        strategy : Strategy
        settings : Settings
        batch_norm : bool
            Whether the model has batch norm.
        ranks : int

        Raises
        ------
        ValueError
            The text names what to use instead.
        """


@dataclass(frozen=True)
class Abort(Policy):
    """Whatever goes wrong ends the run, with an error that says what it was."""

    name: ClassVar[str] = "abort"
    deadline: ClassVar[float | None] = None


@dataclass(frozen=True)
class Restart(Policy):
    """Start again from the last checkpoint, with all workers; for every strategy.

    The client watches. A launch that fails by a lost or hung worker, an exception, a lack of
    memory, a number that is not finite or ranks that differ is made again once the workers are
    complete. What was done since the checkpoint is done again, to the same bits where the
    strategy's resume is exact.

    Attributes
    ----------
    most : int
        How often, at most.
    without_progress : int
        The same failure so many times at the same step ends the run with it.

    Raises
    ------
    TypeError, ValueError
        They are no integers of at least 1.
    """

    name: ClassVar[str] = "restart"

    most: int = 10
    without_progress: int = 3

    def __post_init__(self) -> None:
        count("most", self.most)
        count("without_progress", self.without_progress)

    @property
    def attempts(self) -> int:
        """See :class:`Policy`."""
        return self.most

    @property
    def repeats(self) -> int:
        """See :class:`Policy`."""
        return self.without_progress

    def restarts_after(self, error: BaseException) -> bool:
        """See :meth:`Policy.restarts_after`."""
        return isinstance(error, DtoolkitError) and not isinstance(error, _FINAL)


def wiped_out(error: BaseException) -> bool:
    """Whether a launch has ended because nothing is left that it could go on from."""
    if isinstance(error, RankError):
        return isinstance(error.__cause__, WipeOut)
    return isinstance(error, WorkerLost | CommunicationError | WipeOut)


def not_finite(error: BaseException) -> bool:
    """Whether a launch has ended because a number on a rank is not finite."""
    return isinstance(error, RankError) and isinstance(error.__cause__, FloatingPointError)


_WITHOUT_PROGRESS = 3

_FINAL = (ClusterClosed, ClusterTooSmall, LaunchCancelled, LaunchTimeout, VersionMismatch)
"""Errors after which a further launch would fail alike, or that the owner wanted."""


def count(name: str, value: Any, *, least: int = 1) -> None:
    """Refuse what is no integer of at least so many.

    Raises
    ------
    TypeError, ValueError
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: wanted an integer") from None
    if number < least or isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: wanted an integer of at least {least}")
