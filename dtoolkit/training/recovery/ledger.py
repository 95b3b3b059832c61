"""Reports of all ranks, kept by each of them, so that whoever is left can write the checkpoint."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dtoolkit.training.records import FIELDS, Records
from dtoolkit.training.runfile import run_parts
from dtoolkit.training.statefile import write_parts

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator
    from dtoolkit.training.loop import Job
    from dtoolkit.training.recovery.vote import Votes
    from dtoolkit.training.state import RunState

__all__ = ["Ledger"]

_PAST = 256  # steps whose votes are remembered: reports of a rank that is killed may not arrive,
_LATELY = 5.0  # seconds within which it has sent them
_END = FIELDS.index("end")


class Ledger:
    """What ranks say of their steps, by seat.

    Parameters
    ----------
    job : Job
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._checkpoint = job.checkpoint
        self._records = Records(int(job.about["settings"]["workers"]))
        if job.records is not None:
            self._records.unpack(job.records)
        self._mine: list[list[float]] = []
        self._past: deque[dict[int, list[float]]] = deque(maxlen=_PAST)
        self._began = time.perf_counter()

    @property
    def every(self) -> int | None:
        """Steps between two checkpoints; None where there are none."""
        checkpoint = self._checkpoint
        return None if checkpoint is None else checkpoint.interval(self._job.settings.steps)

    def note(self, row: list[float], votes: Votes, seats: Sequence[int]) -> None:
        """Keep what this rank reports of a step, and what it knows of the others'."""
        self._mine.append(row)
        step, epoch, rate, end = row[0], row[1], row[10], row[12]
        self._past.append(
            {
                seat: [
                    *(step, epoch, one.loss, one.samples, one.samples, one.compute, idle),
                    *(0.0, 1.0, row[9], rate, one.start, end),
                ]
                for seat, one, idle in zip(seats, votes.ballots, votes.idle, strict=True)
            }
        )

    def in_place_of(self, seats: Sequence[int]) -> list[dict[str, Any]]:
        """Reports of the last steps of some ranks, as far as others know, as events."""
        if not self._past or not seats:
            return []
        lately = max(row[_END] for row in self._past[-1].values()) - _LATELY
        known = [
            {"row": one[seat], "worker": seat, "of": len(one), "instead": True}
            for one in self._past
            for seat in seats
            if seat in one and one[seat][_END] > lately
        ]
        for event in known:
            self._records.take({**event, "rank": event["worker"]})
        return known

    def scored(self, said: dict[str, Any]) -> None:
        """Keep an evaluation."""
        self._records.take(said)

    def gather(self, comm: Communicator, seats: Sequence[int]) -> None:
        """Bring the reports of all ranks to all; collective."""
        rows = torch.tensor(self._mine, dtype=torch.float64).reshape(-1, len(FIELDS))
        with comm.phase("state"):
            came = comm.all_gather_v(rows)
        for seat, some in zip(seats, came, strict=True):
            self._records.take_rows(seat, np.asarray(some.cpu()))
        self._mine = []

    def write(self, state: RunState, summary: dict[str, Any]) -> None:
        """Replace the checkpoint, if there is one; on one rank.

        Raises
        ------
        OSError
            The file cannot be written; the one before is still there.
        """
        if self._checkpoint is None:
            return
        parts = run_parts(
            state=state,
            history=self._records.frame(partial=True),
            summary=summary,
            seconds=time.perf_counter() - self._began,
            **self._job.about,
        )
        write_parts(self._checkpoint.path, {**parts, "records": self._records.packed()})

    def packed(self) -> dict[str, Any]:
        """What a newcomer must know, as plain content."""
        return self._records.packed()

    def unpack(self, content: dict[str, Any]) -> None:
        """Take in what :meth:`packed` gave elsewhere."""
        self._records.unpack(content)
