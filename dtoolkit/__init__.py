"""Distributed sparse learning on Dask workers, explored from Jupyter."""

__version__ = "0.1.0"

from dtoolkit import comm, data, errors
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
    "plan",
    "read_matrix",
]
