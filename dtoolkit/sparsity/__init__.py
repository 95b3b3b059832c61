"""What is zero: sparse training of any PyTorch model, with exact counts and clean optimizers."""

from dtoolkit.sparsity.batch_growth import BatchGrowth, MemoryUse, grown_batch, memory_use
from dtoolkit.sparsity.channels import (
    CutPlan,
    Reconfiguration,
    apply_cuts,
    plan_cuts,
    reconfigure,
    zero_cuts,
)
from dtoolkit.sparsity.distributions import (
    ERK,
    Distribution,
    ErdosRenyi,
    ERKPlus,
    Explicit,
    Uniform,
    UniformPlus,
)
from dtoolkit.sparsity.group_lasso import GroupLasso
from dtoolkit.sparsity.heads import dominating_heads, head_similarity
from dtoolkit.sparsity.heads_folding import FoldedHeads, fold_heads
from dtoolkit.sparsity.heads_parts import HeadParts
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
from dtoolkit.sparsity.neuroprune import NeuroPrune, attention_penalty, degree_penalty
from dtoolkit.sparsity.prunetrain import PruneTrain
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
from dtoolkit.sparsity.tiles import (
    SparseReport,
    compile_sparse,
    prune,
    sparse_report,
    taylor_scores,
    uncompile,
)

__all__ = [
    "ERK",
    "SET",
    "SNIP",
    "TEW",
    "TW1",
    "TW2",
    "VW",
    "BatchGrowth",
    "Block",
    "Channel",
    "Constant",
    "Cosine",
    "Cubic",
    "CutPlan",
    "Distribution",
    "ERKPlus",
    "ErdosRenyi",
    "Explicit",
    "FoldedHeads",
    "GroupLasso",
    "HeadParts",
    "Layer",
    "Magnitude",
    "MemoryUse",
    "Method",
    "NeuroPrune",
    "NofM",
    "PruneTrain",
    "RandomGrowth",
    "Reconfiguration",
    "RigL",
    "Schedule",
    "SparseReport",
    "Sparsifier",
    "Static",
    "Structure",
    "TileWise",
    "Uniform",
    "UniformPlus",
    "Unstructured",
    "apply_cuts",
    "attention_penalty",
    "compile_sparse",
    "degree_penalty",
    "dominating_heads",
    "fold_heads",
    "grown_batch",
    "head_similarity",
    "masks_of",
    "memory_use",
    "plan_cuts",
    "prune",
    "reconfigure",
    "remove_masks",
    "sparse_report",
    "taylor_scores",
    "uncompile",
    "zero_cuts",
]
