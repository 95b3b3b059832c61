"""Whether an optimizer steps each element by itself, so that a rank can step a piece alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

__all__ = ["check_elementwise"]

_SHAPE, _CUT, _STEPS, _RATE = (4, 6), 7, 3, 0.01
_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-4}


def check_elementwise(optimizer: torch.optim.Optimizer, why: str) -> None:
    """Refuse an optimizer that looks over a whole tensor, by a trial.

    A small matrix is stepped as it is, and in two flat pieces with the same gradients. The
    optimizer is as it was afterwards.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
    why : str
        Who cannot use it, for the error.

    Raises
    ------
    ValueError
        The two differ, or it takes no flat piece.
    """
    kind = type(optimizer).__name__
    wanted = "wanted one that steps each element by itself, such as SGD, Adam or AdamW"
    for number, group in enumerate(optimizer.param_groups):
        if not group["params"]:
            continue
        like = group["params"][0]
        with _set_aside(optimizer):
            try:
                whole = _stepped(optimizer, number, like, [_SHAPE])
                cut = _stepped(optimizer, number, like, [(_CUT,), (_size() - _CUT,)])
            except Exception as error:  # optimizers of others run here
                raise ValueError(
                    f"optimizer: {kind} cannot step a flat piece of a tensor, which is what a rank "
                    f"of {why} holds ({error}); {wanted}"
                ) from error
        tolerance = _CLOSE.get(like.dtype, 0.05)
        if not torch.allclose(whole, cut, rtol=tolerance, atol=tolerance):
            raise ValueError(
                f"optimizer: {kind} looks over a whole tensor, of which a rank of {why} holds a "
                f"piece: pieces were stepped otherwise than the whole; {wanted}"
            )


def _size() -> int:
    return _SHAPE[0] * _SHAPE[1]


def _stepped(
    optimizer: torch.optim.Optimizer,
    number: int,
    like: torch.Tensor,
    shapes: list[tuple[int, ...]],
) -> torch.Tensor:
    """A tensor, in pieces of some shapes, after some steps of one of the optimizer's groups."""
    generator = torch.Generator().manual_seed(1)

    def drawn() -> list[torch.Tensor]:
        flat = torch.randn(_size(), generator=generator, dtype=torch.float64).to(like)
        sizes = [torch.Size(shape).numel() for shape in shapes]
        pieces = torch.split(flat, sizes)
        return [piece.clone().view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    values = [nn.Parameter(piece) for piece in drawn()]
    before = torch.cat([value.detach().reshape(-1) for value in values])
    optimizer.state = defaultdict(dict)
    for group in optimizer.param_groups:
        group["params"] = []
    group = optimizer.param_groups[number]
    group["params"] = values
    if not float(group["lr"]):  # a schedule warms up
        group["lr"] = _RATE
    for _ in range(_STEPS):
        for value, gradient in zip(values, drawn(), strict=True):
            value.grad = gradient
        optimizer.step()
    after = torch.cat([value.detach().reshape(-1) for value in values])
    if torch.equal(before, after):
        raise ValueError("it does not step what is in its param_groups")
    return after


@contextmanager
def _set_aside(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Put settings, parameters and state back as they were."""
    state = optimizer.state
    groups: list[dict[str, Any]] = [dict(group) for group in optimizer.param_groups]
    try:
        yield
    finally:
        optimizer.state = state
        for group, before in zip(optimizer.param_groups, groups, strict=True):
            group.clear()
            group.update(before)
