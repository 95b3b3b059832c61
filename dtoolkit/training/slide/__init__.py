"""SLIDE: layers of very many outputs, of which each sample computes few."""

from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.adam import RowSparseAdam
from dtoolkit.training.slide.bag import BagLinear
from dtoolkit.training.slide.baselines import FullLinear, RandomLinear, SampledLinear
from dtoolkit.training.slide.gradient import RowGradient
from dtoolkit.training.slide.hashed_bag import HashedBag
from dtoolkit.training.slide.labels import Labels, as_labels
from dtoolkit.training.slide.layer import SlideLinear
from dtoolkit.training.slide.model import SlideModel
from dtoolkit.training.slide.output import OutputLinear, Predicted, precision
from dtoolkit.training.slide.sharing import traffic
from dtoolkit.training.slide.softmax import Alone, Peers
from dtoolkit.training.slide.statistics import Retrieval

__all__ = [
    "ActiveSets",
    "Alone",
    "BagLinear",
    "FullLinear",
    "HashedBag",
    "Labels",
    "OutputLinear",
    "Peers",
    "Predicted",
    "RandomLinear",
    "Retrieval",
    "RowGradient",
    "RowSparseAdam",
    "SampledLinear",
    "SlideLinear",
    "SlideModel",
    "as_labels",
    "precision",
    "traffic",
]
