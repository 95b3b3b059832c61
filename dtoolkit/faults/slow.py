"""A slow worker: what it computes takes longer, by a constant, a factor, or random delays."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from dtoolkit.faults.arguments import check_number, check_rank, read_whole
from dtoolkit.faults.delays import Delay

__all__ = ["Slow"]


@dataclass(frozen=True)
class Slow:
    """Make a rank slow: after each micro-batch it sleeps.

    What is stated adds up. The rank sleeps and does not compute, so that workers that share cores
    do not slow each other down.

    Parameters
    ----------
    rank : int, optional
        Which rank; all of them by default.
    seconds : float
        A constant to each micro-batch.
    factor : float, optional
        The micro-batch takes so many times what it really took; at least 1.
    delay : Delay, optional
        A distribution of :mod:`dtoolkit.faults.delays`, or one's own; drawn for the seed, the rank,
        the step and the micro-batch, so that a run meets the same delays each time.
    from_step : int
        First slow step.
    until_step : int, optional
        First step that is not slow any more; to the end by default.
    seed : int, optional
        Of the delays; that of the run by default. Two faults of one rank under one seed draw the
        same numbers.

    Raises
    ------
    TypeError, ValueError
        An argument is out of range, or nothing makes the rank slow.

    Examples
    --------
    >>> from dtoolkit.faults import Slow
    >>> Slow(rank=1, factor=3.0).pause(seed=0, rank=1, step=5, micro=0, took=0.01)
    0.02
    """

    rank: int | None = None
    _: KW_ONLY
    seconds: float = 0.0
    factor: float | None = None
    delay: Delay | None = None
    from_step: int = 0
    until_step: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("rank", "from_step", "until_step", "seed"):
            value = getattr(self, name)
            if value is not None:
                number = read_whole("Slow", name, value, negative=name == "seed")
                object.__setattr__(self, name, number)
        check_number("Slow", "seconds", self.seconds)
        if self.factor is not None:
            check_number("Slow", "factor", self.factor, least=1)
        if self.delay is not None and not isinstance(self.delay, Delay):
            raise TypeError(
                f"Slow: delay={self.delay!r} is no distribution of dtoolkit.faults.delays; a "
                "constant is seconds="
            )
        if self.until_step is not None and self.until_step <= self.from_step:
            raise ValueError(
                f"Slow: until_step={self.until_step} must be above from_step={self.from_step}"
            )
        if not self.seconds and self.factor is None and self.delay is None:
            raise ValueError("Slow: nothing makes the rank slow; give seconds=, factor= or delay=")

    def check(self, ranks: int) -> None:
        """Refuse a rank that is not there.

        Parameters
        ----------
        ranks : int
            How many ranks there are.

        Raises
        ------
        ValueError
        """
        if self.rank is not None:
            check_rank("Slow", "rank", self.rank, ranks)

    def pause(self, seed: int, rank: int, step: int, micro: int, took: float) -> float:
        """Seconds to sleep after a micro-batch.

        Parameters
        ----------
        seed : int
            Of the run.
        rank, step, micro : int
        took : float
            Seconds that the micro-batch really took.

        Returns
        -------
        float
            0 where this fault does not concern the rank or the step.
        """
        if self.rank not in (None, rank) or step < self.from_step:
            return 0.0
        if self.until_step is not None and step >= self.until_step:
            return 0.0
        total = self.seconds
        if self.factor is not None:
            total += (self.factor - 1.0) * took
        if self.delay is not None:
            key = seed if self.seed is None else self.seed
            total += self.delay.draw(key, rank=rank, step=step, micro=micro)
        return total
