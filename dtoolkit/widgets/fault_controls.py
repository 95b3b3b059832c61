"""What a person chooses in FaultPanel: its controls and presets."""

from __future__ import annotations

from typing import Any

from dtoolkit.widgets.controls import Choice, Number, Text
from dtoolkit.widgets.fault_schedule import KINDS, parse_schedule
from dtoolkit.widgets.training_request import GIVEN, policies

__all__ = ["ABSENT", "POLICY_WORDS", "PRESETS", "groups", "presets"]

PRESETS: dict[str, dict[str, Any]] = {
    "A worker is killed, others go on": {},
    "A worker freezes": {"schedule": "hang 1 at 100"},
    "Three kinds at once": {"schedule": "kill 3 at 60; nan 1 at 120; bitflip 2 at 180"},
    "Stacks of shards (SPARe)": {"recovery": "stacked", "schedule": "kill 0 at 80; kill 3 at 160"},
    "Back to the checkpoint": {"recovery": "restart", "schedule": "kill 1 at 150"},
    "No recovery: the clear error": {"recovery": "abort", "schedule": "kill 2 at 100"},
    "A flipped bit that nobody notices": {"schedule": "gradient-bit 1 at 100"},
    "Nothing scheduled: strike by hand": {"schedule": "", "steps": 600},
}
"""Name to settings that differ from the defaults; the first is the start."""

ABSENT = {GIVEN: "the settings want the task that their panel was made with: make this one with it"}

POLICY_WORDS = {
    "abort": "ends the run with an error that names the rank",
    "restart": "starts again from the last checkpoint, and promises the same bits",
    "shrink": "goes on with fewer workers, and promises the same bits",
    "replica": "goes on until others join, and promises the same bits",
    "stacked": "has each shard on several workers, and promises the same bits",
}
"""What each policy does and promises."""


def groups(task: Any, striking: list[Any], listing: list[Any]) -> list[tuple[str, list[Any]]]:
    """Return the controls, under their headings.

    Parameters
    ----------
    task : Task or None
        What the panel was made with.
    striking, listing : list of Widget
        Buttons to strike now, and those of the schedule.
    """
    offered = {GIVEN: "the one given"} if task is not None else {}
    offered["digits"] = "Handwritten digits, a perceptron"
    run = [
        Choice("task", "Task", offered, absent=ABSENT),
        Number("workers", "Workers", 4, 1, 16),
        Number("steps", "Steps", 300, 1, 100_000),
        Number("pace", "Pace (ms)", 20, 0, 1000, tip="Least time of a step, so that one can look"),
        Choice("recovery", "Recovery", policies(), "replica"),
        Number("seed", "Seed", 0, 0, 2**31 - 1, tip="Of the training, and of a random schedule"),
    ]
    plan = [
        Choice("kind", "Fault", KINDS),
        Number("step", "At step", 100, 0, 100_000),
        Text("schedule", "Schedule", "kill 2 at 100", parse_schedule,
             tip="kind rank at step; the next one"),
        *listing,
    ]  # fmt: skip
    now = [Number("rank", "Rank", 2, 0, 15, tip="Who is struck, now or at the step"), *striking]
    return [("Training", run), ("Strike now", now), ("Schedule", plan)]


def presets(task: Any, ranks: int | None) -> dict[str, dict[str, Any]]:
    """Return presets, the first of them for what the panel was given."""
    own: dict[str, Any] = {"task": GIVEN} if task is not None else {}
    if ranks is not None:
        own |= {"workers": ranks, "rank": ranks - 1, "schedule": f"kill {ranks - 1} at 100"}
    return {"What the panel was given": own, **PRESETS} if own else PRESETS
