"""Distributed sparse learning on Dask workers, explored from Jupyter."""

__version__ = "0.1.0"

import importlib
from typing import Any

from dtoolkit import comm, data, errors, graph
from dtoolkit.arrays import DistDense, DistSparse, Layout
from dtoolkit.cluster import Cluster
from dtoolkit.data import read_matrix
from dtoolkit.spmm import distribute, plan

__all__ = [
    "Cluster",
    "DistDense",
    "DistSparse",
    "Layout",
    "__version__",
    "comm",
    "data",
    "distribute",
    "errors",
    "graph",
    "plan",
    "read_matrix",
]


def __getattr__(name: str) -> Any:
    """Import the panels when they are first asked for: they need a notebook's packages."""
    if name == "widgets":
        return importlib.import_module("dtoolkit.widgets")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name the panels too, which are not there before they are asked for."""
    return sorted({*globals(), "widgets"})
