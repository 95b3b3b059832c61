"""What a trial on the client uses is as it was afterwards: a model may be the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

__all__ = ["untouched"]


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Put a model back as it was, also after an error.

    That is the content of parameters and buffers, their gradients, training mode, and what
    attributes its modules have; of a list or a dict among these, not what is in it.

    Parameters
    ----------
    model : nn.Module
    """
    tensors = [one for one in [*model.parameters(), *model.buffers()] if not is_lazy(one)]
    content = [(value, value.detach().clone(), value.requires_grad) for value in tensors]
    leaves = [value for value in tensors if value.is_leaf]
    grads = [
        (value, value.grad, None if value.grad is None else value.grad.clone()) for value in leaves
    ]
    attributes = [_attributes(module) for module in model.modules()]
    try:
        yield
    finally:
        for held, before in (pair for pairs in attributes for pair in pairs):
            held.clear()
            held.update(before)
        for value, then, learned in content:
            if value.is_leaf:
                value.requires_grad_(learned)
            _put_back(value.detach(), then)
        for value, grad, was in grads:
            value.grad = grad
            if grad is not None and was is not None:
                _put_back(grad.detach(), was)


def _attributes(module: nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Attributes of a module, and the tables of its tensors and parts, beside copies of them."""
    own = module.__dict__
    tables = [own.get(name) for name in ("_parameters", "_buffers", "_modules")]
    return [(one, dict(one)) for one in [own, *tables] if isinstance(one, dict)]


def _put_back(value: torch.Tensor, before: torch.Tensor) -> None:
    if not torch.equal(value, before):
        value.copy_(before)
