"""What is laid out: layouts, dense and sparse arrays over the ranks."""

from dtoolkit.arrays.dense import DistDense
from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.arrays.sparse import DistSparse

__all__ = ["DistDense", "DistSparse", "Layout", "as_layout"]
