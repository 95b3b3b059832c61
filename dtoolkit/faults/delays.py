"""How long a delay is: distributions whose numbers depend on the seed and the place alone.

What is drawn for a rank, a step and a micro-batch is the same on any machine, with any number of
workers, in any order, and drawn alone or in a table: a counter (Philox) of the three, under a key
of the seed, gives 52 bits, and the inverse of the distribution function makes seconds of them. So
a simulation can be given exactly the delays that workers will meet.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dtoolkit.faults.arguments import check_number
from dtoolkit.philox import seed_key

__all__ = ["Constant", "Delay", "Exponential", "HeavyTail", "LogNormal", "Normal"]

_LIMIT = 1 << 32  # of a number that is one word of the counter
_LONGEST = 999  # of the lengths that the heavy tail is made of


class Delay(ABC):
    """A distribution of delays, in seconds, never below 0.

    One's own derives from this and says how a probability becomes seconds.
    """

    @abstractmethod
    def quantile(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds that a delay stays below with this probability.

        Parameters
        ----------
        probability : float64 array
            Between 0 and 1, both excluded.

        Returns
        -------
        float64 array of that shape
        """

    def draw(self, seed: int, *, rank: int, step: int, micro: int) -> float:
        """One delay.

        Parameters
        ----------
        seed : int
        rank, step, micro : int
            Of the worker, the step, and the micro-batch in it, each from 0 below 2**32.

        Returns
        -------
        float
            Seconds.

        Raises
        ------
        TypeError, ValueError
            A number is no integer, or out of range.
        """
        place = _whole("rank", rank), _whole("step", step), _whole("micro", micro)
        return float(self.quantile(_uniform(_key(seed), [place[:2]], place[2], 1))[0, 0])

    def table(
        self, seed: int, *, workers: int, steps: int, micro_batches: int, first_step: int = 0
    ) -> NDArray[np.float64]:
        """All delays of a run: what :meth:`draw` gives for each worker, step and micro-batch.

        Returns
        -------
        float64 array, shape (workers, steps, micro_batches)
            Seconds.

        Raises
        ------
        TypeError, ValueError
            As :meth:`draw`; a size below 0.
        """
        first, end = _whole("first_step", first_step), _whole("steps", steps)
        rows = list(product(range(_whole("workers", workers)), range(first, first + end)))
        length = _whole("micro_batches", micro_batches)
        drawn = self.quantile(_uniform(_key(seed), rows, 0, length))
        return drawn.reshape(workers, steps, length)


@dataclass(frozen=True)
class Constant(Delay):
    """Always the same delay.

    Parameters
    ----------
    seconds : float
    """

    seconds: float

    def __post_init__(self) -> None:
        _check(self, "seconds")

    @property
    def mean(self) -> float:
        """Seconds."""
        return self.seconds

    @property
    def std(self) -> float:
        """0: all delays are equal."""
        return 0.0

    def quantile(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds, whatever the probability."""
        return np.full_like(probability, self.seconds)


@dataclass(frozen=True)
class Normal(Delay):
    """Normal delays; what would be below 0 is 0.

    Parameters
    ----------
    mean, std : float
        Mean and standard deviation in seconds before the cut at 0: keep the mean at 3 deviations
        or more if it is to be the mean of what is drawn.
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        _check(self, "mean", "std")

    def quantile(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds: the inverse of the distribution function, cut at 0."""
        return np.maximum(self.mean + self.std * ndtri(probability), 0.0)


@dataclass(frozen=True)
class Exponential(Delay):
    """Exponential delays: mostly short, now and then some times the mean.

    Parameters
    ----------
    mean : float
        Seconds; the standard deviation is the same.
    """

    mean: float

    def __post_init__(self) -> None:
        _check(self, "mean")

    @property
    def std(self) -> float:
        """Standard deviation, seconds."""
        return self.mean

    def quantile(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds: the inverse of the distribution function."""
        return -self.mean * np.log1p(-probability)


@dataclass(frozen=True)
class LogNormal(Delay):
    """Delays whose logarithm is normal.

    Parameters
    ----------
    mean : float
        Of the delay, seconds.
    sigma : float
        Standard deviation of the logarithm (no unit): 0.5 is mild, 1 has a long tail.
    """

    mean: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        _check(self, "mean", "sigma")

    @property
    def std(self) -> float:
        """Standard deviation of the delay, seconds."""
        return self.mean * math.sqrt(math.expm1(self.sigma**2))

    def quantile(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds: the inverse of the distribution function."""
        return self.mean * np.exp(self.sigma * ndtri(probability) - self.sigma**2 / 2)


@dataclass(frozen=True)
class HeavyTail(Delay):
    """Delays like lengths of sentences: the heavy tail of the experiments with DropCompute.

    A length l of 1 to 999 has probability proportional to exp(-(ln l - 4)**2 / 2) / l; the delay is
    `mean` times l over the mean length. The longest is 11 times the mean, the standard deviation is
    1.2 times it. Source: Giladi et al., "DropCompute: simple and more robust distributed
    synchronous training via compute variance reduction", NeurIPS 2023, and its released code.

    Parameters
    ----------
    mean : float
        Seconds. The reference figures have micro-batches of 1 + X/2 with X of mean 1:
        ``HeavyTail(0.5)`` beside a computation of 1.
    """

    mean: float

    def __post_init__(self) -> None:
        _check(self, "mean")

    @property
    def std(self) -> float:
        """Standard deviation, seconds."""
        multiples, below = _lengths()
        share = np.diff(below, prepend=0.0)
        return self.mean * math.sqrt(float(share @ (multiples - 1.0) ** 2))

    def quantile(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds: the inverse of the distribution function."""
        multiples, below = _lengths()
        return self.mean * multiples[np.searchsorted(below, probability)]


def _uniform(
    key: NDArray[np.uint64], rows: Sequence[tuple[int, int]], first: int, length: int
) -> NDArray[np.float64]:
    """Probabilities of a row (rank, step) from its micro-batch `first` on, shape (rows, length).

    The counter's words are (micro-batch / 4, step, rank, 0): each counter gives four numbers. The
    generator's state is set for every row, since making one takes five times as long.
    """
    source = np.random.Philox(key=key)
    state: Any = source.state
    skip = first % 4
    bits = np.empty((len(rows), length), dtype=np.uint64)
    for place, (rank, step) in enumerate(rows):
        state["state"]["counter"][:] = (first // 4, step, rank, 0)
        source.state = state
        bits[place] = source.random_raw(skip + length)[skip:]
    # Half a step from both ends: 52 bits and a half fit a float64, so that 1 never comes out.
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _key(seed: int) -> NDArray[np.uint64]:
    return np.array(seed_key(seed, domain="dtoolkit.faults.delays"), dtype=np.uint64)


@cache
def _lengths() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lengths over their mean, and the probability of one or a shorter one."""
    lengths = np.arange(1.0, _LONGEST + 1)
    share = np.exp(-((np.log(lengths) - 4.0) ** 2) / 2) / lengths
    share /= share.sum()
    below = np.cumsum(share)
    below[-1] = 1.0  # whatever the rounding of the sum
    return lengths / (share @ lengths), below


def _check(delay: Any, *names: str) -> None:
    for name in names:
        check_number(type(delay).__name__, name, getattr(delay, name))


def _whole(name: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: wanted an integer") from None
    if not 0 <= number < _LIMIT:
        raise ValueError(f"{name}={value!r}: wanted 0 or more, below 2**32")
    return number
