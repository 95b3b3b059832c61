"""Distributed sparse learning on Dask workers, explored from Jupyter."""

__version__ = "0.1.0"

import importlib
from typing import TYPE_CHECKING, Any

from dtoolkit import comm, data, errors, graph
from dtoolkit.arrays import DistDense, DistSparse, Layout
from dtoolkit.cluster import Cluster
from dtoolkit.data import read_matrix
from dtoolkit.spmm import distribute, plan

if TYPE_CHECKING:
    from dtoolkit import about, faults, figures, sparsity, training
    from dtoolkit.about import environment
    from dtoolkit.training.study import study, submit_study
    from dtoolkit.training.train import submit_training, train

__all__ = [
    "Cluster",
    "DistDense",
    "DistSparse",
    "Layout",
    "__version__",
    "about",
    "comm",
    "data",
    "distribute",
    "environment",
    "errors",
    "faults",
    "figures",
    "graph",
    "plan",
    "read_matrix",
    "sparsity",
    "study",
    "submit_study",
    "submit_training",
    "train",
    "training",
]


_MODULES = ("about", "faults", "figures", "sparsity", "training", "widgets")
_FUNCTIONS = {
    "environment": "about",
    "study": "training.study",
    "submit_study": "training.study",
    "submit_training": "training",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    """Import what not everybody needs when it is first asked for: training, figures, panels."""
    if name in _MODULES:
        return importlib.import_module(f"dtoolkit.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f"dtoolkit.{_FUNCTIONS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name that too which is not there before it is asked for."""
    return sorted({*globals(), *_MODULES, *_FUNCTIONS})
