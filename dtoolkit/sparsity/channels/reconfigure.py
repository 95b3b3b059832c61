"""Cutting dead channels out of a model in the middle of its training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from dtoolkit.sparsity.channels.applying import carry_out
from dtoolkit.sparsity.channels.graph import uncompiled
from dtoolkit.sparsity.channels.planning import plan_cuts
from dtoolkit.sparsity.channels.report import Reconfiguration, model_bytes, sizes

__all__ = ["reconfigure"]


def reconfigure(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    example_inputs: Any,
    *,
    threshold: float = 1e-4,
    keep: float | None = None,
    channels: Mapping[str, Iterable[int]] | None = None,
    multiple: int = 1,
    verify: bool = True,
) -> Reconfiguration:
    """Cut dead channels out of a model and out of what its optimizer keeps, in place.

    Training goes on with smaller dense layers: the output in evaluation mode, and what the next
    step makes of the weights that are left, are those of the model with the same channels set to
    zero, to rounding. Weights, biases, batch norm's parameters and running statistics, masks of a
    Sparsifier, gradients and the optimizer's state are cut; parameters stay the same objects in the
    same groups, frozen ones frozen. All or nothing: after an error nothing has changed.

    Parameters
    ----------
    model : torch.nn.Module
        Not wrapped for data-parallel training: give the module inside, and wrap it again.
    optimizer : torch.optim.Optimizer or None
        Any that keeps its state in the shape of the parameters.
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments
        What the model is called with; a small batch will do.
    threshold, keep, channels, multiple, verify
        As of :func:`plan_cuts`.

    Returns
    -------
    Reconfiguration

    Raises
    ------
    ValueError
        An argument is out of range, a channel that is named has to stay, the model is wrapped, or
        the optimizer keeps something that cannot be cut.
    TypeError
        Model or optimizer is none, or the model cannot be copied for the trial.

    Notes
    -----
    S. Lym et al., "PruneTrain: fast neural network training by dynamic sparse model
    reconfiguration", SC 2019. Where all channels of a layer are dead, one stays (torch's
    convolutions need one), and the report says so. Copies of parameters elsewhere (averages,
    schedules of one's own) are not known here. N:M masks are cut as well, and may keep another
    pattern then: make the Sparsifier again.
    """
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer={optimizer!r}: wanted a torch.optim.Optimizer or None")
    model = uncompiled(model)
    plan = plan_cuts(
        model,
        example_inputs,
        threshold=threshold,
        keep=keep,
        channels=channels,
        multiple=multiple,
        verify=verify,
    )
    before, numbers = sizes(model, example_inputs), _count(model)
    held = model_bytes(model, optimizer)
    undo = carry_out(model, optimizer, plan)
    try:
        after = sizes(model, example_inputs) if plan.kept else before
    except BaseException:
        undo()
        raise
    return Reconfiguration(
        plan, before, after, (numbers, _count(model)), (held, model_bytes(model, optimizer))
    )


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
