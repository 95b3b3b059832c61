"""Which weights of a model are made sparse, and where they are."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from dtoolkit.sparsity.masks import find_mask, store_mask

__all__ = ["Site", "find_sites"]

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


@dataclass(frozen=True, eq=False)
class Site:
    """A weight of a model: where it is, whatever tensors are there now.

    Attributes
    ----------
    name : str
        First of its names in the model.
    key : str
        That name without what wrappers (compiled, data-parallel) put into it: masks are drawn by
        it, so that a wrapped model has the same.
    aliases : tuple of str
        Further names, of a tied weight.
    module : torch.nn.Module
        First owner, which holds the mask.
    attribute : str
        Name of the weight in it.
    """

    name: str
    key: str
    aliases: tuple[str, ...]
    module: nn.Module
    attribute: str

    @property
    def weight(self) -> nn.Parameter:
        """The weight."""
        weight = self.module._parameters[self.attribute]
        assert weight is not None
        return weight

    @property
    def carried(self) -> torch.Tensor | None:
        """The mask in the model, or None."""
        return find_mask(self.module, self.attribute)

    @property
    def mask(self) -> torch.Tensor:
        """The mask in the model; ValueError if there is none any more."""
        mask = self.carried
        if mask is None:
            raise ValueError(
                f"the mask of {self.name!r} is gone from the model: it was taken out, or the "
                "module was replaced. Make a new Sparsifier"
            )
        return mask

    def store(self, mask: torch.Tensor) -> None:
        """Write the mask into the model."""
        store_mask(self.module, self.attribute, mask)


def find_sites(
    model: nn.Module,
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
) -> list[Site]:
    """Find the weights to be made sparse.

    Parameters
    ----------
    model : torch.nn.Module
    include : str or iterable of str, optional
        Names or patterns (``"blocks.*"``) of weights or modules: these alone, out of all parameters
        with two or more dimensions. Default: those that are called a weight (``weight``,
        ``in_proj_weight`` ...), are trained, and do not serve as embeddings alone.
    exclude : str or iterable of str
        Names or patterns of what stays dense; holds over `include`, and for a tied weight if any of
        its names is meant.

    Returns
    -------
    list of Site
        In the order of the model.

    Raises
    ------
    TypeError
        The model is no module.
    ValueError
        A pattern matches nothing, or nothing is left.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r}: wanted a torch.nn.Module")
    wanted, unwanted = _patterns("include", include), _patterns("exclude", exclude)
    found = _candidates(model)
    names = [name for owners in found.values() for name, _, _ in owners]
    for argument, patterns in (("include", wanted), ("exclude", unwanted)):
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in names):
                raise ValueError(
                    f"{argument}: {pattern!r} matches no weight with two or more dimensions. "
                    f"There are {', '.join(names)}"
                )
    sites = [
        _site(model, owners)
        for owners in found.values()
        if (_any(owners, wanted) if include is not None else _usual(owners))
        and not _any(owners, unwanted)
    ]
    if not sites:
        raise ValueError("model: no weight is left to be made sparse")
    return sites


Owners = list[tuple[str, nn.Module, str]]


def _candidates(model: nn.Module) -> dict[int, Owners]:
    """All names and owners of each parameter with two or more dimensions."""
    found: dict[int, Owners] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for attribute, weight in module._parameters.items():
            if weight is None:
                continue
            name = f"{prefix}.{attribute}" if prefix else attribute
            if isinstance(weight, nn.parameter.UninitializedParameter):
                raise ValueError(
                    f"model: {name!r} has no shape yet. Run one batch through the model first"
                )
            if weight.dim() >= 2 and weight.is_floating_point():
                found.setdefault(id(weight), []).append((name, module, attribute))
    return found


def _site(model: nn.Module, owners: Owners) -> Site:
    name, module, attribute = owners[0]
    key = name.removeprefix("module.") if isinstance(model, _WRAPPERS) else name
    key = ".".join(part for part in key.split(".") if part != "_orig_mod")
    return Site(name, key, tuple(other for other, _, _ in owners[1:]), module, attribute)


def _usual(owners: Owners) -> bool:
    """Whether a weight is made sparse where nobody says which ones are."""
    _, module, attribute = owners[0]
    weight = module._parameters[attribute]
    assert weight is not None
    return (
        weight.requires_grad
        and any("weight" in attribute for _, _, attribute in owners)
        and not all(isinstance(module, _EMBEDDINGS) for _, module, _ in owners)
    )


def _any(owners: Owners, patterns: list[str]) -> bool:
    return any(_matches(name, pattern) for name, _, _ in owners for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern means a weight, its module, or one that the module is in."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + ".*")


def _patterns(argument: str, value: str | Iterable[str] | None) -> list[str]:
    patterns = [value] if isinstance(value, str) else [*(value or ())]
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"{argument}: {pattern!r}: wanted names or patterns, as text")
    return patterns
