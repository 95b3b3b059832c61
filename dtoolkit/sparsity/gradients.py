"""Gradients by which methods rank weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dtoolkit.sparsity.sites import Site

__all__ = ["reduced"]


def reduced(
    sites: Sequence[Site],
    gradients: Sequence[torch.Tensor | None],
    reduce: Callable[[torch.Tensor], torch.Tensor] | None,
) -> list[torch.Tensor | None]:
    """Make gradients dense, and reduce them over workers where the caller does that.

    Parameters
    ----------
    sites : sequence of Site
    gradients : sequence of (tensor or None)
    reduce : callable or None
        Gets a copy of each, in the order of the sites; zeros where there is none, so that all
        workers call it alike, also one whose batch did not reach a layer.

    Returns
    -------
    list of (tensor or None)

    Raises
    ------
    RuntimeError
        The model is compiled so that masked weights get no gradient.
    """
    for site in sites:
        execution = site.module.__dict__.get("_execution")
        if execution is not None and not execution.dense_gradient:
            raise RuntimeError(
                f"masked weights of {site.name!r} have no gradient in the compiled model, and "
                "weights are to grow by it: compile_sparse(model, dense_gradient=True)"
            )
    result: list[torch.Tensor | None] = []
    for site, gradient in zip(sites, gradients, strict=True):
        if gradient is not None and gradient.is_sparse:
            gradient = gradient.to_dense()
        if reduce is not None:
            own = torch.zeros_like(site.weight) if gradient is None else gradient.clone()
            gradient = reduce(own.detach())
        result.append(gradient)
    return result
