"""A quick fingerprint of what a rank holds: one pass over memory, and a flipped bit changes it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["fingerprint", "held_by", "tensors_of"]


def fingerprint(replica: Replica) -> int:
    """A number of 63 bits for parameters, buffers and the optimizer's state.

    The words of each tensor are added as integers modulo 2**64, which one flipped bit changes for
    certain and several almost always; it is no digest of the content (an exchange of two words
    does not show).
    """
    sums = [_sum(tensor) for _, tensor in tensors_of(replica)]
    if not sums:
        return 0
    told = torch.stack(sums).cpu().numpy().tobytes()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little") >> 1


def tensors_of(replica: Replica) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of all that ranks must hold alike, the real ones."""
    for name, tensor in replica.model.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor):
            yield f"model.{name}", tensor.detach()
    names = {id(value): name for name, value in replica.parameters}
    for group in replica.optimizer.param_groups:
        for parameter in group["params"]:
            for key, kept in replica.optimizer.state.get(parameter, {}).items():
                if isinstance(kept, torch.Tensor):
                    yield f"optimizer.{names.get(id(parameter), 'unnamed')}.{key}", kept.detach()


def held_by(replica: Replica, what: str) -> dict[str, torch.Tensor]:
    """The real tensors of a rank's ``"parameters"`` (buffers too) or ``"optimizer"``, by name."""
    prefix = "model." if what == "parameters" else "optimizer."
    found = ((name, tensor) for name, tensor in tensors_of(replica) if name.startswith(prefix))
    return {name.removeprefix(prefix): tensor for name, tensor in found}


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    for dtype, size in ((torch.int64, 8), (torch.int32, 4)):
        if not flat.numel() % size and not flat.storage_offset() % size:
            return flat.view(dtype).sum(dtype=torch.int64)
    return flat.sum(dtype=torch.int64)
