"""Sparsity that runs: pruning by tiles over all layers, compacted products, compiled models."""

from dtoolkit.sparsity.tiles.compiling import compile_sparse, uncompile
from dtoolkit.sparsity.tiles.layout import TileLayout, tile_layout
from dtoolkit.sparsity.tiles.product import tile_linear
from dtoolkit.sparsity.tiles.pruning import STAGES, masks_together, prune, taylor_scores
from dtoolkit.sparsity.tiles.report import SparseReport, sparse_report

__all__ = [
    "STAGES",
    "SparseReport",
    "TileLayout",
    "compile_sparse",
    "masks_together",
    "prune",
    "sparse_report",
    "taylor_scores",
    "tile_layout",
    "tile_linear",
    "uncompile",
]
