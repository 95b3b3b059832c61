"""Distributed sparse learning on Dask workers, explored from Jupyter."""

__version__ = "0.1.0"

from dtoolkit import comm, errors
from dtoolkit.cluster import Cluster

__all__ = ["Cluster", "__version__", "comm", "errors"]
