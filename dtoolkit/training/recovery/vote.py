"""The vote on a step: whether all ranks have what it takes, before anything is changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

import torch

from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.standing import StandingGather

__all__ = ["Ballot", "Vote", "Votes"]


@dataclass(frozen=True)
class Ballot:
    """What one rank says; numbers alone, so that they travel in one small message.

    Attributes
    ----------
    fault : int
        0, or that something went wrong on the rank.
    mark : int
        Fingerprint of what the rank held as the step began; 0 where none was made.
    newcomers : int
        Workers that could join.
    stop : bool
        The rank was asked to stop.
    changed : bool
        Buffers were written to.
    loss, samples, compute
        Of the shards that the rank counts: sum of losses, samples; seconds of computing.
    start, ready : float
        When the step began and when the rank was ready, on the client's clock.
    """

    fault: int = 0
    mark: int = 0
    newcomers: int = 0
    stop: bool = False
    changed: bool = False
    loss: float = 0.0
    samples: int = 0
    compute: float = 0.0
    start: float = 0.0
    ready: float = 0.0


@dataclass(frozen=True)
class Votes:
    """What all ranks of a group have said, by rank.

    Attributes
    ----------
    ballots : tuple of Ballot
    used : tuple of bool, one a parameter
        Whether any rank has a gradient of it.
    """

    ballots: tuple[Ballot, ...]
    used: tuple[bool, ...]

    @property
    def faults(self) -> list[int]:
        """Ranks on which something went wrong."""
        return [rank for rank, one in enumerate(self.ballots) if one.fault]

    @property
    def stop(self) -> bool:
        """Whether any rank was asked to stop."""
        return any(one.stop for one in self.ballots)

    @property
    def newcomers(self) -> int:
        """Workers that could join, as far as any rank knows."""
        return max(one.newcomers for one in self.ballots)

    @property
    def idle(self) -> list[float]:
        """Seconds that each rank waited for the last one."""
        last = max(one.ready for one in self.ballots)
        return [last - one.ready for one in self.ballots]

    def outvoted(self) -> tuple[int | None, list[int]]:
        """Ranks that hold something else than most, and the first of those that are most.

        Returns
        -------
        source : int or None
            None where no state is held by more ranks than any other.
        ranks : list of int
            Empty where all are alike.
        """
        marks = [one.mark for one in self.ballots]
        counts = Counter(mark for mark in marks if mark)
        if len(counts) < 2:
            return 0, []
        (mark, most), (_, second) = counts.most_common(2)
        if most == second:
            return None, list(range(len(marks)))
        return marks.index(mark), [rank for rank, one in enumerate(marks) if one not in (mark, 0)]


class Vote:
    """The ballot box of one group.

    Parameters
    ----------
    comm : Communicator
    parameters : int
        How many are learned.
    """

    def __init__(self, comm: Communicator, parameters: int) -> None:
        self._comm = comm
        words = -(-parameters // 8)  # rows of whole words can be read as numbers
        self._told = torch.zeros(_HEAD + 8 * words, dtype=torch.uint8)
        self._gather = StandingGather(comm, self._told)
        self._parameters = parameters

    def cast(self, ballot: Ballot, used: torch.Tensor) -> Votes:
        """Say what this rank has to say, and hear all others; collective."""
        numbers = [float(getattr(ballot, one)) for one in _NUMBERS]
        self._told[: 8 * len(numbers)] = torch.tensor(numbers, dtype=torch.float64).view(_BYTES)
        self._told[_MARK] = torch.tensor([ballot.mark]).view(_BYTES)
        self._told[_HEAD : _HEAD + self._parameters] = used.to(_BYTES)
        with self._comm.phase("agreement"):
            self._gather.run()
        said = self._gather.whole
        numbers_of = said[:, : 8 * len(_NUMBERS)].contiguous().view(torch.float64).tolist()
        marks = said[:, _MARK].contiguous().view(torch.int64)[:, 0].tolist()
        flags = said[:, _HEAD : _HEAD + self._parameters].any(0).tolist()
        ballots = tuple(
            _ballot(dict(zip(_NUMBERS, row, strict=True)), mark)
            for row, mark in zip(numbers_of, marks, strict=True)
        )
        return Votes(ballots, tuple(map(bool, flags)))


_BYTES = torch.uint8
_KINDS = {"int": int, "bool": bool, "float": float}
_NUMBERS = tuple(one.name for one in fields(Ballot) if one.name != "mark")
_TYPES = {one.name: _KINDS[str(one.type)] for one in fields(Ballot)}
_MARK = slice(8 * len(_NUMBERS), 8 * len(_NUMBERS) + 8)
_HEAD = 8 * len(_NUMBERS) + 8


def _ballot(numbers: dict[str, float], mark: int) -> Ballot:
    return Ballot(mark=mark, **{name: _TYPES[name](value) for name, value in numbers.items()})
