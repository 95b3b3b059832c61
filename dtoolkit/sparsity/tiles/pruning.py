"""Pruning with one threshold over all layers, as tile-wise pruning is published."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.nn import functional

from dtoolkit.sparsity.masks import erase
from dtoolkit.sparsity.selection import largest_of_all
from dtoolkit.sparsity.sites import find_sites
from dtoolkit.sparsity.structures import NofM, Structure, TileWise, as_structure
from dtoolkit.sparsity.structures.segments import fill, norms, segments, spread_segments

__all__ = ["STAGES", "masks_together", "prune", "taylor_scores"]

STAGES = (0.25, 0.35, *(round(0.05 * step, 2) for step in range(10, 20)))
"""Sparsities of gradual tile-wise pruning, with fine-tuning after each (Guo et al., SC 2020)."""


@torch.no_grad()
def prune(
    model: nn.Module,
    *,
    density: float,
    structure: str | Structure = "tile-wise",
    scores: Mapping[str, torch.Tensor] | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
) -> dict[str, float]:
    """Prune a model once, its layers together: the least important weights go, wherever they are.

    Masks become buffers of the model and masked weights 0. To train on under a
    :class:`~dtoolkit.sparsity.Sparsifier`, hand it what is returned as ``distribution=``: it takes
    the masks over.

    Parameters
    ----------
    model : torch.nn.Module
    density : float
        Share of all their weights that is kept, in (0, 1].
    structure : str or Structure
    scores : mapping of str to tensor, optional
        Importance of each weight by name, 0 or more (:func:`taylor_scores`); default: magnitudes.
    include, exclude : str or iterable of str, optional
        As in the Sparsifier.

    Returns
    -------
    dict of str to float
        Density of each layer.

    Raises
    ------
    ValueError
        The density is no share, scores are missing, of another shape or NaN.
    """
    sites = find_sites(model, include=include, exclude=exclude)
    values = {site.name: site.weight.detach() for site in sites}
    if scores is not None:
        if missing := [name for name in values if name not in scores]:
            raise ValueError(f"scores: none for {', '.join(missing)}")
        values = {name: scores[name] for name in values}
    for site in sites:
        if values[site.name].shape != site.weight.shape:
            raise ValueError(
                f"scores of {site.name!r} have the shape {tuple(values[site.name].shape)}, and its "
                f"weight {tuple(site.weight.shape)}"
            )
    masks = masks_together(values, structure, density)
    for site in sites:
        site.store(masks[site.name])
        erase(site.mask, [site.weight.data])
    return {name: int(mask.sum()) / mask.numel() for name, mask in masks.items()}


def taylor_scores(model: nn.Module) -> dict[str, torch.Tensor]:
    """First-order Taylor importance (dL/dw w)^2 of all weights that have a gradient, by name.

    Returns
    -------
    dict of str to float64 tensor
    """
    return {
        name: (weight.detach().double() * weight.grad.double()).square()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def masks_together(
    scores: Mapping[str, torch.Tensor], structure: str | Structure, density: float
) -> dict[str, torch.Tensor]:
    """Choose masks of several weights as if they were one: one threshold a step, for all of them.

    Parameters
    ----------
    scores : mapping of str to tensor
        Shape of the weights; signs make no difference.
    structure : str or Structure
        N:M and vector-wise choose within their groups, where a threshold has no say.
    density : float
        Share of all weights that is kept, in (0, 1].

    Returns
    -------
    dict of str to bool tensor
        Together round(density x size) weights are live, or as near as segments and blocks allow;
        each layer keeps something.

    Raises
    ------
    ValueError
        The density is no share, or a score NaN.
    """
    structure = as_structure(structure)
    if not 0 < density <= 1:
        raise ValueError(f"density={density}: wanted more than 0, and at most 1")
    for name, score in scores.items():
        if bool(score.isnan().any()):
            raise ValueError(f"scores of {name!r} hold NaN, masks cannot be chosen by that")
    shapes = {name: tuple(score.shape) for name, score in scores.items()}
    if isinstance(structure, TileWise):
        matrices = [score.abs().reshape(score.shape[0], -1) for score in scores.values()]
        chosen = _tiles_together(matrices, structure, density)
        masks = zip(shapes.items(), chosen, strict=True)
        return {name: mask.view(shape) for (name, shape), mask in masks}
    pooled = {name: structure.pool(score) for name, score in scores.items()}
    if isinstance(structure, NofM):
        return {name: structure.keep(pooled[name], shapes[name], density) for name in scores}
    count = max(round(density * sum(value.numel() for value in pooled.values())), len(pooled))
    units = largest_of_all([_best_first(value) for value in pooled.values()], count)
    return {
        name: structure.spread(chosen, shapes[name])
        for name, chosen in zip(scores, units, strict=True)
    }


def _tiles_together(
    matrices: list[torch.Tensor], structure: TileWise, density: float
) -> list[torch.Tensor]:
    """Outputs, then segments, then single weights, over all layers."""
    size, width = sum(matrix.numel() for matrix in matrices), structure.width
    wanted = max(round(density * size), len(matrices))
    in_tiles = structure.in_tiles(wanted, size)
    outputs = _best_outputs(matrices, in_tiles, size, drop=structure.columns)
    scores, sizes = [], []
    for matrix, rows in zip(matrices, outputs, strict=True):
        pooled = norms(matrix[rows], width).double()
        scores.append(pooled if structure.restore else _best_first(pooled))
        sizes.append(segments(torch.ones_like(matrix[rows], dtype=torch.bool), width))
    marked = fill(
        torch.cat([score.reshape(-1) for score in scores]),
        torch.cat([each.reshape(-1) for each in sizes]),
        in_tiles,
        below=structure.restore > 0,
        least=0 if structure.restore else len(matrices),
    )
    parts = marked.split([score.numel() for score in scores])
    masks = [
        spread_segments(part.view(score.shape), rows, width, len(matrix))
        for part, score, rows, matrix in zip(parts, scores, outputs, matrices, strict=True)
    ]
    if structure.restore:
        left = wanted - sum(int(mask.sum()) for mask in masks)
        both = zip(matrices, masks, strict=True)
        ranked = [matrix.double() if mask.any() else _best_first(matrix) for matrix, mask in both]
        singles = largest_of_all(ranked, left, [~mask for mask in masks])
        masks = [mask | single for mask, single in zip(masks, singles, strict=True)]
    return masks


def _best_outputs(
    matrices: list[torch.Tensor], in_tiles: int, size: int, *, drop: bool
) -> list[torch.Tensor]:
    """Outputs that survive in each layer, ascending: by l2 norm over the number of inputs."""
    if not drop:
        return [torch.arange(len(matrix), device=matrix.device) for matrix in matrices]
    scores = [_best_first(norms(matrix.t(), matrix.shape[1])[0]) for matrix in matrices]
    flat = torch.cat(scores)
    room = torch.cat([torch.full((len(m),), m.shape[1], device=m.device) for m in matrices])
    order = flat.argsort(descending=True, stable=True)
    enough = int((functional.pad(room[order].cumsum(0), (1, 0)) < in_tiles).sum())
    count = max(round(math.sqrt(in_tiles / size) * len(flat)), enough, len(matrices))
    marked = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
    marked[order[:count]] = True
    parts = marked.split([len(score) for score in scores])
    return [part.nonzero().view(-1) for part in parts]


def _best_first(scores: torch.Tensor) -> torch.Tensor:
    """The scores in float64, the best of them infinite: a layer never becomes empty."""
    wide = scores.double().clone()
    if wide.numel():
        wide.view(-1)[wide.reshape(-1).argmax()] = math.inf
    return wide
