"""What an optimizer keeps of single weights: where it is, and how it begins.

Whatever an optimizer keeps in the shape of a weight (momentum, second moments, averages ...) is
taken to belong to it entry by entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

__all__ = ["check_optimizer", "restart", "state_tensors"]


def check_optimizer(optimizer: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse an optimizer whose state cannot be masked, or that steps another model.

    Raises
    ------
    TypeError
        It is no optimizer.
    ValueError
        It keeps no state by weight, or steps none of these weights.
    """
    if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "state"):
        raise TypeError(f"optimizer={optimizer!r}: wanted a torch.optim.Optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "optimizer: LBFGS keeps the history of all parameters in one vector, which cannot be "
            "masked by weight. Wanted one that keeps its state by parameter, such as SGD or Adam"
        )
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trained = [name for name, weight in weights.items() if weight.requires_grad]
    if trained and not any(id(weights[name]) in stepped for name in trained):
        raise ValueError(
            f"optimizer steps none of the model's sparse weights ({', '.join(trained[:4])} ...): "
            "it was made for another model, or for this one before it was copied"
        )


def state_tensors(
    optimizer: torch.optim.Optimizer, weight: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what the optimizer keeps in the shape of a weight, by its name in the state."""
    for name, value in (optimizer.state.get(weight) or {}).items():
        if isinstance(value, torch.Tensor) and value.dim() and value.shape == weight.shape:
            yield name, value


def restart(optimizer: torch.optim.Optimizer, weight: torch.Tensor, grown: torch.Tensor) -> None:
    """Give weights that have just grown the state that the optimizer starts with.

    That is 0 (what :func:`dtoolkit.sparsity.masks.erase` left), but for the step sizes of Rprop and
    the sum of Adagrad.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
    weight : tensor
    grown : bool tensor, shape of the weight
    """
    for name, value in state_tensors(optimizer, weight):
        setting = None
        if isinstance(optimizer, torch.optim.Rprop) and name == "step_size":
            setting = "lr"
        elif isinstance(optimizer, torch.optim.Adagrad) and name == "sum":
            setting = "initial_accumulator_value"
        if setting is not None:
            value.masked_fill_(grown, float(_group(optimizer, weight)[setting]))


def _group(optimizer: torch.optim.Optimizer, weight: torch.Tensor) -> dict[str, Any]:
    """The group of parameters that a weight is in."""
    return next(
        group for group in optimizer.param_groups if any(p is weight for p in group["params"])
    )
