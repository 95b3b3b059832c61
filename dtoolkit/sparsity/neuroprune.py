"""NeuroPrune: connections where many are cost less, rows of attention go together, heads fold.

The paper's exact form of the penalties was not to be had: they are built from its description.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import torch
from torch import nn

from dtoolkit.sparsity.citing import Cited
from dtoolkit.sparsity.heads_folding import FoldedHeads, fold_heads
from dtoolkit.sparsity.heads_parts import HeadParts, find_attention
from dtoolkit.sparsity.sites import Site, find_sites

__all__ = ["NeuroPrune", "attention_penalty", "degree_penalty"]

_SMALL = 1e-4


class NeuroPrune(Cited):
    """Penalties that make a transformer sparse while it is trained, and fewer heads after epochs.

    ::

        pruning = dt.sparsity.NeuroPrune(model, mlp=1e-4, attention=1e-3)
        for epoch in range(epochs):
            for inputs, labels in batches:
                optimizer.zero_grad()
                (loss(model(inputs), labels) + pruning.penalty()).backward()
                optimizer.step()
            pruning.fold_heads(optimizer)

    Dhurandhar et al., "NeuroPrune: a neuro-inspired topological sparse training algorithm for large
    language models", ACL Findings 2024.

    Parameters
    ----------
    model : torch.nn.Module
    mlp, attention : float
        Strength of the two penalties, 0 or more.
    theta : float
        Largest difference of two weights at the same place in heads that are folded.
    threshold : float
        Magnitude below which a weight counts as no connection.
    parts : mapping of type to HeadParts, optional
        For attention classes of your own.
    include, exclude : str or iterable of str, optional
        Weights under the penalty of the MLP, as in the Sparsifier; default: those of all linear
        layers outside of attention.

    Raises
    ------
    ValueError
        A strength is negative, or nothing is to be penalised.
    """

    citation = (
        "A. Dhurandhar et al., NeuroPrune: a neuro-inspired topological sparse training algorithm "
        "for large language models, ACL Findings 2024"
    )

    def __init__(
        self,
        model: nn.Module,
        *,
        mlp: float = 1e-4,
        attention: float = 1e-3,
        theta: float = 0.15,
        threshold: float = _SMALL,
        parts: Mapping[type[nn.Module], HeadParts] | None = None,
        include: str | Iterable[str] | None = None,
        exclude: str | Iterable[str] = (),
    ) -> None:
        for name, value in (("mlp", mlp), ("attention", attention), ("threshold", threshold)):
            if not value >= 0:
                raise ValueError(f"{name}={value}: wanted 0 or more")
        self.model, self.mlp, self.attention = model, mlp, attention
        self.theta, self.threshold, self.parts = theta, threshold, parts
        self._attention = find_attention(model, parts)
        inner = {id(p) for each in self._attention for p in each.module.parameters()}
        sites = find_sites(model, include=include, exclude=exclude)
        self._sites: list[Site] = [
            site
            for site in sites
            if id(site.weight) not in inner
            and (include is not None or isinstance(site.module, nn.Linear))
        ]
        if not self._sites and not self._attention:
            raise ValueError("model has neither linear layers nor attention to be made sparse")

    def penalty(self) -> torch.Tensor:
        """What is added to the loss: both penalties times their strengths.

        Returns
        -------
        tensor, a float32 or wider number
        """
        terms = []
        if self.mlp:
            terms += [
                self.mlp * degree_penalty(site.weight, threshold=self.threshold)
                for site in self._sites
            ]
        if self.attention:
            for each in self._attention:
                weights = [each.part(where) for where in each.inputs]
                one = attention_penalty(*weights, threshold=self.threshold)
                terms.append(self.attention * one)
        if not terms:
            return torch.zeros((), device=next(self.model.parameters()).device)
        return torch.stack([term.to(terms[0].device) for term in terms]).sum()

    def fold_heads(
        self, optimizer: torch.optim.Optimizer | None = None, example_inputs: Any = None
    ) -> FoldedHeads:
        """Fold and remove similar heads: see :func:`dtoolkit.sparsity.fold_heads`."""
        return fold_heads(
            self.model,
            optimizer,
            theta=self.theta,
            parts=self.parts,
            example_inputs=example_inputs,
        )

    def table(self) -> pd.DataFrame:
        """How sparse each weight is.

        Returns
        -------
        pandas.DataFrame
            ``layer``, ``part`` (``"mlp"`` or ``"attention"``), ``rows``, ``density`` (share of
            weights at the threshold or above), ``degree`` (mean number of those in a row),
            ``spread`` (standard deviation of that number over the rows), ``zero_rows``.
        """
        weights: list[tuple[str, str, torch.Tensor]] = [
            (site.name, "mlp", site.weight) for site in self._sites
        ]
        for each in self._attention:
            prefix = f"{each.name}." if each.name else ""
            rows = torch.cat([each.part(where) for where in each.inputs], dim=1)
            weights.append((f"{prefix}query, key, value", "attention", rows))
        found = []
        for name, part, weight in weights:
            degrees = (weight.detach().flatten(1).abs() >= self.threshold).sum(1).double()
            found.append(
                {
                    "layer": name,
                    "part": part,
                    "rows": len(degrees),
                    "density": float(degrees.sum()) / max(weight.numel(), 1),
                    "degree": float(degrees.mean()),
                    "spread": float(degrees.std(correction=0)),
                    "zero_rows": int((degrees == 0).sum()),
                }
            )
        return pd.DataFrame(found)


def degree_penalty(weight: torch.Tensor, *, threshold: float = _SMALL) -> torch.Tensor:
    """L1 norm of each row over the share of its entries that are connections, summed.

    Rows with few connections pay more for each: those with many keep them, as in preferential
    attachment.

    Parameters
    ----------
    weight : tensor, shape (rows, ...)
    threshold : float
        Magnitude from which on an entry counts as a connection.

    Returns
    -------
    tensor
        A number, float32 or wider. The shares are constants to autograd; of a row without any it
        is 1 / its length.
    """
    rows = weight.flatten(1).abs()
    with torch.no_grad():
        share = (rows >= threshold).double().mean(1).clamp(min=1 / max(rows.shape[1], 1))
    wide = torch.promote_types(weight.dtype, torch.float32)
    return (rows.sum(1, dtype=wide) / share.to(wide)).sum()


def attention_penalty(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, threshold: float = _SMALL
) -> torch.Tensor:
    """Root of the L1 norm of each row of [Q, K, V], summed: whole rows go.

    Parameters
    ----------
    query, key, value : tensor, shape (rows, inputs)
        Rows with the same index are one row.
    threshold : float
        A row whose entries are below it on average is pulled no harder than one at it: the slope of
        the root has no limit towards 0.

    Returns
    -------
    tensor
        A number, float32 or wider.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    norms = sum(part.abs().sum(1, dtype=wide) for part in (query, key, value))
    assert isinstance(norms, torch.Tensor)
    length = query.shape[1] + key.shape[1] + value.shape[1]
    with torch.no_grad():
        slope = 0.5 / norms.clamp(min=max(threshold * length, torch.finfo(wide).tiny)).sqrt()
        rest = norms.sqrt() - slope * norms
    return (slope * norms + rest).sum()
