"""In which order a model's modules ask for parameters: seen in one forward, the same on all ranks.

A module asks for what it holds itself, and for whatever its forward uses of other modules (a tied
matrix, a part that it reaches into).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dtoolkit.training.seeds import seeded
from dtoolkit.training.sharding.units import Unit, storage_of
from dtoolkit.training.untouched import untouched

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Asking", "recorded"]

_SAMPLES = 2
_CONTENT = {"T", "mT", "H", "mH", "data", "real", "imag"}  # attributes that are more than metadata


@dataclass(frozen=True)
class Asking:
    """Who asks for which units, and when.

    Attributes
    ----------
    order : tuple of int
        All units, as they are asked for first.
    by_module : dict
        Module to the units that it asks for; None for what the loss uses by itself.
    times : tuple of int
        How often each unit is asked for in a forward.
    """

    order: tuple[int, ...]
    by_module: dict[nn.Module | None, tuple[int, ...]]
    times: tuple[int, ...]


def recorded(replica: Replica, units: Sequence[Unit]) -> Asking:
    """Run one forward, in eval mode, on the first samples of the training set; nothing is sent.

    Batch norm and dropout do nothing in it, and the model is as it was afterwards. All ranks see
    the same, and so need not tell each other. Units that it does not use stand after those that
    the model has before them.
    """
    model = replica.model
    watch = _Watch(model, units)
    ids = torch.arange(min(_SAMPLES, len(replica.examples)))
    with untouched(model), seeded(replica.settings.seed, "forward", device=replica.device):
        model.eval()
        hooks = watch.hooks()
        try:
            with watch:
                replica.loss_of(ids)
        finally:
            for hook in hooks:
                hook.remove()
    return _asking(model, units, watch)


class _Watch(TorchFunctionMode):
    """Notes which module is entered, and whose parameters it uses."""

    def __init__(self, model: nn.Module, units: Sequence[Unit]) -> None:
        super().__init__()
        self._model = model
        self._owner = {storage_of(unit.flat): place for place, unit in enumerate(units)}
        self._stack: list[nn.Module | None] = [None]
        self.entered: list[nn.Module] = []
        self.uses: dict[nn.Module | None, dict[int, None]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not _metadata(func):
            self._note([*args, *(kwargs or {}).values()])
        return func(*args, **(kwargs or {}))

    def hooks(self) -> list[Any]:
        """Follow the modules as they are entered and left."""
        made: list[Any] = []
        for module in self._model.modules():
            made.append(module.register_forward_pre_hook(self._enter))
            made.append(module.register_forward_hook(self._leave, always_call=True))
        return made

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._stack.append(module)
        self.entered.append(module)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._stack.pop()

    def _note(self, values: Sequence[Any]) -> None:
        for value in values:
            if isinstance(value, list | tuple):
                self._note(value)
            elif isinstance(value, torch.Tensor):
                place = self._owner.get(storage_of(value))
                if place is not None:
                    self.uses.setdefault(self._stack[-1], {})[place] = None


def _metadata(func: Any) -> bool:
    """Whether a function reads an attribute that does not depend on content, such as a shape."""
    own = getattr(func, "__self__", None)
    return getattr(func, "__name__", "") == "__get__" and getattr(own, "__name__", "") not in (
        _CONTENT
    )


def _asking(model: nn.Module, units: Sequence[Unit], watch: _Watch) -> Asking:
    holders = dict(model.named_modules())
    by_module: dict[nn.Module | None, dict[int, None]] = {}
    for place, unit in enumerate(units):
        by_module.setdefault(holders[unit.module], {})[place] = None
    for module, places in watch.uses.items():
        by_module.setdefault(module, {}).update(places)
    first = list(by_module.get(None, {}))
    seen = dict.fromkeys([*first, *(p for m in watch.entered for p in by_module.get(m, {}))])
    order = list(seen)
    for place in range(len(units)):
        if place not in seen:
            order.insert(order.index(place - 1) + 1 if place else 0, place)
    times = [0] * len(units)
    for module in watch.entered:
        for place in by_module.get(module, {}):
            times[place] += 1
    asks = {module: tuple(places) for module, places in by_module.items()}
    return Asking(tuple(order), asks, tuple(max(one, 1) for one in times))
