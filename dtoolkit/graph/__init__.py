"""Graph learning over ranks: layers, models, and training on the whole graph."""

from dtoolkit.graph.full_batch import train_full_batch
from dtoolkit.graph.layers import GCNLayer, SAGELayer
from dtoolkit.graph.models import GCN, GraphNetwork, GraphSAGE
from dtoolkit.graph.normalise import mean, row_normalised, symmetric, with_self_loops
from dtoolkit.graph.result import FullBatchResult
from dtoolkit.graph.seeded import NodeDropout, at_step, initialise, place
from dtoolkit.graph.sparse_rows import SparseRows

__all__ = [
    "GCN",
    "FullBatchResult",
    "GCNLayer",
    "GraphNetwork",
    "GraphSAGE",
    "NodeDropout",
    "SAGELayer",
    "SparseRows",
    "at_step",
    "initialise",
    "mean",
    "place",
    "row_normalised",
    "symmetric",
    "train_full_batch",
    "with_self_loops",
]
