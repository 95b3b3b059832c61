"""Checkpoints as they are written: by rank 0, of what all ranks bring."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dtoolkit.training.records import FIELDS, Records
from dtoolkit.training.runfile import run_parts
from dtoolkit.training.statefile import write_parts

if TYPE_CHECKING:
    from dtoolkit.training.checkpoint import Checkpoint
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.state import RunState
    from dtoolkit.training.strategy import Strategy

__all__ = ["Writer"]


class Writer:
    """Writes the run so far to one file, whose content is that of a saved run.

    Parameters
    ----------
    checkpoint : Checkpoint
    replica : Replica
    strategy : Strategy
    about : dict
        What the run says of itself: task, settings, citation.
    records : dict, optional
        Reports of the steps before, as of :meth:`Records.packed`.
    keeps_records : bool
        Write the reports themselves too, for a run that may be started again from the file.

    Attributes
    ----------
    every : int
        Steps between two checkpoints.
    rows : list of list of float
        What this rank has reported since the last checkpoint.
    scores : list of dict
        Evaluations, on rank 0.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        replica: Replica,
        strategy: Strategy,
        about: dict[str, Any],
        *,
        records: dict[str, Any] | None = None,
        keeps_records: bool = False,
    ) -> None:
        self.every = checkpoint.interval(replica.settings.steps)
        self.rows: list[list[float]] = []
        self.scores: list[dict[str, Any]] = []
        self._path = checkpoint.path
        self._replica, self._strategy, self._about = replica, strategy, about
        self._records = Records(replica.size, free=strategy.free)
        if records is not None:
            self._records.unpack(records)
        self._keeps_records = keeps_records
        self._began = time.perf_counter()

    def write(self, state: RunState | None) -> None:
        """Replace the file; collective.

        Parameters
        ----------
        state : RunState or None
            On rank 0, the state.

        Raises
        ------
        OSError
            On rank 0: the file cannot be written; the one before is still there.
        """
        rows = torch.tensor(self.rows, dtype=torch.float64).reshape(-1, len(FIELDS))
        self.rows = []
        with self._replica.comm.phase("state"):
            came = self._replica.comm.gather(rows)
        if came is None or state is None:
            return
        for rank, some in enumerate(came):
            self._records.take_rows(rank, np.asarray(some.cpu()))
        for said in self.scores:
            self._records.take(said)
        self.scores = []
        parts = run_parts(
            state=state,
            history=self._records.frame(partial=True),
            summary=self._strategy.summary(),
            seconds=time.perf_counter() - self._began,
            **self._about,
        )
        if self._keeps_records:
            parts["records"] = self._records.packed()
        write_parts(self._path, parts)
