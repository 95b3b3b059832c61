"""What a person chooses in TrainingPanel: its controls and presets."""

from __future__ import annotations

from typing import Any

from dtoolkit.comm.units import bandwidth, seconds
from dtoolkit.widgets.controls import Choice, Number, Text
from dtoolkit.widgets.training_request import (
    FAULTS,
    GIVEN,
    NETWORKS,
    SPARSITY,
    TASKS,
    policies,
    strategies,
)

__all__ = ["ABSENT", "PRESETS", "groups", "presets"]

PRESETS: dict[str, dict[str, Any]] = {
    "Digits on two workers": {},
    "A tenth of the weights (RigL)": {"sparsity": "rigl", "density": 10, "steps": 200},
    "A slow network, lock step": {"network": "slow", "steps": 60},
    "A slow network, rounds of local steps": {
        "network": "slow", "strategy": "local-sgd", "steps": 60,
    },
    "One slow worker, nobody waits": {
        "faults": "slow", "strategy": "parameter-server-async", "workers": 3,
    },
    "A worker is killed, and comes back": {
        "faults": "kill", "recovery": "replica", "workers": 3, "steps": 200,
    },
    "A small transformer on source text": {"task": "text", "steps": 60, "evaluate_every": 20},
}  # fmt: skip
"""Name to settings that differ from the defaults; the first is the start."""

ABSENT = {GIVEN: "the settings want the task that their panel was made with: make this one with it"}


def groups(task: Any, more: list[Any]) -> list[tuple[str, list[Any]]]:
    """Return the controls, under their headings.

    Parameters
    ----------
    task : Task or None
        What the panel was made with.
    more : list of Widget
        Buttons for the runs that are kept.
    """
    offered = ({GIVEN: "the one given"} if task is not None else {}) | TASKS
    compressions = {"none": "none", "top-k": "top-k", "random-k": "random-k", "sign": "sign"}
    what = [
        Choice("task", "Task", offered, absent=ABSENT),
        Choice("strategy", "Strategy", strategies()),
        Number("workers", "Workers", 2, 1, 16),
        Number("steps", "Steps", 150, 1, 100_000),
        Number("batch", "Batch", 0, 0, 65_536, tip="Samples a step; 0: the task's own"),
        Number("evaluate_every", "Test every", 25, 0, 10_000, tip="Steps; 0: at the end alone"),
        Number("seed", "Seed", 0, 0, 2**31 - 1),
    ]
    less = [
        Choice("sparsity", "Sparsity", SPARSITY, tip="Masks of the weights"),
        Number("density", "Density (%)", 10, 1, 100, tip="Weights that stay"),
        Choice("compression", "Compression", compressions, tip="Of what is exchanged"),
    ]
    wires = [
        Choice("network", "Network", NETWORKS),
        Text("bandwidth", "Bandwidth", "1Gbit/s", bandwidth),
        Text("latency", "Latency", "1ms", seconds),
    ]
    wrong = [Choice("faults", "Fault", FAULTS), Choice("recovery", "Recovery", policies())]
    return [
        ("Training", what), ("Fewer weights, fewer bytes", less), ("Network", wires),
        ("What goes wrong", wrong), ("Runs", more),
    ]  # fmt: skip


def presets(task: Any, ranks: int | None) -> dict[str, dict[str, Any]]:
    """Return presets, the first of them for what the panel was given."""
    own: dict[str, Any] = {"task": GIVEN} if task is not None else {}
    if ranks is not None:
        own["workers"] = ranks
    return {"What the panel was given": own, **PRESETS} if own else PRESETS
