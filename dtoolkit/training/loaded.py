"""Sets of examples as ranks load them: under the seed, and the same on all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.errors import ReplicaMismatch
from dtoolkit.training.seeds import seeded
from dtoolkit.training.task import Examples, load_examples

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["COMPARED", "digest", "load"]

COMPARED = 128 * 2**20
"""Bytes of a set that are compared: all of a smaller one, evenly spaced samples of a larger one."""


def load(replica: Replica, name: str) -> Examples:
    """A set of the replica's task, on its device; collective where it is a callable.

    A callable is called under the seed and `name`, and digests of what it gave are compared.

    Parameters
    ----------
    replica : Replica
        Of which task, settings, communicator and device are used.
    name : "train" or "test"

    Raises
    ------
    ReplicaMismatch
        On every rank, if a callable has loaded other examples on one than on rank 0.
    TypeError
        It is no set of examples.
    """
    source = getattr(replica.task, name)
    compared = replica.size > 1 and callable(source)
    with seeded(replica.settings.seed, name, device=replica.device):
        examples = load_examples(source, name)
        mine = digest(examples) if compared else b""
    if compared:
        with replica.comm.phase("comparison"):
            said = replica.comm.all_gather(torch.frombuffer(bytearray(mine), dtype=torch.uint8))
        others = [rank for rank in range(replica.size) if not torch.equal(said[rank], said[0])]
        if others:
            raise ReplicaMismatch(fields=[f"examples.{name}"], ranks=others, step=0)
    there: Examples = examples.to(replica.device)
    return there


def digest(examples: Examples, *, most: int = COMPARED) -> bytes:
    """A digest of a set's length, shapes, dtypes and content.

    Parameters
    ----------
    examples : Examples
    most : int
        Bytes that are looked at. Of a larger set these are evenly spaced samples, the first and
        the last among them: a difference in others alone is not seen.

    Returns
    -------
    bytes
        16 of them (BLAKE2b).
    """
    count = len(examples)
    row = sum(one.nbytes for one in _tensors(examples.take(torch.zeros(1, dtype=torch.int64))))
    fit = max(2, most // max(1, row))
    ids = torch.arange(count)
    if count > fit:
        ids = torch.linspace(0, count - 1, fit, dtype=torch.float64).round().long()
    total = hashlib.blake2b(str(count).encode(), digest_size=16)
    for part in torch.split(ids, max(1, fit // 16)):  # of which copies are small
        for one in _tensors(examples.take(part)):
            total.update(f"{tuple(one.shape)} {one.dtype}".encode())
            content = one.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            total.update(content.numpy().data)
    return total.digest()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of what a set gives, which a person's own may give in containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
