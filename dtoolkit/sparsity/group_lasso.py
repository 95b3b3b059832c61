"""A penalty that lets whole channels shrink to nothing while a model learns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dtoolkit.sparsity.amounts import check_number
from dtoolkit.sparsity.channels.dependencies import find_dependencies
from dtoolkit.sparsity.citing import Cited

__all__ = ["GroupLasso"]

_LAYERS = (nn.modules.conv._ConvNd, nn.Linear)


@dataclass(frozen=True)
class _Entry:
    """A layer, and which of its channels are penalised."""

    layer: str
    inputs: bool
    outputs: bool


class GroupLasso(Cited):
    """Group lasso over the channels of convolutions and linear layers.

    ::

        penalty = dt.sparsity.GroupLasso(model, ratio=0.2)
        for inputs, labels in batches:
            loss = cross_entropy(model(inputs), labels)
            (loss + penalty(loss)).backward()

    The penalty is ``strength * norm``, where the norm is the sum over layers, over their input
    channels and over their output channels, of ``sqrt(sum of squares + 1e-8)``. The strength is set
    at the first call, so that the penalty is the given share of the loss with it:
    ``ratio * loss / (norm * (1 - ratio))``; it stays as it is from then on. (Lym et al., 2019.)

    Parameters
    ----------
    model : torch.nn.Module
    ratio : float
        Share of the whole loss at the first call, in (0, 1).
    strength : float, optional
        Given in place of `ratio`; then a call needs no loss.
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments, optional
        What the model is called with, to penalise exactly those channels that can be cut (widths
        that feed a layer norm cannot). Without, all layers in the order in which the model
        registers them count, but for the inputs of the first and the outputs of the last.

    Attributes
    ----------
    strength : float or None
        None until the first call.

    Raises
    ------
    TypeError
        There is no module, or no number.
    ValueError
        The ratio or the strength is out of range, or there is no layer with channels.
    """

    citation = (
        "S. Lym et al., PruneTrain: fast neural network training by dynamic sparse model "
        "reconfiguration, SC 2019"
    )

    def __init__(
        self,
        model: nn.Module,
        ratio: float = 0.2,
        *,
        strength: float | None = None,
        example_inputs: Any = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model={model!r}: wanted a torch.nn.Module")
        check_number("ratio", ratio)
        if not 0 < ratio < 1:
            raise ValueError(f"ratio={ratio}: wanted more than 0 and less than 1")
        if strength is not None:
            check_number("strength", strength)
            if not 0 <= strength < math.inf:
                raise ValueError(f"strength={strength}: wanted 0 or more, and finite")
        self.model: nn.Module | None = model
        self.ratio, self.strength = ratio, strength
        self._entries = _entries(model, example_inputs)
        if not self._entries:
            raise ValueError("model: it has no convolution or linear layer with channels to cut")

    def __call__(self, given: torch.Tensor | nn.Module | None = None) -> torch.Tensor:
        """Penalty to be added to the loss.

        Parameters
        ----------
        given : scalar tensor, Module or None
            The loss without the penalty, which sets the strength at the first call (of all workers
            together where there are several); or a model with the same layers, as a task's
            penalty is called. With neither, the model that this was made for.

        Returns
        -------
        scalar tensor

        Raises
        ------
        ValueError
            The strength is not known, or the loss is not above 0.
        """
        if isinstance(given, nn.Module):
            norm = self.norm(given)
        else:
            norm = self.norm()
            if isinstance(given, torch.Tensor) and self.strength is None:
                self.strength = self._strength(given, norm)
        if self.strength is None:
            raise ValueError(
                "strength is not known yet: it follows from the first loss. Call with the loss, "
                "penalty(loss), or give strength="
            )
        return self.strength * norm

    def norm(self, model: nn.Module | None = None) -> torch.Tensor:
        """Sum of the norms of all channels: what is multiplied by the strength.

        Parameters
        ----------
        model : torch.nn.Module, optional
            Another with the same layers.
        """
        owner = self.model if model is None else model
        if owner is None:
            raise ValueError("the model was left behind when this was sent: call with a model")
        parts = []
        for entry in self._entries:
            layer = owner.get_submodule(entry.layer)
            assert isinstance(layer, nn.Module)
            parts += [(squares + 1e-8).sqrt().sum() for squares in _squares(layer, entry)]
        return torch.stack(parts).sum()

    def share(self, loss: torch.Tensor) -> float:
        """Part of the loss with the penalty that the penalty is now."""
        penalty = float(self().detach())
        return penalty / (float(loss.detach()) + penalty)

    def state_dict(self) -> dict[str, Any]:
        """What a run needs to go on: the strength."""
        return {"strength": self.strength}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a saved strength."""
        self.strength = state["strength"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "model": None}  # a task's penalty gets the worker's own model

    def __repr__(self) -> str:
        known = "not set" if self.strength is None else f"{self.strength:.4g}"
        return f"GroupLasso({len(self._entries)} layers, ratio {self.ratio:g}, strength {known})"

    def _strength(self, loss: torch.Tensor, norm: torch.Tensor) -> float:
        value, size = float(loss.detach()), float(norm.detach())
        if loss.numel() != 1 or not 0 < value < float("inf"):
            raise ValueError(f"loss={value}: wanted one finite value above 0 at the first call")
        return self.ratio * value / (size * (1 - self.ratio))


def _entries(model: nn.Module, example_inputs: Any) -> list[_Entry]:
    """Layers whose channels count, tied weights once."""
    layers: dict[int, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, _LAYERS) and module.weight.requires_grad:
            layers.setdefault(id(module.weight), name)
    names = list(layers.values())
    if example_inputs is None:
        last = len(names) - 1
        return [_Entry(name, place > 0, place < last) for place, name in enumerate(names)]
    found = find_dependencies(model, example_inputs)
    if found.failure:
        raise ValueError(f"example_inputs: {found.failure}")
    entries = []
    for name in names:
        dims = found.dims.get(f"{name}.weight")
        if dims is None:
            continue
        free = [bool(found.cuttable[ids].any()) for ids in dims[:2]]
        turned = isinstance(model.get_submodule(name), nn.modules.conv._ConvTransposeNd)
        inputs, outputs = free if turned else free[::-1]
        if inputs or outputs:
            entries.append(_Entry(name, inputs, outputs))
    return entries


def _squares(layer: Any, entry: _Entry) -> Iterator[torch.Tensor]:
    """Sum of squares of each channel's weights: those that make it, those that read it."""
    squares = layer.weight.square()
    if squares.dim() > 2:
        squares = squares.flatten(2).sum(2)
    groups = getattr(layer, "groups", 1)
    grouped = squares.view(groups, -1, squares.shape[1])  # (groups, of dimension 0, of 1)
    along = [grouped.sum(2), grouped.sum(1)]
    outputs, inputs = along[::-1] if getattr(layer, "transposed", False) else along
    depthwise = groups > 1 and 1 in grouped.shape[1:]
    if entry.outputs:
        yield outputs
    if entry.inputs and not (depthwise and entry.outputs):  # the same weights once more
        yield inputs
