"""Two of four on CUDA: the sparse tensor cores of NVIDIA's GPUs, through PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from dtoolkit.sparsity.tiles.execution import Execution

__all__ = ["semi_structured_linear", "why_not_semi_structured"]


def why_not_semi_structured(weight: torch.Tensor, mask: torch.Tensor) -> str:
    """Say why a weight cannot run on sparse tensor cores; empty if it can.

    Parameters
    ----------
    weight : tensor, shape (outputs, inputs)
    mask : bool tensor of that shape

    Returns
    -------
    str
    """
    if mask.dim() != 2 or mask.shape[1] % 4 or int(mask.view(-1, 4).sum(1).max()) > 2:
        return "mask is not 2:4 along the inputs"
    if weight.device.type != "cuda":
        return f"no 2:4 kernel on {weight.device.type}"
    if weight.dtype not in (torch.float16, torch.bfloat16):
        return f"no 2:4 kernel for {str(weight.dtype).removeprefix('torch.')}"
    if weight.shape[0] % 32 or weight.shape[1] % 64:
        return "2:4 kernels want multiples of 32 outputs and 64 inputs"
    return ""


def semi_structured_linear(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    mask: torch.Tensor,
    execution: Execution,
) -> torch.Tensor:
    """Multiply as a linear layer would, the forward product on sparse tensor cores.

    The backward products are dense: the transposed weight is not 2:4.

    Parameters
    ----------
    inputs : tensor, shape (..., inputs)
    weight : tensor, shape (outputs, inputs), float16 or bfloat16 on CUDA
    bias : tensor, shape (outputs,), or None
    mask : bool tensor, shape of the weight
    execution : Execution
        Keeps the compressed weight where weights are frozen.

    Returns
    -------
    tensor, shape (..., outputs)
    """
    out: torch.Tensor
    if execution.frozen and not torch.is_grad_enabled():
        compressed = execution.kept("compressed", (weight, mask), lambda: _compress(weight, mask))
        return functional.linear(inputs, compressed, bias)
    out = _SemiStructured.apply(inputs, weight, bias, mask, execution.dense_gradient)
    return out


def _compress(weight: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.sparse.to_sparse_semi_structured(weight.detach().masked_fill(~mask, 0))


class _SemiStructured(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        mask: torch.Tensor,
        dense_gradient: bool,
    ) -> torch.Tensor:
        ctx.save_for_backward(inputs, weight, mask)
        ctx.dense_gradient = dense_gradient
        return functional.linear(inputs, _compress(weight, mask), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, weight, mask = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        for_inputs = for_weight = for_bias = None
        if ctx.needs_input_grad[0]:
            for_inputs = gradient @ weight.masked_fill(~mask, 0)
        if ctx.needs_input_grad[1]:
            for_weight = rows.t() @ inputs.reshape(-1, inputs.shape[-1])
            if not ctx.dense_gradient:
                for_weight.masked_fill_(~mask, 0)
        if ctx.needs_input_grad[2]:
            for_bias = rows.sum(0)
        return for_inputs, for_weight, for_bias, None, None
