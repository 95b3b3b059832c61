"""Masks that a model brings along: taken over where they can be those asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dtoolkit.sparsity.methods import Method
from dtoolkit.sparsity.schedules import Schedule
from dtoolkit.sparsity.sites import Site
from dtoolkit.sparsity.structures import Structure

__all__ = ["carries_masks"]


def carries_masks(
    sites: Sequence[Site],
    densities: Mapping[str, float],
    structure: Structure,
    method: Method,
    schedule: Schedule,
) -> bool:
    """Whether the weights have masks already: all of them, as dense as the method may have them.

    Parameters
    ----------
    sites : sequence of Site
    densities : mapping of str to float
        Asked for, by name.
    structure : Structure
    method : Method
    schedule : Schedule

    Raises
    ------
    ValueError
        Some have masks and others not, or a mask keeps more or less than it could.
    """
    bare = [site for site in sites if site.carried is None]
    if len(bare) == len(sites):
        return False
    advice = "Take old masks out first (dtoolkit.sparsity.remove_masks)"
    for site in sites:
        mask, asked = site.carried, densities[site.name]
        if mask is None:
            raise ValueError(f"model carries masks, but none for {site.name!r}. {advice}")
        if method.begins_with_gradient:  # which densities those scores gave cannot be known
            continue
        shape = tuple(mask.shape)
        units = int(structure.gather(mask).sum())
        low = structure.count(shape, method.lowest(asked))
        high = structure.count(shape, method.highest(asked, schedule))
        slack = structure.slack(shape)
        if not low - slack <= units <= high + slack:
            wanted = str(low) if low == high else f"{low} to {high}"
            raise ValueError(
                f"model carries a mask for {site.name!r} that keeps {units} of "
                f"{structure.size(shape)} ({structure.name}), and asked are {wanted}. {advice}, or "
                "ask for what is there"
            )
    return True
