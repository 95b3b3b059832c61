"""Connections between two ranks that break, or become slow."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from dtoolkit.comm import units
from dtoolkit.faults.arguments import check_rank
from dtoolkit.faults.fault import Fault, Moment

if TYPE_CHECKING:
    from dtoolkit.cluster.instrument import Site

__all__ = ["CutLink", "SlowLink"]


@dataclass(frozen=True, repr=False)
class _Link(Fault):
    """A fault of the connection between two ranks; the source is who does it.

    Parameters
    ----------
    source, target : int
        Two different ranks, as they are numbered at that moment.
    """

    source: int
    target: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("source", "target"):
            self._set(name, self._whole(name))
        if self.source == self.target:
            raise ValueError(
                f"{self.name}: source and target are both {self.source}: there is no such link"
            )

    @property
    def rank(self) -> int:
        """The rank that does it."""
        return self.source

    def check(self, ranks: int) -> None:
        """Refuse ranks that are not there.

        Parameters
        ----------
        ranks : int
            How many ranks there are.

        Raises
        ------
        ValueError
        """
        check_rank(self.name, "source", self.source, ranks)
        check_rank(self.name, "target", self.target, ranks)

    def _is_there(self, site: Site) -> bool:
        """Whether the link is: ranks may have left, and have other numbers now."""
        return self.target < site.size and self.target != site.rank


@dataclass(frozen=True, repr=False)
class CutLink(_Link):
    """Cut the connection between two ranks: its sockets are shut down, both processes live on.

    Parameters
    ----------
    source, target : int
        Two ranks; the source does it. In a group that has shrunk below the target nothing is cut.
    at_step, where, at_operation, after
        The point, on the source: see :class:`~dtoolkit.faults.Fault`.
    """

    def words(self) -> str:
        """What happens, in words."""
        return f"cut the link between ranks {self.source} and {self.target}"

    def strike(self, site: Site, moment: Moment) -> None:
        """Shut the sockets down."""
        if self._is_there(site):
            site.cut(self.target)


@dataclass(frozen=True, repr=False)
class SlowLink(_Link):
    """Make the connection between two ranks slow: messages are real, and arrive later.

    It is a state and no event: every launch of a run or a block meets it from its point on. In the
    log it stands once.

    Parameters
    ----------
    source, target : int
        Two ranks; messages of both directions are slow.
    bandwidth : float or str, optional
        What the link carries, such as ``"10MB/s"``; a number is bytes a second.
    latency : float or str, optional
        What each message takes more, such as ``"5ms"``; a number is seconds.
    until_step : int, optional
        First step that meets the link as it was; by default it stays slow.
    for_seconds : float, optional
        The link is slow for so long, in every launch.
    at_step, where, at_operation, after
        The point, on the source: see :class:`~dtoolkit.faults.Fault`. By default the beginning.

    Examples
    --------
    >>> from dtoolkit.faults import SlowLink
    >>> print(SlowLink(0, 1, latency="5ms", at_step=3, until_step=6))
    slow the link between ranks 0 and 1 (5ms more), at step 3 until step 6
    """

    lasts: ClassVar[bool] = True

    _: KW_ONLY
    bandwidth: float | str | None = None
    latency: float | str | None = None
    until_step: int | None = None
    for_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.at_step is None and self.at_operation is None and self.after is None:
            self._set("after", 0.0)
        super().__post_init__()
        if self.bandwidth is None and self.latency is None:
            raise ValueError("SlowLink: nothing makes the link slow; give bandwidth= or latency=")
        self._rate(), self._delay()
        if self.until_step is not None:
            self._set("until_step", self._whole("until_step"))
            if self.for_seconds is not None:
                raise ValueError("SlowLink: give until_step= or for_seconds=, not both")
            if self.at_step is not None and self.until_step <= self.at_step:
                raise ValueError(
                    f"SlowLink: until_step={self.until_step} must be above at_step={self.at_step}"
                )
        if self.for_seconds is not None:
            self._number("for_seconds")

    def words(self) -> str:
        """What happens, in words."""
        return f"slow the {self._link()},"

    def __str__(self) -> str:
        until = "" if self.until_step is None else f" until step {self.until_step}"
        return (
            super().__str__()
            + until
            + ("" if self.for_seconds is None else f" for {self.for_seconds:g} s")
        )

    def due(self, moment: Moment) -> bool:
        """Whether this is the point, or a later step in which the link is still slow."""
        if self.at_step is None or self.for_seconds is not None or moment.step is None:
            return super().due(moment)
        return self.at_step <= moment.step and self.holds(moment.step, 0.0)

    def holds(self, step: int | None, seconds: float) -> bool:
        """Whether the link is still slow at a step, so many seconds after it became so."""
        if self.until_step is not None:
            return step is None or step < self.until_step
        return self.for_seconds is None or seconds < self.for_seconds

    @property
    def mark(self) -> str:
        """What traces of launches say that have met the link."""
        return f"a slow {self._link()}"

    @property
    def span(self) -> float | None:
        """Seconds for which the link is slow; None where they are not limited."""
        return self.for_seconds

    def strike(self, site: Site, moment: Moment) -> None:
        """Hold messages back from now on."""
        if self._is_there(site):
            site.delay(self.target, seconds=self._delay(), bandwidth=self._rate())

    def end(self, site: Site) -> None:
        """Let messages through again."""
        if self._is_there(site):
            site.delay(self.target)

    def _link(self) -> str:
        how = [] if self.bandwidth is None else [_text(self.bandwidth, "B/s")]
        how += [] if self.latency is None else [f"{_text(self.latency, 's')} more"]
        return f"link between ranks {self.source} and {self.target} ({', '.join(how)})"

    def _rate(self) -> float | None:
        return None if self.bandwidth is None else units.bandwidth(self.bandwidth)

    def _delay(self) -> float | None:
        return None if self.latency is None else units.seconds(self.latency, "latency")


def _text(value: float | str, unit: str) -> str:
    return value if isinstance(value, str) else f"{value:g} {unit}"
