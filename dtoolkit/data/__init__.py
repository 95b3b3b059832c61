"""What the toolkit runs on: readers, generators and built-in sets."""

from dtoolkit.data.block_model import block_model
from dtoolkit.data.builtin import datasets, digits_graph, stdlib_calls
from dtoolkit.data.called_names import called_names
from dtoolkit.data.canonical import working_dtype
from dtoolkit.data.convert import as_csr
from dtoolkit.data.dataset import Dataset
from dtoolkit.data.extreme import extreme
from dtoolkit.data.generators import banded, hubs, power_law, rmat, uniform
from dtoolkit.data.labelled_graph import LabelledGraph
from dtoolkit.data.labelled_samples import LabelledSamples
from dtoolkit.data.planetoid import planetoid
from dtoolkit.data.radix_net import radix_net
from dtoolkit.data.read import read_matrix
from dtoolkit.data.xmc import read_xmc

__all__ = [
    "Dataset",
    "LabelledGraph",
    "LabelledSamples",
    "as_csr",
    "banded",
    "block_model",
    "called_names",
    "datasets",
    "digits_graph",
    "extreme",
    "hubs",
    "planetoid",
    "power_law",
    "radix_net",
    "read_matrix",
    "read_xmc",
    "rmat",
    "stdlib_calls",
    "uniform",
    "working_dtype",
]
