"""What the toolkit runs on: readers, generators and built-in sets."""

from dtoolkit.data.canonical import working_dtype
from dtoolkit.data.convert import as_csr
from dtoolkit.data.generators import banded, hubs, power_law, rmat, uniform
from dtoolkit.data.read import read_matrix

__all__ = [
    "as_csr",
    "banded",
    "hubs",
    "power_law",
    "read_matrix",
    "rmat",
    "uniform",
    "working_dtype",
]
