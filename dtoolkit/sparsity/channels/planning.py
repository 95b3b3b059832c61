"""Deciding which channels go: traced, chosen, tried out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import nn

from dtoolkit.sparsity.amounts import check_number, check_whole
from dtoolkit.sparsity.channels.choosing import Choice, choose, only, signatures
from dtoolkit.sparsity.channels.dependencies import OUTPUT, Dependencies, find_dependencies
from dtoolkit.sparsity.channels.graph import uncompiled
from dtoolkit.sparsity.channels.labels import Ids
from dtoolkit.sparsity.channels.plan import ChannelGroup, CutPlan, Kept, WholeWidth
from dtoolkit.sparsity.channels.trial import try_out

__all__ = ["plan_cuts"]


def plan_cuts(
    model: nn.Module,
    example_inputs: Any,
    *,
    threshold: float = 1e-4,
    keep: float | None = None,
    channels: Mapping[str, Iterable[int]] | None = None,
    multiple: int = 1,
    verify: bool = True,
) -> CutPlan:
    """Plan which channels of a model go; nothing is changed.

    Channels are followed through the operations that torch.export writes down, in evaluation and in
    training: shortcuts, concatenation, grouped and depthwise convolutions, flattening, heads.
    Channels that are added or multiplied with each other go together, when all weights that make
    and read them are dead (Lym et al., 2019: the union of what the layers need stays). What the
    model's output or input has, what a layer or group norm averages over, and what cannot be
    followed stays whole, and the plan names it.

    Parameters
    ----------
    model : torch.nn.Module
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments
        What the model is called with.
    threshold : float
        A channel is dead if no weight that makes or reads it is as large.
    keep : float, optional
        Share of the channels of each group that stays, in (0, 1], those with the largest norm; in
        place of `threshold`.
    channels : mapping of str to iterable of int, optional
        What goes, by name of a module or weight that makes it; in place of `threshold`.
    multiple : int
        Round the number of channels that stay up to a multiple in each group: kernels work on 8 or
        16 channels at a time, and odd numbers cost as much as more.
    verify : bool
        Try the plan out on a copy of the model, and keep whole what the model's code does not bear.
        Without, code that has written a width down fails after the cut, or computes something else.

    Returns
    -------
    CutPlan

    Raises
    ------
    TypeError
        The model is no module, or cannot be copied, or an argument is of another type.
    ValueError
        An argument is out of range, or a channel that is named has to stay.

    Notes
    -----
    Depends on weights, example shapes and arguments alone: workers with equal weights plan alike,
    without a message.
    """
    model = uncompiled(model)
    _check(model, threshold, keep, channels)
    named = None if channels is None else _positions(channels)
    if check_whole("multiple", multiple) < 1:
        raise ValueError(f"multiple={multiple}: wanted 1 or more")
    if not isinstance(verify, bool):
        raise TypeError(f"verify={verify!r}: wanted True or False")
    found = find_dependencies(model, example_inputs)
    if found.failure:
        if named:
            raise ValueError(f"channels: nothing can be cut, for {found.failure}")
        return CutPlan((), (), untraced=found.untraced, failure=found.failure)

    def chosen() -> Choice:
        return choose(
            model,
            found,
            threshold=threshold,
            keep=keep,
            channels=named,
            multiple=multiple,
        )

    choice = chosen()
    if verify and (fault := _fault(model, found, choice, example_inputs)):
        groups = list(signatures(found).values())
        for members in groups:  # which of them the model's code does not bear
            alone = _fault(model, found, only(model, found, choice, members), example_inputs)
            _hold(found, members, alone)
        choice = chosen()
        if fault := _fault(model, found, choice, example_inputs):
            for members in groups:
                _hold(found, members, fault)
            choice = chosen()
    return _plan(found, choice)


def _fault(model: nn.Module, found: Dependencies, choice: Choice, example_inputs: Any) -> str:
    """What goes wrong when a copy is cut; empty if nothing does."""
    plan = _plan(found, choice)
    return try_out(model, plan, example_inputs) if plan.cut else ""


def _hold(found: Dependencies, members: list[int], reason: str) -> None:
    if reason:
        found.reasons |= {one: reason for one in members if one not in found.reasons}


def _check(
    model: nn.Module,
    threshold: float,
    keep: float | None,
    channels: Mapping[str, Iterable[int]] | None,
) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r}: wanted a torch.nn.Module")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ValueError(
                f"model: {name!r} has no shape yet. Run one batch through the model first"
            )
    if keep is not None and channels is not None:
        raise ValueError("keep and channels: wanted one of them")
    check_number("threshold", threshold)
    if keep is not None:
        check_number("keep", keep)
    if keep is not None and not 0 < keep <= 1:
        raise ValueError(f"keep={keep}: wanted more than 0, and at most 1")
    if not threshold >= 0:
        raise ValueError(f"threshold={threshold}: wanted 0 or more")


def _positions(channels: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    """Positions by layer, which are gone through more than once."""
    if not isinstance(channels, Mapping):
        raise TypeError(f"channels={channels!r}: wanted a mapping, of positions by name of a layer")
    read = {}
    for name, positions in channels.items():
        if not isinstance(positions, Iterable):
            raise TypeError(f"channels[{name!r}]={positions!r}: wanted positions, such as [0, 3]")
        read[name] = [check_whole(f"channels[{name!r}]", one) for one in positions]
    return read


def _plan(found: Dependencies, choice: Choice) -> CutPlan:
    """What a choice means for layers and tensors."""
    kept: dict[str, Kept] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, dims in found.dims.items():
        stays = tuple(_staying(ids, choice) for ids in dims)
        if any(positions is not None for positions in stays):
            kept[name] = stays
            shapes[name] = _shape(dims)
    groups, whole = [], []
    for places, members in signatures(found).items():
        made = tuple(n for n, d in places if _makes(found, n, d))
        read = tuple(n for n, d in places if not _makes(found, n, d))
        reasons = dict.fromkeys(found.reasons[one] for one in members if one in found.reasons)
        if reasons:
            names = tuple(dict.fromkeys(made + read))
            whole.append(WholeWidth(names, len(members), "; ".join(reasons)))
        free = [one for one in members if one not in found.reasons]
        if free:
            cut = tuple(place for place, one in enumerate(free) if choice.gone[one])
            groups.append(ChannelGroup(made, read, len(free), cut))
    whole += _unread(found)
    return CutPlan(
        tuple(groups),
        tuple(whole),
        notes=tuple(dict.fromkeys(choice.notes)),
        untraced=found.untraced,
        kept=kept,
        shapes=shapes,
        depthwise=tuple(sorted(found.depthwise & set(kept))),
    )


def _unread(found: Dependencies) -> list[WholeWidth]:
    """Widths that a weight makes, and that no other was seen to read."""
    widths: dict[tuple[str, str], set[int]] = {}
    for name, dim in sorted(found.makers, key=lambda place: found.weights.index(place[0])):
        for one in set(found.dims[name][dim].ravel().tolist()):
            reason = found.reasons.get(one, "")
            if reason and OUTPUT not in reason and not found.useful[one]:
                widths.setdefault((name, reason), set()).add(one)
    return [WholeWidth((name,), len(sets), reason) for (name, reason), sets in widths.items()]


def _staying(ids: Ids, choice: Choice) -> Ids | None:
    gone = choice.gone[ids]
    if not gone.any():
        return None
    if ids.ndim == 1:
        return np.flatnonzero(~gone).astype(np.int64)
    return np.stack([np.flatnonzero(~row) for row in gone]).astype(np.int64)


def _shape(dims: list[Ids]) -> tuple[int, ...]:
    return tuple(ids.shape[-1] for ids in dims)


def _makes(found: Dependencies, name: str, dim: int) -> bool:
    return (name, dim) in found.makers
