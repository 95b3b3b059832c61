"""Sparse training over workers: what ``sparsity=`` of ``dt.train`` asks for, on every rank."""

from dtoolkit.training.sparse.cuts import apply_saved, shapes_after
from dtoolkit.training.sparse.mask_names import with_masks, without_masks
from dtoolkit.training.sparse.recipe import Recipe, recipe_of
from dtoolkit.training.sparse.sparse import Sparse

__all__ = [
    "Recipe",
    "Sparse",
    "apply_saved",
    "recipe_of",
    "shapes_after",
    "with_masks",
    "without_masks",
]
