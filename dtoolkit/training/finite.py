"""What is not finite is found on the rank that made it, before anybody gets it or it is saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["all_finite", "check_gradients", "check_parameters", "penalty_gradients"]


def all_finite(values: Iterable[torch.Tensor]) -> bool:
    """Whether all numbers in some tensors, on whatever devices, are finite."""
    return all(bool(torch.isfinite(one).all()) for one in values)


def check_gradients(replica: Replica, step: int) -> None:
    """Refuse gradients that are not finite; one pass over them.

    Raises
    ------
    FloatingPointError
        The text names parameter, rank and step.
    """
    name = _first_bad([(name, value.grad) for name, value in replica.parameters])
    if name is not None:
        raise FloatingPointError(
            f"the gradient of {name} is not finite on rank {replica.rank} at step {step}"
        )


def penalty_gradients(
    replica: Replica, penalty: Any, step: int | None
) -> Sequence[torch.Tensor | None]:
    """Gradients of a task's penalty, one a learned parameter; None where it does not depend on it.

    Parameters
    ----------
    replica : Replica
    penalty : torch.Tensor
        What ``task.penalty(model)`` gave.
    step : int or None
        For the error; None where the update belongs to no step of this replica.

    Raises
    ------
    TypeError, ValueError
        The penalty is no scalar, or depends on nothing that is learned.
    FloatingPointError
        It is not finite, or its gradient is not: the text names parameter, rank and step.
    """
    if not isinstance(penalty, torch.Tensor):
        raise TypeError(f"task.penalty gave {type(penalty).__name__}: wanted a tensor of one value")
    if penalty.numel() != 1:
        raise ValueError(
            f"task.penalty gave a tensor of shape {tuple(penalty.shape)}: wanted one value, "
            "say its sum"
        )
    if not penalty.requires_grad:
        raise ValueError("task.penalty gave a value that depends on no learned parameter")
    where = f"on rank {replica.rank}" + ("" if step is None else f" at step {step}")
    grads = torch.autograd.grad(
        penalty, [value for _, value in replica.parameters], allow_unused=True
    )
    names = [name for name, _ in replica.parameters]
    name = _first_bad([("", penalty.detach()), *zip(names, grads, strict=True)])
    if name == "":
        raise FloatingPointError(f"the penalty is {float(penalty.detach())} {where}")
    if name is not None:
        raise FloatingPointError(f"the penalty's gradient of {name} is not finite {where}")
    return grads


def check_parameters(replica: Replica, model: Mapping[str, torch.Tensor], step: int) -> None:
    """Refuse a model whose learned parameters are not finite, before it is saved.

    Parameters
    ----------
    replica : Replica
    model : mapping
        Names to tensors: the model of all ranks, as a state dict.
    step : int
        Steps that are done.

    Raises
    ------
    FloatingPointError
        The text names the parameter and the step.
    """
    name = _first_bad([(name, model.get(name)) for name, _ in replica.parameters])
    if name is not None:
        raise FloatingPointError(f"{name} is not finite after {step} steps")


def _first_bad(values: Sequence[tuple[str, torch.Tensor | None]]) -> str | None:
    """Name of the first tensor in which something is not finite; one look at the device."""
    have = [(name, value) for name, value in values if value is not None and value.numel()]
    if not have:
        return None
    largest = torch._foreach_norm([value for _, value in have], float("inf"))
    bad = ~torch.isfinite(torch.stack([one.double() for one in largest]))
    return have[int(bad.nonzero()[0])][0] if bool(bad.any()) else None
