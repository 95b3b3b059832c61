"""Floating-point operations of each weight in one forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

__all__ = ["forward_flops", "run_once"]


def forward_flops(
    model: nn.Module, weights: Mapping[str, torch.Tensor], example_inputs: Any
) -> dict[str, float]:
    """Count the operations that use each weight while the model runs once, in evaluation mode.

    Parameters
    ----------
    model : torch.nn.Module
    weights : mapping of str to tensor
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments

    Returns
    -------
    dict of str to float
        A multiplication and an addition count as two. Dense: zeros are counted. NaN for a weight
        that no operation with a known count has used.
    """
    counter = _Counter({weight.untyped_storage().data_ptr(): n for n, weight in weights.items()})
    fast = torch.backends.mha.get_fastpath_enabled()
    # The fast path of attention is one fused operation without a known count.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with counter:
            run_once(model, example_inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return {name: counter.flops.get(name, float("nan")) for name in weights}


def run_once(model: nn.Module, example_inputs: Any) -> None:
    """Run a model in evaluation mode without gradients, and leave its modes as they were.

    Parameters
    ----------
    model : torch.nn.Module
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            if isinstance(example_inputs, Mapping):
                model(**example_inputs)
            elif isinstance(example_inputs, tuple | list):
                model(*example_inputs)
            else:
                model(example_inputs)
    finally:
        for module, training in modes:
            module.training = training


class _Counter(TorchDispatchMode):
    """Adds up operations by the storage of the weight that is among their arguments."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self.names = names
        self.flops: dict[str, float] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            for tensor in tree_leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor):
                    name = self.names.get(tensor.untyped_storage().data_ptr())
                    if name is not None:
                        number = count(*args, **(kwargs or {}), out_val=out)
                        self.flops[name] = self.flops.get(name, 0.0) + float(number)
        return out
