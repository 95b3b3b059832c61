"""A plan tried out on a copy of the model, with random weights in which every channel counts.

What a model's own code has written down (a number of heads, a width in a view, a scale computed
once) cannot be seen in its operations. So a plan is believed when the copy, cut, gives what it gave
when the same channels were zero.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from dtoolkit.sparsity.channels.applying import apply_cuts, zero_cuts
from dtoolkit.sparsity.channels.graph import arguments, in_mode
from dtoolkit.sparsity.channels.plan import CutPlan

__all__ = ["try_out"]

_SEED = 20190901


def try_out(model: nn.Module, plan: CutPlan, example_inputs: Any) -> str:
    """Cut a copy, and compare it with the same copy whose channels were set to zero.

    Parameters
    ----------
    model : torch.nn.Module
        Left as it is.
    plan : CutPlan
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments

    Returns
    -------
    str
        What went wrong; empty if nothing did.

    Raises
    ------
    TypeError
        The model cannot be copied.
    """
    copied, inputs, trained = _prepared(model, example_inputs)
    own = copy.deepcopy(copied)
    _randomise(copied)
    zero_cuts(copied, None, plan)
    before = _outputs(copied, inputs, training=False)
    if not before:
        return "the model gives no tensor by which a cut could be verified"
    if not all(value.isfinite().all() for value in before):  # the model bears its own weights alone
        copied = own
        zero_cuts(copied, None, plan)
        before = _outputs(copied, inputs, training=False)
    try:
        apply_cuts(copied, None, plan)
        after = _outputs(copied, inputs, training=False)
        if trained:
            _outputs(copied, inputs, training=True)
    except Exception as error:  # code of the model, which may raise anything
        text = str(error).strip().split("\n")[0][:160]
        return f"the model's code fixes it ({type(error).__name__}: {text})"
    return _difference(before, after)


def _prepared(model: nn.Module, example_inputs: Any) -> tuple[nn.Module, Any, bool]:
    """A copy, in double precision if the model's code bears that; inputs; whether it trains."""
    copied = _copy(model)
    try:
        double, inputs = copy.deepcopy(copied).double(), tree_map(_wide, example_inputs)
        return double, inputs, _runs(double, inputs)
    except Exception:  # some code wants its own precision
        return copied, example_inputs, _runs(copied, example_inputs)


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # modules of others run here
        raise TypeError(
            f"model ({type(model).__name__}) cannot be copied, which a trial of the cut needs "
            f"({type(error).__name__}: {error}). verify=False cuts without one"
        ) from error


def _wide(value: Any) -> Any:
    real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if real else value


def _runs(model: nn.Module, inputs: Any) -> bool:
    """Run the model in evaluation; whether it runs in training too, with this example."""
    _outputs(model, inputs, training=False)
    try:
        _outputs(model, inputs, training=True)
    except Exception:  # batch norm refuses a batch of one, say
        return False
    return True


@torch.no_grad()
def _outputs(model: nn.Module, inputs: Any, *, training: bool) -> list[torch.Tensor]:
    positional, named = arguments(inputs)
    with in_mode(model, training=training), torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        return _tensors(model(*positional, **named))


def _tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in what a model gives: a tensor, a container, or an object with attributes."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        value = vars(value).values() if hasattr(value, "__dict__") else ()
    return [tensor for one in value for tensor in _tensors(one)]


@torch.no_grad()
def _randomise(model: nn.Module) -> None:
    """Weights of a size that keeps values in the range where they count."""
    generator = torch.Generator().manual_seed(_SEED)
    for parameter in model.parameters():
        if not parameter.is_floating_point():
            continue
        drawn = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            drawn *= (2.0 / max(1, parameter[0].numel())) ** 0.5
        else:
            drawn = 0.3 * drawn + torch.rand(parameter.shape, generator=generator)
        parameter.copy_(drawn)


def _difference(before: list[torch.Tensor], after: list[torch.Tensor]) -> str:
    if [v.shape for v in before] != [v.shape for v in after]:
        return "the model's output would have another shape"
    for one, other in zip(before, after, strict=True):
        if not one.is_floating_point() or not one.numel():
            continue
        exact = one.dtype == torch.float64
        allowed = 1e-8 if exact else 1e-3 if one.dtype == torch.float32 else 5e-2
        scale = one.abs().nan_to_num(0, 0, 0).max().clamp(min=1e-30)
        if not torch.allclose(one / scale, other / scale, rtol=0, atol=allowed, equal_nan=True):
            return "the model's output would be another one: its code computes with the width"
    return ""
