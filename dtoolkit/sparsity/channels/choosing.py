"""Which of the channels that may go do go: dead ones, small ones, or those named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dtoolkit.sparsity.channels.dependencies import Dependencies
from dtoolkit.sparsity.channels.labels import Ids

__all__ = ["Choice", "choose", "only", "signatures", "strengths"]

_INPUT_FIRST = (nn.modules.conv._ConvTransposeNd, nn.Embedding)


@dataclass(eq=False)
class Choice:
    """Sets of joined channels that go.

    Attributes
    ----------
    gone : bool array (sets,)
    notes : list of str
        What was to go and stays.
    """

    gone: NDArray[np.bool_]
    notes: list[str] = field(default_factory=list)


def strengths(
    model: nn.Module, found: Dependencies
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest magnitude, and sum of squares, of the weights that make or read each set.

    Computed with NumPy in one order, so that equal weights give equal values on every worker.
    """
    peak, power = np.zeros(found.sets), np.zeros(found.sets)
    tensors = dict(model.named_parameters(remove_duplicate=False))
    useful = found.useful
    bare = useful & ~found.columns  # where a bias alone would still have an effect
    for name, dims in found.dims.items():
        weight = tensors.get(name)
        counts = name in found.weights
        if weight is None or not (counts or any(bare[ids].any() for ids in dims)):
            continue
        values = np.abs(weight.detach().to("cpu", torch.float32).numpy())
        for dim, ids in enumerate(dims):
            if not useful[ids].any():
                continue
            many = ids.reshape(-1, ids.shape[-1])
            parts = values.reshape(len(many), -1, *values.shape[1:]) if dim else values[None]
            for row, part in zip(many, parts, strict=True):
                turned = np.moveaxis(part, dim, 0).reshape(len(row), -1)
                chosen = np.ones(len(row), bool) if counts else bare[row]
                np.maximum.at(peak, row[chosen], turned[chosen].max(axis=1, initial=0.0))
                squares = np.square(turned[chosen], dtype=np.float64).sum(axis=1)
                np.add.at(power, row[chosen], squares)
    return peak, power


def signatures(found: Dependencies) -> dict[tuple[tuple[str, int], ...], list[int]]:
    """Sets that the same dimensions of the same weights have, in the order of the model."""
    places: dict[int, list[tuple[str, int]]] = {}
    for name in found.weights:
        for dim, ids in enumerate(found.dims[name]):
            for one in dict.fromkeys(ids.ravel().tolist()):
                places.setdefault(one, []).append((name, dim))
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    useful = found.useful
    for one, where in places.items():
        if useful[one]:
            groups.setdefault(tuple(where), []).append(one)
    return groups


def choose(
    model: nn.Module,
    found: Dependencies,
    *,
    threshold: float,
    keep: float | None,
    channels: Mapping[str, Iterable[int]] | None,
    multiple: int = 1,
) -> Choice:
    """Decide what goes, so that every layer keeps a channel and equal parts stay equal.

    Parameters
    ----------
    model : torch.nn.Module
    found : Dependencies
    threshold : float
        Dead are channels all of whose weights are smaller, made and read.
    keep : float, optional
        In place of dead ones all go but this share of each group, those with the largest norm.
    channels : mapping, optional
        In place of dead ones those named: positions by layer.
    multiple : int
        What the number of channels that stay in a group is rounded up to.

    Raises
    ------
    ValueError
        A layer is not there, or its channels have to stay.
    """
    may = found.cuttable
    peak, power = strengths(model, found)
    if channels is not None:
        gone = _named(model, found, may, channels)
    elif keep is not None:
        gone = np.zeros(found.sets, bool)
        for members in signatures(found).values():
            free = np.array([one for one in members if may[one]], dtype=np.int64)
            for part in _parts(found, free):
                count = max(1, round(keep * len(part)))
                gone[part[np.argsort(-power[part], kind="stable")[count:]]] = True
    else:
        gone = may & (peak < threshold)
    choice = Choice(gone)
    groups = [np.array(members) for members in signatures(found).values()]
    changed = True
    while changed:
        for group in groups:
            _round_up(choice.gone, group, power, multiple)
        changed = _revived(found, choice, power)
    return choice


def only(model: nn.Module, found: Dependencies, choice: Choice, members: list[int]) -> Choice:
    """What goes of one group, had only that been chosen."""
    gone = np.zeros(found.sets, bool)
    gone[members] = choice.gone[members]
    alone = Choice(gone)
    _, power = strengths(model, found)
    while _revived(found, alone, power):
        pass
    return alone


def _round_up(
    gone: NDArray[np.bool_], members: Ids, power: NDArray[np.float64], multiple: int
) -> None:
    """Let as many more stay that the number in a group is a multiple."""
    more = -int((~gone[members]).sum()) % multiple
    _stay(gone, members, power, more)


def _stay(gone: NDArray[np.bool_], members: Ids, power: NDArray[np.float64], more: int) -> None:
    """Let the strongest of those that go stay."""
    out = members[gone[members]]
    gone[out[np.argsort(-power[out], kind="stable")[:more]]] = False


def _revived(found: Dependencies, choice: Choice, power: NDArray[np.float64]) -> bool:
    """Let channels stay where a layer would have none, or equal parts would become unequal."""
    gone, changed = choice.gone, False
    for name in found.weights:
        for ids in found.dims[name]:
            for row in ids.reshape(-1, ids.shape[-1]):
                if row.size and gone[row].all():
                    gone[row[np.argmax(power[row])]] = False
                    changed = True
                    choice.notes.append(f"{name}: all {row.size} channels were to go, one stays")
    for rows in found.balanced:
        want = max(int((~gone[row]).sum()) for row in rows)
        for row in rows:
            more = want - int((~gone[row]).sum())
            if more > 0:
                _stay(gone, row, power, more)
                changed = True
                where = next(
                    (n for n in found.weights for ids in found.dims[n] if np.isin(row, ids).all()),
                    "a view",
                )
                choice.notes.append(f"{where}: {more} more stay, so that its parts are equal")
    return changed


def _parts(found: Dependencies, free: Ids) -> Iterable[Ids]:
    """Channels of a group in its equal parts, the finest of them; or all in one."""
    best: Ids | None = None
    for rows in found.balanced:
        inside = np.isin(rows, free).all() and len(np.unique(rows)) == rows.size == len(free)
        if inside and (best is None or len(rows) > len(best)):
            best = rows
    return [free] if best is None else list(best)


def _named(
    model: nn.Module,
    found: Dependencies,
    may: NDArray[np.bool_],
    channels: Mapping[str, Iterable[int]],
) -> NDArray[np.bool_]:
    gone = np.zeros(found.sets, bool)
    for name, positions in channels.items():
        ids = _outputs(model, found, name)
        for position in positions:
            if not -len(ids) <= position < len(ids):
                raise ValueError(
                    f"channels[{name!r}]: {position} is none of its {len(ids)} channels"
                )
            one = int(ids[position])
            if not may[one]:
                reason = found.reasons.get(one, "no other layer reads it")
                raise ValueError(f"channels[{name!r}]: {position} has to stay: {reason}")
            gone[one] = True
    return gone


def _outputs(model: nn.Module, found: Dependencies, name: str) -> Ids:
    """Sets along the outputs of a layer, which may be called by its module or its weight."""
    modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
    weight = f"{name}.weight" if name in modules else name
    tensors = dict(model.named_parameters(remove_duplicate=False))
    first = next(
        (n for n in found.dims if weight in tensors and tensors.get(n) is tensors[weight]), None
    )
    if first is None:
        raise ValueError(
            f"channels[{name!r}]: wanted names of modules or weights that were traced, such as "
            f"{', '.join(found.weights[:4])}"
        )
    owner = modules.get(weight.rpartition(".")[0])
    return found.dims[first][1 if isinstance(owner, _INPUT_FIRST) else 0].ravel()
