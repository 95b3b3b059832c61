"""Training over workers: one trainer, many strategies, samples weighted as they were used."""

from dtoolkit.training import (
    compression,
    dropcompute,
    recovery,
    slide,
    stacked,
    strategies,
    study,
    tasks,
)
from dtoolkit.training.checkpoint import Checkpoint
from dtoolkit.training.planned_recovery import RecoveryPlan, plan_recovery
from dtoolkit.training.replica import Replica
from dtoolkit.training.run import Run
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.settings import Settings
from dtoolkit.training.slide import SlideLinear
from dtoolkit.training.sparse_examples import Bags, SparseExamples
from dtoolkit.training.state import RunState
from dtoolkit.training.strategy import Promise, StepReport, Strategy
from dtoolkit.training.task import Examples, Task
from dtoolkit.training.train import submit_training, train
from dtoolkit.training.training import Training

__all__ = [
    "Bags",
    "Checkpoint",
    "Examples",
    "Promise",
    "RecoveryPlan",
    "Replica",
    "Run",
    "RunState",
    "Sampler",
    "Settings",
    "SlideLinear",
    "SparseExamples",
    "StepReport",
    "Strategy",
    "Task",
    "Training",
    "compression",
    "dropcompute",
    "plan_recovery",
    "recovery",
    "slide",
    "stacked",
    "strategies",
    "study",
    "submit_training",
    "tasks",
    "train",
]
