"""What a run was asked for, in plain values that its state keeps, and what differs when it goes on.

An object, such as a strategy or an optimizer, is written down as its class and its settings as
they are before the first step. Functions are known by their name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.training.plain import digest_of
from dtoolkit.training.settings import Settings
from dtoolkit.training.strategy import Strategy

__all__ = ["Stepping", "differing", "differing_partition", "partition_terms", "terms_of"]

Described = dict[str, Any]
"""An object in plain values: ``"kind"``, the name of its class, and ``"settings"`` by name."""

_DEPTH = 6  # objects within objects; what lies deeper is known by its class
_COUNTED = {"_step_count", "_last_lr", "_get_lr_called_within_step", "_is_initial"}
_PARAMETERS = {"params", "param_names"}


class Stepping:
    """Writes down optimizer and schedule when they are made, before they make a step.

    Attributes
    ----------
    optimizer, schedule : dict or None
        What was made; None before, or where there is none.
    """

    def __init__(self) -> None:
        self.optimizer: Described | None = None
        self.schedule: Described | None = None
        self._groups: dict[str, Any] = {}

    def made_by_optimizer(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """The same maker of an optimizer, whose work is written down."""

        def made(parameters: Any) -> Any:
            optimizer = make(parameters)
            if isinstance(optimizer, torch.optim.Optimizer):
                self._groups = _groups(optimizer)
                self.optimizer = {"kind": type(optimizer).__name__, "settings": self._groups}
            return optimizer

        return made

    def made_by_schedule(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """The same maker of a schedule; what it has set in the optimizer is written down too."""

        def made(optimizer: Any) -> Any:
            schedule = make(optimizer)
            changed = {
                f"optimizer.{name}": value
                for name, value in _groups(optimizer).items()
                if not _same(value, self._groups.get(name))
            }
            self.schedule = _described(schedule, private=True)
            self.schedule["settings"] |= changed
            return schedule

        return made


def terms_of(strategy: Strategy, settings: Settings, stepping: Stepping) -> dict[str, Any]:
    """What a run is asked for, but for its partition, which the ranks know.

    Parameters
    ----------
    strategy : Strategy
        Before it was configured: what it measures and chooses is no setting.
    settings : Settings
    stepping : Stepping
        Which has seen optimizer and schedule.

    Returns
    -------
    dict
        Plain content by the name of the argument: ``strategy``, ``optimizer``, ``schedule``,
        ``compression``, ``batch_norm``, ``accumulate``, ``sparsity``.
    """
    compression, sparsity = settings.compression, settings.sparsity
    return {
        "strategy": _described(strategy),
        "optimizer": stepping.optimizer,
        "schedule": stepping.schedule,
        "compression": None if compression is None else _described(compression),
        "batch_norm": settings.batch_norm or strategy.batch_norm,
        "accumulate": settings.accumulate,
        "sparsity": None
        if sparsity is None
        else {
            "kind": "PruneTrain" if sparsity.cuts else "Sparsifier",
            "settings": {name: _value(value) for name, value in sparsity.settings.items()},
        },
    }


def partition_terms(partition: Any, samples: int, ranks: int) -> dict[str, str] | None:
    """A partition by its kind and by a digest of which rank computes which sample.

    Raises
    ------
    LayoutError
        It does not fit samples and ranks.
    """
    if partition is None:
        return None
    layout: Layout = as_layout(partition, samples, ranks, name="partition")
    return {"kind": layout.kind, "digest": layout.digest}


def differing(
    saved: Described | None, here: Described | None, *, by_class: bool = True
) -> tuple[str, str] | None:
    """Two objects in words that name what differs, or None where nothing does.

    Parameters
    ----------
    saved, here : dict or None
    by_class : bool
        False: classes may differ, and settings count that both have: a strategy that bears the
        name of another says that it is the same.
    """
    if saved is None or here is None:
        return None if saved is here else (_text(saved), _text(here))
    one, two = saved["settings"], here["settings"]
    if by_class and saved["kind"] != here["kind"]:
        return _text(saved), _text(here)
    names = [*one, *(name for name in two if name not in one)]
    if not by_class:
        names = [name for name in names if name in one and name in two]
    names = [name for name in names if not _same(one.get(name), two.get(name))]
    return (_text(saved, names), _text(here, names)) if names else None


def differing_partition(
    saved: dict[str, str] | None, here: dict[str, str] | None, *, same_ranks: bool
) -> tuple[str, str] | None:
    """Two partitions in words, or None where they are equal in effect.

    For other ranks a partition is another one of necessity: its kind alone is compared.
    """
    if saved is None or here is None:
        equal = saved is here
    else:
        part = "digest" if same_ranks else "kind"
        equal = saved[part] == here[part]
    return None if equal else (_partition_text(saved), _partition_text(here))


def _groups(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Settings of an optimizer; a list of them where it has several groups."""
    groups = [
        {name: _value(value) for name, value in group.items() if name not in _PARAMETERS}
        for group in optimizer.param_groups
    ]
    if len(groups) == 1:
        return groups[0]
    names = dict.fromkeys(name for group in groups for name in group)
    return {name: [group.get(name) for group in groups] for name in names}


def _described(value: Any, depth: int = 0, *, private: bool = False) -> Described:
    """An object by its class and its attributes; private ones where they are settings too."""
    kept = {
        name: _value(one, depth + 1, private=private)
        for name, one in getattr(value, "__dict__", {}).items()
        if (private or not name.startswith("_"))
        and name not in _COUNTED
        and not isinstance(one, torch.optim.Optimizer)
    }
    return {"kind": type(value).__name__, "settings": kept}


def _value(value: Any, depth: int = 0, *, private: bool = False) -> Any:
    """A setting as plain content."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Tensor | np.ndarray):
        tensor = torch.as_tensor(value).detach().cpu()
        return tensor.item() if tensor.numel() == 1 else f"tensor {digest_of(tensor)}"
    if depth >= _DEPTH or isinstance(value, nn.Module | torch.optim.Optimizer | type):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, Mapping):
        return {str(name): _value(one, depth + 1, private=private) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_value(one, depth + 1, private=private) for one in value]
    if isinstance(value, partial):
        kept = {"function": value.func, "args": value.args, **value.keywords}
        return {"kind": "partial", "settings": _value(kept, depth + 1, private=private)}
    if isinstance(value, set | frozenset):
        return sorted(str(_value(one, depth + 1, private=private)) for one in value)
    name = getattr(value, "__name__", None)  # of a function
    return name if name is not None else _described(value, depth, private=private)


def _same(one: Any, two: Any) -> bool:
    """Whether two settings are alike; one that is not there is one that is off."""
    off = (one is None or one is False) and (two is None or two is False)
    return off or one == two or repr(one) == repr(two)  # not a number is like itself


def _text(described: Described | None, names: list[str] | None = None) -> str:
    """An object in words, with some of its settings, or with those that are not off."""
    if described is None:
        return "none"
    settings = described["settings"]
    shown = names
    if shown is None:
        shown = [n for n, v in settings.items() if n[0] != "_" and v is not None and v is not False]
    return f"{described['kind']}({', '.join(f'{n}={_short(settings.get(n))}' for n in shown)})"


def _short(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"kind", "settings"}:
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    return repr(value)


def _partition_text(terms: dict[str, str] | None) -> str:
    if terms is None:
        return "none"
    if terms["kind"] == "parts":
        return f"a vector of owners (digest {terms['digest'][:12]})"
    return repr(terms["kind"])
