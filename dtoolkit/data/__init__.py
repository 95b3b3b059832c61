"""What the toolkit runs on: readers, generators and built-in sets."""

from dtoolkit.data.convert import as_csr
from dtoolkit.data.read import read_matrix

__all__ = ["as_csr", "read_matrix"]
