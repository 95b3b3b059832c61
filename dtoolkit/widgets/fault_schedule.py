"""Faults that a person writes down: ``kill 2 at 10; nan 1 at 20``, parsed, drawn and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dtoolkit.faults import (
    Corrupt,
    CutLink,
    Fault,
    Hang,
    Kill,
    OutOfMemory,
    Raise,
    Slow,
    random_plan,
)

__all__ = ["KINDS", "Line", "drawn", "faults_of", "parse_schedule", "written"]

KINDS = {
    "kill": "kill the worker",
    "hang": "freeze the worker",
    "slow": "slow the worker (30 ms a step)",
    "cut": "cut a link to the next worker",
    "nan": "NaN in its gradients",
    "bitflip": "flip a bit of its parameters",
    "gradient-bit": "flip a bit of its gradients",
    "raise": "raise an exception",
    "memory": "refuse it memory",
}
"""Kinds of faults: value to words."""

SLOW = 0.03  # seconds of a micro-batch

_LINE = re.compile(r"\s*([a-z-]+)\s+(?:rank\s+)?(\d+)\s+(?:at|@)\s*(?:step\s+)?(\d+)\s*")
_FORM = "kind rank at step, as in: kill 2 at 10; nan 1 at 20"


@dataclass(frozen=True)
class Line:
    """One fault of a schedule: its kind (a key of ``KINDS``), rank and step."""

    kind: str
    rank: int
    step: int

    def __str__(self) -> str:
        return f"{self.kind} {self.rank} at {self.step}"

    def fault(self, workers: int) -> Fault | Slow:
        """What is injected.

        Raises
        ------
        ValueError
            There is no such rank, or no other one to cut a link to.
        """
        rank, at = self.rank, self.step
        if rank >= workers:
            raise ValueError(f"Schedule: {self}: there are ranks 0 to {workers - 1}")
        if self.kind == "cut" and workers < 2:
            raise ValueError(f"Schedule: {self}: one worker has no link to cut")
        if self.kind == "slow":
            return Slow(rank, seconds=SLOW, from_step=at)
        if self.kind == "cut":
            return CutLink(rank, (rank + 1) % workers, at_step=at)
        if self.kind == "nan":
            return Corrupt(rank, at_step=at, what="gradients", kind="nan")
        if self.kind in ("bitflip", "gradient-bit"):
            what = "parameters" if self.kind == "bitflip" else "gradients"
            return Corrupt(rank, at_step=at, what=what, kind="bitflip", bit=20)
        plain: dict[str, Callable[..., Fault]] = {
            "kill": Kill, "hang": Hang, "raise": Raise, "memory": OutOfMemory,
        }  # fmt: skip
        return plain[self.kind](rank, at_step=at)


def parse_schedule(text: str, label: str = "Schedule") -> list[Line]:
    """Read a schedule; ``;`` or a new line stands between two faults, and none is none.

    Raises
    ------
    ValueError
        In words, with the piece that does not parse.
    """
    found = []
    for piece in re.split(r"[;\n]", text):
        if not piece.strip():
            continue
        match = _LINE.fullmatch(piece)
        if match is None:
            raise ValueError(f"{label}: {piece.strip()!r} is no fault; want {_FORM}")
        kind, rank, step = match[1], int(match[2]), int(match[3])
        if kind not in KINDS:
            raise ValueError(
                f"{label}: there is no fault {kind!r}; choose one of {', '.join(KINDS)}"
            )
        found.append(Line(kind, rank, step))
    return found


def faults_of(lines: Sequence[Line], workers: int) -> list[Fault | Slow]:
    """Faults of a schedule on so many workers."""
    return [line.fault(workers) for line in lines]


def written(lines: Sequence[Line]) -> str:
    """Write a schedule as :func:`parse_schedule` reads it."""
    return "; ".join(map(str, lines))


def drawn(seed: int, workers: int, steps: int) -> list[Line]:
    """Draw a schedule: about four faults in a run, kills mostly (:func:`random_plan`)."""
    plan = random_plan(
        seed=seed,
        ranks=workers,
        steps=steps,
        mtbf=max(1.0, steps / 4),
        kinds={"kill": 4.0, "raise": 1.0, "nan": 1.0, "bitflip": 1.0, "memory": 1.0},
    )
    kinds = {Kill: "kill", Raise: "raise", OutOfMemory: "memory"}
    lines = []
    for fault in plan:
        kind = kinds.get(type(fault)) or ("nan" if fault.kind == "nan" else "bitflip")  # type: ignore[attr-defined]
        assert fault.at_step is not None
        lines.append(Line(kind, int(fault.rank), int(fault.at_step)))
    return lines
