"""Channels cut out of a model in the middle of its training, and the optimizer's history kept."""

from __future__ import annotations

from dtoolkit.sparsity.channels.applying import apply_cuts, zero_cuts
from dtoolkit.sparsity.channels.plan import ChannelGroup, CutPlan, WholeWidth
from dtoolkit.sparsity.channels.planning import plan_cuts
from dtoolkit.sparsity.channels.reconfigure import reconfigure
from dtoolkit.sparsity.channels.report import LayerSize, Reconfiguration

__all__ = [
    "ChannelGroup",
    "CutPlan",
    "LayerSize",
    "Reconfiguration",
    "WholeWidth",
    "apply_cuts",
    "plan_cuts",
    "reconfigure",
    "zero_cuts",
]
