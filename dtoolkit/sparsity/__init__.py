"""What is zero: sparse training of any PyTorch model, with exact counts and clean optimizers."""

from dtoolkit.sparsity.distributions import (
    ERK,
    Distribution,
    ErdosRenyi,
    ERKPlus,
    Explicit,
    Uniform,
    UniformPlus,
)
from dtoolkit.sparsity.masks import masks_of, remove_masks
from dtoolkit.sparsity.methods import (
    SET,
    SNIP,
    Layer,
    Magnitude,
    Method,
    RandomGrowth,
    RigL,
    Static,
)
from dtoolkit.sparsity.schedules import Constant, Cosine, Cubic, Schedule
from dtoolkit.sparsity.sparsifier import Sparsifier
from dtoolkit.sparsity.structures import (
    TEW,
    TW1,
    TW2,
    VW,
    Block,
    Channel,
    NofM,
    Structure,
    TileWise,
    Unstructured,
)

__all__ = [
    "ERK",
    "SET",
    "SNIP",
    "TEW",
    "TW1",
    "TW2",
    "VW",
    "Block",
    "Channel",
    "Constant",
    "Cosine",
    "Cubic",
    "Distribution",
    "ERKPlus",
    "ErdosRenyi",
    "Explicit",
    "Layer",
    "Magnitude",
    "Method",
    "NofM",
    "RandomGrowth",
    "RigL",
    "Schedule",
    "Sparsifier",
    "Static",
    "Structure",
    "TileWise",
    "Uniform",
    "UniformPlus",
    "Unstructured",
    "masks_of",
    "remove_masks",
]
