"""Tile-wise sparsity that runs: pruning over all layers, compacted products, compiled models."""
