"""What ranks report of each step, and the history that is made of it.

A rank logs a row of numbers a step. Whoever collects them (the client, while the run goes on; rank
0, for checkpoints) keeps a growing array a rank, and makes a table only when one is asked for: a
step costs the same however many came before.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FIELDS", "WORKER_COLUMNS", "Records"]

FIELDS = (
    "step",
    "epoch",
    "loss_sum",
    "samples",
    "planned",
    "compute",
    "idle",
    "staleness",
    "local_steps",
    "bytes",
    "lr",
    "start",
    "end",
)
"""What a rank says of a step; times in seconds, start and end on the client's clock."""

WORKER_COLUMNS = (
    "loss",
    "samples",
    "compute",
    "idle",
    "staleness",
    "local_steps",
    "seconds",
    "end",
    "throughput",
)
"""Columns of the history that there are for each worker, as ``<name>_<rank>``.

``end`` is when the worker's step ended, in seconds since the first step of any worker began: where
ranks run free, losses are put in order by it.
"""

_AT = {name: place for place, name in enumerate(FIELDS)}
_WHOLE = (
    "step",
    "epoch",
    "samples",
    "dropped",
    "staleness",
    "bytes",
    "local_steps",
    "live_parameters",
)


class Records:
    """Reports of all ranks, safe to add to and to read from several threads.

    Parameters
    ----------
    ranks : int
    free : bool
        Ranks count their steps by themselves: a row is what the ranks said of their own step of
        that number, and is shown before all have come to it.
    """

    def __init__(self, ranks: int, *, free: bool = False) -> None:
        self.ranks, self.free = ranks, free
        self._guard = threading.Lock()
        self._rows: dict[int, _Rows] = {}
        self._extra: dict[str, dict[tuple[int, int], float]] = {}
        self._scores: dict[int, dict[str, float]] = {}
        self._open: dict[int, int] = {}  # steps that some ranks have reported, and how many
        self._whole = 0  # steps that all ranks have reported

    def take(self, event: Mapping[str, Any]) -> int | None:
        """Take in what a rank logged; anything else than a report is let pass.

        A report may name the ``"worker"`` whose it is, where ranks are numbered anew after a loss,
        how many there are of the step (``"of"``), and that it stands in for one that may not have
        come (``"instead"``).

        Returns
        -------
        int or None
            The step, if it can be shown now and could not before.
        """
        with self._guard:
            if "row" in event:
                return self._row(int(event.get("worker", event["rank"])), event)
            if "scores" in event:
                names, values = event["scores"], event["values"]
                self._scores[int(event["after"]) - 1] = dict(zip(names, values, strict=True))
        return None

    def take_rows(self, rank: int, rows: NDArray[np.float64]) -> None:
        """Take in many reports of a rank, shape (steps, fields)."""
        with self._guard:
            for row in rows:
                self._row(rank, {"row": row})

    def packed(self) -> dict[str, Any]:
        """All reports and evaluations as plain content, for files."""
        with self._guard:
            rows = {rank: torch.from_numpy(rows.said()) for rank, rows in self._rows.items()}
            return {"rows": rows, "scores": {s: dict(one) for s, one in self._scores.items()}}

    def unpack(self, content: Mapping[str, Any]) -> None:
        """Take in what :meth:`packed` gave."""
        for rank, rows in content["rows"].items():
            self.take_rows(rank, np.asarray(rows))
        with self._guard:
            self._settle()
            self._scores |= {step: dict(one) for step, one in content["scores"].items()}

    def forget(self, step: int) -> None:
        """Forget the reports of a step and of all that follow: they are made again."""
        with self._guard:
            for rows in self._rows.values():
                rows.forget(step)
            self._scores = {s: one for s, one in self._scores.items() if s < step}
            for values in self._extra.values():
                for key in [key for key in values if key[1] >= step]:
                    del values[key]
            self._settle()

    @property
    def reached(self) -> int:
        """Steps that the furthest rank has reported."""
        with self._guard:
            return max((rows.first + len(rows) for rows in self._rows.values()), default=0)

    @property
    def done(self) -> int:
        """Steps that were reported: by all ranks, or, where they run free, by one on average."""
        if not self.free:
            return self._whole
        with self._guard:
            counts = [len(rows) for rows in self._rows.values()]
        return round(sum(counts) / len(counts)) if counts else 0

    def row(self, step: int) -> dict[str, float]:
        """The history's row of a step, without the columns of workers."""
        with self._guard:
            cube, first = self._cube(step, step + 1)
            scores = {name: self._scores.get(step, {}).get(name) for name in self._score_names()}
        columns = _columns(cube, first)
        found = {name: values[0].item() for name, values in columns.items()}
        return {**found, **{name: one for name, one in scores.items() if one is not None}}

    def frame(self, *, partial: bool = False) -> pd.DataFrame:
        """The history: a row a step.

        Parameters
        ----------
        partial : bool
            Show steps too that only some ranks have reported.
        """
        import pandas as pd

        with self._guard:
            first = min((rows.first for rows in self._rows.values()), default=0)
            end = max((rows.first + len(rows) for rows in self._rows.values()), default=0)
            if not (self.free or partial):
                end = min([end, *self._open])
            cube, first = self._cube(first, end)
            scores = {n: self._score_column(n, first, cube.shape[1]) for n in self._score_names()}
            extra = {n: self._extra_columns(v, first, cube.shape) for n, v in self._extra.items()}
        columns = _columns(cube, first) | scores
        columns |= {name: _mean(values) for name, values in extra.items()}
        columns |= _worker_columns(cube)
        for name, values in extra.items():
            columns |= {f"{name}_{rank}": one for rank, one in enumerate(values)}
        return pd.DataFrame({name: _tidy(name, values) for name, values in columns.items()})

    def _settle(self) -> None:
        """Take all steps that were reported as whole, however many ranks there were."""
        self._open = {}
        self._whole = len({int(step) for rows in self._rows.values() for step in rows.said()[:, 0]})

    def _row(self, rank: int, event: Mapping[str, Any]) -> int | None:
        row = event["row"]
        step = int(row[0])
        rows = self._rows.get(rank)
        if rows is None:
            rows = self._rows[rank] = _Rows(step)
        if event.get("instead") and rows.has(step):  # the rank's own word came
            return None
        known = rows.put(step, row)
        for name, value in event.items():
            if name.startswith(_EXTRA) and isinstance(value, int | float):  # words have no column
                self._extra.setdefault(name[len(_EXTRA) :], {})[rank, step] = float(value)
        if known:
            return None
        said = self._open.get(step, 0) + 1
        if said < int(event.get("of", self.ranks)):
            self._open[step] = said
            return step if self.free else None
        self._open.pop(step, None)
        self._whole += 1
        return step

    def _cube(self, first: int, end: int) -> tuple[NDArray[np.float64], int]:
        """Reports of steps, shape (ranks, steps, fields), NaN where there is none."""
        ranks = max([self.ranks, *(rank + 1 for rank in self._rows)])
        cube = np.full((ranks, max(0, end - first), len(FIELDS)), np.nan)
        for rank, rows in self._rows.items():
            rows.copy_into(cube[rank], first)
        return cube, first

    def _score_names(self) -> list[str]:
        return list(dict.fromkeys(name for scores in self._scores.values() for name in scores))

    def _score_column(self, name: str, first: int, steps: int) -> NDArray[np.float64]:
        column = np.full(steps, np.nan)
        for step, scores in self._scores.items():
            if 0 <= step - first < steps and name in scores:
                column[step - first] = scores[name]
        return column

    def _extra_columns(
        self, values: dict[tuple[int, int], float], first: int, shape: tuple[int, ...]
    ) -> NDArray[np.float64]:
        columns = np.full(shape[:2], np.nan)
        for (rank, step), value in values.items():
            if 0 <= step - first < shape[1]:
                columns[rank, step - first] = value
        return columns


_EXTRA = "extra."
"""What stands before the name of a value that only one strategy reports."""


class _Rows:
    """Reports of one rank, by step, in an array that doubles when it is full."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._count = 0
        self._values = np.full((64, len(FIELDS)), np.nan)

    def __len__(self) -> int:
        return self._count

    def has(self, step: int) -> bool:
        """Whether there is a row of this step."""
        place = step - self.first
        return 0 <= place < len(self._values) and bool(self._values[place, 0] == step)

    def put(self, step: int, row: Any) -> bool:
        """Put a row in its place; returns whether there was one."""
        if step < self.first:  # reports of an earlier beginning
            lead = np.full((self.first - step, len(FIELDS)), np.nan)
            self._values = np.concatenate([lead, self._values])
            self._count, self.first = self._count + len(lead), step
        place = step - self.first
        while place >= len(self._values):
            self._values = np.concatenate([self._values, np.full_like(self._values, np.nan)])
        known = bool(self._values[place, 0] == step)
        self._values[place] = row
        self._count = max(self._count, place + 1)
        return known

    def said(self) -> NDArray[np.float64]:
        """A copy of the rows that there are, shape (steps, fields)."""
        rows = self._values[: self._count]
        return rows[~np.isnan(rows[:, 0])]

    def forget(self, step: int) -> None:
        """Forget the row of a step and those behind it."""
        place = max(0, step - self.first)
        self._values[place:] = np.nan
        self._count = min(self._count, place)
        if not self._count:
            self.first = min(self.first, step)

    def copy_into(self, target: NDArray[np.float64], first: int) -> None:
        """Fill an array whose first row is that of step `first`."""
        begin, end = max(first, self.first), min(first + len(target), self.first + self._count)
        if begin < end:
            target[begin - first : end - first] = self._values[
                begin - self.first : end - self.first
            ]


def _columns(cube: NDArray[np.float64], first: int) -> dict[str, NDArray[np.float64]]:
    """Columns of all ranks together."""
    said = {name: cube[:, :, place] for name, place in _AT.items()}
    samples = _sum(said["samples"])
    seconds = said["end"] - said["start"]
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = _sum(said["loss_sum"]) / samples
        throughput = _sum(said["samples"] / seconds)
    return {
        "step": np.arange(first, first + cube.shape[1]),
        "epoch": _largest(said["epoch"]),
        "loss": loss,
        "samples": samples,
        "dropped": _sum(said["planned"]) - samples,
        "seconds": _mean(seconds),
        "throughput": throughput,
        "idle": _mean(said["idle"]),
        "staleness": _largest(said["staleness"]),
        "bytes": _sum(said["bytes"]),
        "lr": _largest(said["lr"]),
    }


def _worker_columns(cube: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    columns = {}
    starts = cube[:, :, _AT["start"]]
    begin = float(np.nanmin(starts)) if np.isfinite(starts).any() else 0.0
    for rank, said in enumerate(cube):
        seconds = said[:, _AT["end"]] - said[:, _AT["start"]]
        with np.errstate(divide="ignore", invalid="ignore"):
            made = {
                "loss": said[:, _AT["loss_sum"]] / said[:, _AT["samples"]],
                "seconds": seconds,
                "end": said[:, _AT["end"]] - begin,
                "throughput": said[:, _AT["samples"]] / seconds,
            }
        for name in WORKER_COLUMNS:
            columns[f"{name}_{rank}"] = made[name] if name in made else said[:, _AT[name]]
    return {f"{n}_{r}": columns[f"{n}_{r}"] for n in WORKER_COLUMNS for r in range(len(cube))}


def _sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.nansum(values, axis=0)
    return total


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: NDArray[np.float64] = np.nansum(values, axis=0) / there.sum(axis=0)
    return mean


def _largest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    largest: NDArray[np.float64] = np.fmax.reduce(values, axis=0)
    return largest


def _tidy(name: str, values: NDArray[np.float64]) -> NDArray[Any]:
    """Integers where they are."""
    stem = name.rpartition("_")[0] if name.rpartition("_")[2].isdigit() else name
    if stem in _WHOLE and not np.isnan(values).any():
        return values.astype(np.int64)
    return values
