"""What ``sparsity=`` asks for, checked on the client and carried out on every rank."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dtoolkit.sparsity import PruneTrain, Sparsifier, remove_masks
from dtoolkit.sparsity.schedules import as_schedule
from dtoolkit.training.sparse.masked import Masked
from dtoolkit.training.sparse.shrinking import Shrinking
from dtoolkit.training.sparse.sparse import Sparse

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Recipe", "recipe_of"]

_PRUNETRAIN = "prunetrain"
_BATCH = {"batch", "batch_multiple", "limit", "scheduler"}
_RANKS = {"model", "optimizer", "reduce"}


@dataclass(frozen=True)
class Recipe:
    """How every rank makes its model sparse.

    Attributes
    ----------
    cuts : bool
        Channels are cut (:class:`~dtoolkit.sparsity.PruneTrain`); else weights are masked
        (:class:`~dtoolkit.sparsity.Sparsifier`).
    settings : dict
        Keywords of that class.
    """

    cuts: bool
    settings: dict[str, Any]

    def over(self, steps: int, begun: Mapping[str, Any] | None = None) -> Recipe:
        """The same for a run of so many steps: a schedule by name gets its last update.

        Parameters
        ----------
        steps : int
            Of the whole run. The last update comes after three quarters of them.
        begun : mapping, optional
            Terms of the sparsity of a run that goes on: a schedule of the same kind stops where
            it was to stop when that run began, however many steps follow.

        Raises
        ------
        ValueError
            No schedule has that name.
        """
        name = self.settings.get("schedule")
        if not isinstance(name, str):
            return self
        schedule = as_schedule(name, stop=max(1, steps * 3 // 4))
        saved = (begun or {}).get("settings", {}).get("schedule")
        if saved == name:  # a state of before stops were counted in parts of a run
            return self
        if isinstance(saved, Mapping) and saved["kind"] == type(schedule).__name__:
            schedule = as_schedule(name, stop=saved["settings"]["stop"])
        return replace(self, settings={**self.settings, "schedule": schedule})

    def made(self, replica: Replica) -> Sparse:
        """Make a replica sparse; after model and optimizer, before the first step."""
        if self.cuts:
            return Shrinking(replica, self.settings)
        return Masked(replica, {"seed": replica.settings.seed, **self.settings})

    def tried(self, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Any) -> None:
        """Try it on the client; the model is without masks afterwards, and its weights may be 0.

        Parameters
        ----------
        model : torch.nn.Module
        optimizer : torch.optim.Optimizer
        inputs : tensor or None
            Two samples; None where they lie on the workers.
        """
        if not self.cuts:
            try:
                Sparsifier(model, optimizer, **self.settings)
            finally:
                remove_masks(model)
            return
        settings = dict(self.settings)
        example = settings.pop("example_inputs", inputs)
        if example is not None:
            PruneTrain(model, optimizer, example, **settings)

    def __str__(self) -> str:
        kind = PruneTrain if self.cuts else Sparsifier
        return f"{kind.__name__}({', '.join(f'{n}={v!r}' for n, v in self.settings.items())})"


def recipe_of(value: Any) -> Recipe | None:
    """Read ``sparsity=``.

    Parameters
    ----------
    value : mapping or None
        Keywords of :class:`~dtoolkit.sparsity.Sparsifier`, such as ``{"method": "rigl",
        "density": 0.1}``; or ``{"method": "prunetrain"}`` with those of
        :class:`~dtoolkit.sparsity.PruneTrain`.

    Raises
    ------
    TypeError
        It is no mapping.
    ValueError
        A keyword is unknown, or has no meaning over workers.
    """
    if value is None or isinstance(value, Recipe):
        return value
    if not isinstance(value, Mapping):
        said = value.__name__ if isinstance(value, type) else type(value).__name__
        raise TypeError(
            f"sparsity is {said}: every worker makes one of its own model, so that keywords are "
            'wanted, such as {"method": "rigl", "density": 0.1} or {"method": "prunetrain"}'
        )
    settings = {str(name): one for name, one in value.items()}
    cuts = str(settings.get("method", "")).lower() == _PRUNETRAIN
    if cuts:
        del settings["method"]
        if settings.keys() & _BATCH:
            raise ValueError(
                f"sparsity[{sorted(settings.keys() & _BATCH)[0]!r}]: the batch of a run over "
                "workers stays as it is; let it grow in one process (dt.sparsity.PruneTrain)"
            )
    kind: type = PruneTrain if cuts else Sparsifier
    known = [n for n in inspect.signature(kind).parameters if n not in _RANKS | _BATCH]
    for name in settings:
        if name not in known:
            raise ValueError(
                f"sparsity[{name!r}]: wanted keywords of dt.sparsity.{kind.__name__}, which are "
                f"{', '.join(known)}"
            )
    return Recipe(cuts, settings)
