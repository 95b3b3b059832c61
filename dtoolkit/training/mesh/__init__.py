"""Stages of a model over workers, replicas of each stage, and what comes late between them.

Pure rules: which elements are averaged when (:mod:`~dtoolkit.training.mesh.partitions`), what is
made of a mean that comes late (:mod:`~dtoolkit.training.mesh.merging`), what a stage does when and
with which weights (:mod:`~dtoolkit.training.mesh.order`), where a model is cut
(:mod:`~dtoolkit.training.mesh.cutting`). What delays do, in one process: under a constant drift and
on a noisy quadratic (:mod:`~dtoolkit.training.mesh.drift`), and to any task
(:mod:`~dtoolkit.training.mesh.simulation`). The strategy
:class:`~dtoolkit.training.strategies.AsyncMesh` puts the same rules over real workers.
"""

from dtoolkit.training.mesh.cutting import balanced, cut, sequence_of
from dtoolkit.training.mesh.drift import drift_speed, noisy_quadratic
from dtoolkit.training.mesh.merging import Rule, decay_at, merged, moved
from dtoolkit.training.mesh.order import (
    delay_of,
    one_forward_one_backward,
    version_of,
    versions_kept,
)
from dtoolkit.training.mesh.partitions import part, parts_of
from dtoolkit.training.mesh.simulation import Simulated, simulate

__all__ = [
    "Rule",
    "Simulated",
    "balanced",
    "cut",
    "decay_at",
    "delay_of",
    "drift_speed",
    "merged",
    "moved",
    "noisy_quadratic",
    "one_forward_one_backward",
    "part",
    "parts_of",
    "sequence_of",
    "simulate",
    "version_of",
    "versions_kept",
]
