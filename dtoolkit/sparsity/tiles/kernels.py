"""Which sparse kernels a layer could run."""

from __future__ import annotations

import torch
from torch import nn

from dtoolkit.sparsity.tiles.execution import Execution
from dtoolkit.sparsity.tiles.semi_structured import why_not_semi_structured

__all__ = ["layer_kernels"]

_WORTH = 0.95  # share of a weight from which on leaving out the rest is not worth a try


def layer_kernels(module: nn.Module, execution: Execution) -> tuple[list[str], str]:
    """Name the sparse kernels for a layer with a mask.

    Parameters
    ----------
    module : torch.nn.Linear or torch.nn.Conv2d
    execution : Execution

    Returns
    -------
    list of str
        The most promising first.
    str
        Why there is none, or none but these.
    """
    mask = module.get_buffer("weight_mask")
    if isinstance(module, nn.Conv2d):
        return _of_convolution(module, mask, execution)
    why_not = why_not_semi_structured(module.get_parameter("weight"), mask)
    kernels = [] if why_not else ["semi-structured"]
    multiplied = execution.layout(mask).multiplied
    if multiplied < _WORTH:
        kernels.append("tiles")
    return kernels, f"tiles would multiply {multiplied:.0%} of the weight, and {why_not}"


def _of_convolution(
    module: nn.Conv2d, mask: torch.Tensor, execution: Execution
) -> tuple[list[str], str]:
    if module.groups != 1:
        return [], "no kernel for grouped convolutions"
    if execution.dense_gradient:
        return [], "no kernel for convolutions with dense_gradient"
    kernels = []
    by_channel = mask.flatten(2).any(2)
    if not bool(by_channel.any(0).all()) or not bool(by_channel.any(1).all()):
        kernels.append("channels")
    multiplied = execution.layout(mask).multiplied
    if multiplied < _WORTH and module.padding_mode == "zeros" and isinstance(module.padding, tuple):
        kernels.append("tiles")
    return kernels, f"no channel is dropped whole, tiles would multiply {multiplied:.0%}"
