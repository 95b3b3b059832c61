"""A forward that computes a subnetwork alone, in training; in evaluation it is the whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import nn

from dtoolkit.training.subnetworks.plan import SubnetworkPlan

__all__ = ["Masked", "drawn_part", "held_part"]


_SAME = (
    "left out, a block is the identity, and so must keep the shape; name others with blocks=, or "
    "take masking='backward'"
)


class Masked:
    """Changes what parts of a model compute while they train, until :meth:`close`.

    A block that is left out gives its input. A layer of which some neurons, or channels, are kept
    computes these alone; the others are 0. What is computed counts `factor` times: a layer's
    outputs, and what a block adds to its input.

    Parameters
    ----------
    model : nn.Module
    blocks : collection of str
        Residual blocks that can be left out.
    layers : collection of str
        Linear and convolutional layers.
    factor : float
    """

    def __init__(
        self, model: nn.Module, *, blocks: Collection[str], layers: Collection[str], factor: float
    ) -> None:
        self._model, self._factor = model, factor
        self._absent: Collection[str] = ()
        self._rows: Mapping[str, torch.Tensor] = {}
        self._changed: list[nn.Module] = []
        if blocks:
            self._change(model, self._whole(model))
        for name, module in model.named_modules():
            if name in blocks:
                self._change(module, self._block(name, module))
            elif name in layers:
                self._change(module, self._layer(name, module))

    def choose(self, absent: Collection[str], rows: Mapping[str, torch.Tensor]) -> None:
        """Say which blocks are left out, and which neurons (int64 rows) of layers are kept."""
        self._absent, self._rows = absent, rows

    def close(self) -> None:
        """Leave the model as it was."""
        for module in self._changed:
            del module.__dict__["forward"]
        self._changed = []

    def _change(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        module.__dict__["forward"] = forward
        self._changed.append(module)

    def _whole(self, model: nn.Module) -> Callable[..., Any]:
        whole = model.forward

        def forward(*args: Any, **more: Any) -> Any:
            try:
                return whole(*args, **more)
            except torch.OutOfMemoryError:
                raise  # nothing that shapes are to blame for
            except RuntimeError as error:
                if not model.training or not self._absent:
                    raise
                # A rank that computes the block says it better, but may not be the first to.
                raise ValueError(
                    f"{', '.join(self._absent)} left out: the model fails where that is the "
                    f"identity ({str(error).splitlines()[0]}); {_SAME}"
                ) from error

        return forward

    def _block(self, name: str, module: nn.Module) -> Callable[..., Any]:
        whole = module.forward

        def forward(*args: Any, **more: Any) -> Any:
            if not self._model.training:
                return whole(*args, **more)
            given = args[0]
            if name in self._absent:
                return given
            made = whole(*args, **more)
            shape = getattr(made, "shape", None)
            if shape != given.shape:
                raise ValueError(
                    f"{name} gives {'no tensor' if shape is None else tuple(shape)} for an input "
                    f"of shape {tuple(given.shape)}: {_SAME}"
                )
            return made if self._factor == 1 else given + (made - given) * self._factor

        return forward

    def _layer(self, name: str, module: nn.Module) -> Callable[..., Any]:
        whole = module.forward

        def forward(given: torch.Tensor) -> torch.Tensor:
            rows = self._rows.get(name)
            if not self._model.training or rows is None:
                out: torch.Tensor = whole(given)
                return out
            if not len(rows):
                return torch.zeros_like(whole(given).detach())
            return _computed(module, given, rows, self._factor)

        return forward


def held_part(
    plan: SubnetworkPlan, worker: int, device: torch.device
) -> tuple[list[str], dict[str, torch.Tensor]]:
    """Blocks that a worker does not hold, and the neurons of each layer that it does."""
    ranges: dict[str, list[torch.Tensor]] = {}
    absent = []
    for block in plan.blocks:
        holds = worker in block.holders
        if block.rows is None:
            absent += [] if holds else [block.module]
            continue
        kept = ranges.setdefault(block.module, [torch.empty(0, dtype=torch.int64)])
        if holds:
            kept.append(torch.arange(*block.rows))
    return absent, {name: torch.cat(kept).to(device) for name, kept in ranges.items()}


def drawn_part(
    plan: SubnetworkPlan, share: float, seed: int, device: torch.device
) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The same drawn anew: each block, or each neuron, is there with probability `share`."""
    generator = torch.Generator().manual_seed(seed)
    sizes: dict[str, int] = {}  # neurons; 0 for a block
    for block in plan.blocks:
        sizes[block.module] = max(sizes.get(block.module, 0), (block.rows or (0, 0))[1])
    absent, rows = [], {}
    for name, size in sizes.items():
        kept = torch.rand(max(size, 1), generator=generator) < share
        if size:
            rows[name] = kept.nonzero()[:, 0].to(device)
        elif not bool(kept):
            absent.append(name)
    return absent, rows


def _computed(module: Any, given: torch.Tensor, rows: torch.Tensor, factor: float) -> torch.Tensor:
    """Some outputs of a linear or convolutional layer, and zeros for the others."""
    weight = module.weight[rows]
    bias = None if module.bias is None else module.bias[rows]
    if isinstance(module, nn.Linear):
        some, dim = nn.functional.linear(given, weight, bias), given.dim() - 1
    else:
        some, dim = module._conv_forward(given, weight, bias), given.dim() - weight.dim() + 1
    shape = list(some.shape)
    shape[dim] = len(module.weight)
    some = some if factor == 1 else some * factor
    return some.new_zeros(shape).index_copy(dim, rows, some)
