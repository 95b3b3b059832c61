"""What people see: Plotly figures and HTML cards of plans, traces, clusters, arrays, runs.

Figures are pure functions: what is shown is in the arguments, and nothing is kept. Figures and
cards say what is planned and what is measured, work without a network, and read in light and dark.
"""

from dtoolkit.figures.cards import array_card, cluster_card, layout_card, plan_card, trace_card
from dtoolkit.figures.environment import environment_card, memory_bars
from dtoolkit.figures.fault_overview import fault_overview
from dtoolkit.figures.gantt import schedule
from dtoolkit.figures.learning import full_batch_card, losses
from dtoolkit.figures.mesh import loss_costs, time_to_loss
from dtoolkit.figures.network import network
from dtoolkit.figures.network_cards import network_card, prediction_card, traffic_card
from dtoolkit.figures.overview import overview
from dtoolkit.figures.partition_card import quality_card
from dtoolkit.figures.pattern import pattern
from dtoolkit.figures.prediction import prediction
from dtoolkit.figures.recovery import recovery_policies, recovery_timeline, redundancy
from dtoolkit.figures.recovery_cards import (
    assignment_card,
    recovery_card,
    recovery_plan_card,
    simulation_card,
)
from dtoolkit.figures.scaling import scaling
from dtoolkit.figures.schedules import schedules
from dtoolkit.figures.sparsity import layer_channels, layer_densities, mask_patterns, mean_curves
from dtoolkit.figures.speed import drop_speed
from dtoolkit.figures.strategy_table import Contender, contenders_frame, strategy_table
from dtoolkit.figures.study import strong_scaling, weak_scaling
from dtoolkit.figures.study_cards import study_card, study_plan_card
from dtoolkit.figures.timeline import timeline
from dtoolkit.figures.traffic import compare, traffic
from dtoolkit.figures.traffic_views import traffic_views
from dtoolkit.figures.training import by_worker, bytes_per_step, learning, run_table, training_card
from dtoolkit.figures.training_overview import training_overview

__all__ = [
    "Contender",
    "array_card",
    "assignment_card",
    "by_worker",
    "bytes_per_step",
    "cluster_card",
    "compare",
    "contenders_frame",
    "drop_speed",
    "environment_card",
    "fault_overview",
    "full_batch_card",
    "layer_channels",
    "layer_densities",
    "layout_card",
    "learning",
    "loss_costs",
    "losses",
    "mask_patterns",
    "mean_curves",
    "memory_bars",
    "network",
    "network_card",
    "overview",
    "pattern",
    "plan_card",
    "prediction",
    "prediction_card",
    "quality_card",
    "recovery_card",
    "recovery_plan_card",
    "recovery_policies",
    "recovery_timeline",
    "redundancy",
    "run_table",
    "scaling",
    "schedule",
    "schedules",
    "simulation_card",
    "strategy_table",
    "strong_scaling",
    "study_card",
    "study_plan_card",
    "time_to_loss",
    "timeline",
    "trace_card",
    "traffic",
    "traffic_card",
    "traffic_views",
    "training_card",
    "training_overview",
    "weak_scaling",
]
