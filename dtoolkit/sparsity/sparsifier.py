"""Sparse training of any model: masks made, kept and changed beside an ordinary optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import pandas as pd
import torch
from torch import nn

from dtoolkit.sparsity.carried import carries_masks
from dtoolkit.sparsity.distributions import Distribution, as_distribution
from dtoolkit.sparsity.flops import forward_flops
from dtoolkit.sparsity.gradients import reduced
from dtoolkit.sparsity.masks import erase
from dtoolkit.sparsity.methods import Layer, Method, as_method
from dtoolkit.sparsity.optimizer_state import check_optimizer, restart, state_tensors
from dtoolkit.sparsity.saved import VERSION, check_state
from dtoolkit.sparsity.schedules import Schedule, as_schedule
from dtoolkit.sparsity.seeing import see
from dtoolkit.sparsity.sites import Site, find_sites
from dtoolkit.sparsity.structures import Structure, as_structure
from dtoolkit.sparsity.table import layer_table, sparsifier_card

__all__ = ["Sparsifier"]


class Sparsifier:
    """Keeps a model sparse while an ordinary optimizer trains it.

    ::

        sparsifier = dt.sparsity.Sparsifier(model, optimizer, method="rigl", density=0.1)
        for inputs, labels in batches:
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()
            sparsifier.step()

    After it is made and after each :meth:`step`, masked weights and what the optimizer keeps of
    them are exactly 0, so that every forward pass is that of the masked model. Masks are buffers of
    the model (``weight_mask`` beside ``weight``). They depend on seed, names and steps alone:
    workers that hold equal weights have equal masks, without a message. Weights are masked, not
    removed: that saves neither time nor memory.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer
        Any that keeps its state by parameter.
    method : str or Method
        ``"static"`` (random), ``"snip"`` (random, with SNIP's layer densities), ``"magnitude"``,
        ``"set"``, ``"rigl"``, ``"growth"`` (random).
    density : float, optional
        Share of the weights of the sparse layers that is kept, in (0, 1]. May be left out where
        the structure or an explicit distribution says it.
    distribution : str, mapping or Distribution
        ``"uniform"``, ``"er"``, ``"erk"``, ``"erk+"``, ``"uniform+"``, or densities by layer.
    schedule : str or Schedule, optional
        When masks change and by how much: ``"constant"`` (default), ``"cosine"``, ``"cubic"``, or
        an object such as ``Cosine(every=100, stop=30_000)``. By name, a cosine and a cubic one
        stop after 1,000 steps (in ``dt.train``, after three quarters of the run).
    structure : str or Structure
        ``"unstructured"``, ``"2:4"`` or any N:M, ``"block"`` or a size such as ``"16x16"``,
        ``"channel"``.
    include, exclude : str or iterable of str, optional
        Names or patterns of weights or modules; `exclude` always holds. Default: all weights with
        two or more dimensions, but embeddings and what is not trained. Biases never.
    seed : int
    reduce : callable, optional
        ``reduce(gradient)`` returns the gradient reduced over workers; called at updates of RigL
        and when SNIP scores, once a layer and in one order. Not needed where gradients are reduced
        already, as under data-parallel training.

    Attributes
    ----------
    steps : int
        Steps done.
    densities : dict of str to float
        Final density that each layer is asked for.

    Raises
    ------
    ValueError, TypeError
        An argument is wrong, or the model carries masks that cannot be those asked for.

    Notes
    -----
    A model that carries masks already (a copy, or one unpickled) keeps them, if they are as dense
    as what is asked for.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        method: str | Method = "static",
        density: float | None = None,
        distribution: str | Mapping[str, float] | Distribution = "uniform",
        schedule: str | Schedule | None = None,
        structure: str | Structure = "unstructured",
        include: str | Iterable[str] | None = None,
        exclude: str | Iterable[str] = (),
        seed: int = 0,
        reduce: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.method = as_method(method)
        self.distribution = as_distribution(distribution)
        self.schedule = as_schedule(schedule)
        self.structure = as_structure(structure)
        self.model, self.optimizer, self.seed, self.reduce = model, optimizer, seed, reduce
        self.steps = 0
        self._sites = find_sites(model, include=include, exclude=exclude)
        self._flops: dict[str, float] | None = None
        weights = {site.name: site.weight for site in self._sites}
        check_optimizer(optimizer, weights)
        if density is None:
            density = self.structure.default
        if density is not None and not isinstance(density, Real):
            raise TypeError(
                f"density={density!r}: wanted a number; densities by layer go to distribution="
            )
        if density is not None and not 0 < density <= 1:
            raise ValueError(f"density={density}: wanted more than 0, and at most 1")
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        limit = self.structure.limit
        self.densities = self.distribution.densities(shapes, density, limit=limit)
        with torch.no_grad():
            self._waiting = not (self._carried() or self._begin())
            self.apply()

    @property
    def masks(self) -> dict[str, torch.Tensor]:
        """Mask of each sparse weight by name: the model's own bool buffers."""
        return {site.name: site.mask for site in self._sites}

    @property
    def density(self) -> float:
        """Share of the weights of the sparse layers that is live now."""
        masks = self.masks.values()
        return sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)

    @property
    def wants_gradients(self) -> bool:
        """Whether the next :meth:`step` ranks weights, masked ones too, by their gradients."""
        due = self.schedule.due(self.steps + 1)
        return self._waiting or (due and self.method.updates_with_gradient)

    @torch.no_grad()
    def step(self) -> bool:
        """Mask what the optimizer has just stepped, and update the masks if that is due.

        To be called after ``optimizer.step()``, and before gradients are set to None.

        Returns
        -------
        bool
            Whether masks were updated.

        Raises
        ------
        RuntimeError
            An update needs gradients, and there are none.
        ValueError
            Weights or gradients that are to be ranked hold NaN.
        """
        self.steps += 1
        begun = False
        if self._waiting:
            self._waiting = not self._begin()
            begun = not self._waiting
        self.apply()
        if not self.schedule.due(self.steps):
            return begun
        return self._update() or begun

    @torch.no_grad()
    def apply(self) -> None:
        """Set masked weights, and the optimizer's state of them, to 0. Done by :meth:`step`."""
        for site in self._sites:
            self._erase(site)

    def table(self, example_inputs: Any = None) -> pd.DataFrame:
        """Before and after by layer.

        Parameters
        ----------
        example_inputs : tensor, tuple or dict, optional
            What the model is called with, to count floating-point operations (remembered).

        Returns
        -------
        pandas.DataFrame
            See :func:`dtoolkit.sparsity.table.layer_table`.
        """
        if example_inputs is not None:
            weights = {site.name: site.weight for site in self._sites}
            self._flops = forward_flops(self.model, weights, example_inputs)
        return layer_table(self._sites, self.densities, self.structure, self._flops)

    def settings(self) -> dict[str, str]:
        """Method, structure, distribution and schedule, in words."""
        schedule = self.schedule
        stop = "" if schedule.stop is None else f", last after step {schedule.stop:,}"
        return {
            "method": self.method.name,
            "structure": self.structure.name,
            "distribution": self.distribution.name,
            "schedule": f"{schedule.name}, every {schedule.every:,} steps{stop}",
        }

    def cite(self) -> str:
        """What to cite for these choices, one line each."""
        parts = (self.method, self.distribution, self.structure, self.schedule)
        return "\n".join(dict.fromkeys(part.cite() for part in parts if part.cite()))

    def state_dict(self) -> dict[str, Any]:
        """What a run needs to go on bit-equal, beside the states of model and optimizer.

        Returns
        -------
        dict
            Of plain values and tensors; masks are copies.
        """
        return {
            "version": VERSION,
            "steps": self.steps,
            "seed": self.seed,
            "method": self.method.name,
            "structure": self.structure.name,
            "waiting": self._waiting,
            "densities": dict(self.densities),
            "masks": {name: mask.clone() for name, mask in self.masks.items()},
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave, before or after model and optimizer are loaded.

        Raises
        ------
        ValueError
            It has no masks, or those of other layers, or is of another method or structure.
        """
        settings = self.settings()
        check_state(state, self.masks, method=settings["method"], structure=settings["structure"])
        self.steps, self.seed = state["steps"], state["seed"]
        self._waiting = state["waiting"]
        self.densities = dict(state["densities"])
        for site in self._sites:
            site.store(state["masks"][site.name].to(site.weight.device))
        self.apply()

    def __repr__(self) -> str:
        masks = self.masks.values()
        live, total = sum(int(m.sum()) for m in masks), sum(m.numel() for m in masks)
        words = ", ".join(f"{name} {value}" for name, value in self.settings().items())
        return (
            f"Sparsifier({len(self._sites)} layers, {live:,} of {total:,} weights live "
            f"({live / total:.4g}); {words}; {self.steps:,} steps)"
        )

    def _repr_html_(self) -> str:
        return sparsifier_card(self)

    def _carried(self) -> bool:
        """Whether the model carries masks, which are then taken over."""
        return carries_masks(
            self._sites, self.densities, self.structure, self.method, self.schedule
        )

    def _begin(self) -> bool:
        """Make the first masks; all True, and not begun, if gradients are needed and missing."""
        gradients: list[torch.Tensor | None] = [None] * len(self._sites)
        if self.method.begins_with_gradient:
            gradients = self.method.gradients([site.weight for site in self._sites])
            # After a step a worker without a gradient had no samples: the others wait for its 0.
            alone = self.reduce is None or self.steps == 0
            if alone and all(gradient is None for gradient in gradients):
                for site in self._sites:
                    site.store(torch.ones_like(site.weight, dtype=torch.bool))
                return False
            gradients = reduced(self._sites, gradients, self.reduce)
        self.densities = self.method.allot(self._layers(gradients))
        masks = [self.method.begin(layer, self.schedule) for layer in self._layers(gradients)]
        for site, mask in zip(self._sites, masks, strict=True):
            site.store(mask)
        return True

    def _update(self) -> bool:
        """Ask the method for new masks, and write them once all are there."""
        gradients: list[torch.Tensor | None] = [None] * len(self._sites)
        if self.method.updates_with_gradient:
            gradients = [site.weight.grad for site in self._sites]
            if self.reduce is None and all(gradient is None for gradient in gradients):
                raise RuntimeError(
                    f"method={self.method.name!r} grows weights by their gradients at step "
                    f"{self.steps}, and there are none: call step() after optimizer.step() and "
                    "before zero_grad()"
                )
            gradients = reduced(self._sites, gradients, self.reduce)
        layers = self._layers(gradients)
        masks = [self.method.update(layer, self.schedule, self.steps) for layer in layers]
        for site, mask in zip(self._sites, masks, strict=True):
            if mask is not None:
                grown = mask & ~site.mask
                site.store(mask)
                self._erase(site)
                restart(self.optimizer, site.weight, grown)
        return any(mask is not None for mask in masks)

    def _erase(self, site: Site) -> None:
        kept = [value for _, value in state_tensors(self.optimizer, site.weight)]
        erase(site.mask, [site.weight.data, *kept])

    def _layers(self, gradients: Sequence[torch.Tensor | None]) -> list[Layer]:
        """What the method may see of the weights."""
        return [
            see(
                site,
                gradient,
                density=self.densities[site.name],
                structure=self.structure,
                seed=self.seed,
                step=self.steps,
            )
            for site, gradient in zip(self._sites, gradients, strict=True)
        ]
