"""Stacked parallelism: redundant shards on every group, so that losses are masked (SPARe).

N groups train on N types of shards. Each group holds a stack of r of them and computes the first S
in every step, S = 1 to begin with; each type is counted once. When groups are lost, survivors
reorder their stacks so that all types are still computed, and go on; only when all holders of a
type are gone must the run start again from its checkpoint.

All of this package is pure: where shards lie (:func:`placement`), who computes what after a loss
(:func:`assign`), how many losses that endures (:func:`endurable`), how much redundancy is best
(:func:`best_redundancy`), and what policies make of a long run under failures (:func:`simulate`).

Source: SPARe, "stacked parallelism with adaptive reordering" (arXiv 2603.00357, ICML 2026), of
which notes were at hand and not the text: what is reconstructed says so.
"""

from dtoolkit.training.stacked.controller import Assignment, WipeOut, assign
from dtoolkit.training.stacked.endurance import (
    availability,
    best_period,
    best_redundancy,
    cost,
    endurable,
    fewest_computed,
    mean_computed,
)
from dtoolkit.training.stacked.placement import Stacks, placement
from dtoolkit.training.stacked.rulers import greedy_ruler, is_ruler, largest_redundancy, ruler
from dtoolkit.training.stacked.simulation import Outcome, Simulation, simulate

__all__ = [
    "Assignment",
    "Outcome",
    "Simulation",
    "Stacks",
    "WipeOut",
    "assign",
    "availability",
    "best_period",
    "best_redundancy",
    "cost",
    "endurable",
    "fewest_computed",
    "greedy_ruler",
    "is_ruler",
    "largest_redundancy",
    "mean_computed",
    "placement",
    "ruler",
    "simulate",
]
