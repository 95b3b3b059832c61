"""What is laid out: layouts, dense and sparse arrays over the ranks."""

from dtoolkit.arrays import partitioners
from dtoolkit.arrays.array import RedistributionWarning
from dtoolkit.arrays.creation import arange, empty, full, ones, random, standard_normal, zeros
from dtoolkit.arrays.dense import DistDense
from dtoolkit.arrays.joining import concatenate
from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.arrays.quality import PartitionQuality, partition_quality
from dtoolkit.arrays.redistribution import moved_bytes
from dtoolkit.arrays.reordering import contiguous, inverse_permutation, reorder
from dtoolkit.arrays.sparse import DistSparse
from dtoolkit.arrays.stream import StreamResult, stream

__all__ = [
    "DistDense",
    "DistSparse",
    "Layout",
    "PartitionQuality",
    "RedistributionWarning",
    "StreamResult",
    "arange",
    "as_layout",
    "concatenate",
    "contiguous",
    "empty",
    "full",
    "inverse_permutation",
    "moved_bytes",
    "ones",
    "partition_quality",
    "partitioners",
    "random",
    "reorder",
    "standard_normal",
    "stream",
    "zeros",
]
