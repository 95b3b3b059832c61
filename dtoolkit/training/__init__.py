"""Training over workers: one trainer, many strategies, samples weighted as they were used."""

from dtoolkit.training.replica import Replica
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.settings import Settings
from dtoolkit.training.strategy import Promise, StepReport, Strategy
from dtoolkit.training.task import Examples, Task

__all__ = [
    "Examples",
    "Promise",
    "Replica",
    "Sampler",
    "Settings",
    "StepReport",
    "Strategy",
    "Task",
]
