"""Sums of the shards' gradients in the order of the shards, whoever holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from dtoolkit.training.averaging import average

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator
    from dtoolkit.training.recovery.shards import Shard, Shards

__all__ = ["pooled", "summed"]


def summed(
    comm: Communicator,
    owners: Sequence[int],
    held: Mapping[int, Shard],
    shards: Shards,
) -> list[torch.Tensor]:
    """Sum over all shards, on every rank: by slices, as all ranks do; collective.

    Parameters
    ----------
    comm : Communicator
    owners : sequence of int, one a shard
        Rank whose gradient is the one that counts.
    held : mapping of shard to Shard
        What this rank has.
    shards : Shards

    Returns
    -------
    list of torch.Tensor
        As :attr:`Shard.flats`, until the next sum.
    """
    own = [shard for shard, rank in enumerate(owners) if rank == comm.rank]
    with comm.phase("gradients"):
        for place, total in enumerate(shards.totals):
            rows = [held[shard].flats[place] for shard in own]
            _sum(comm, owners, rows, total, shards.summed)
    return shards.totals


def pooled(
    comm: Communicator,
    owners: Sequence[int],
    held: Mapping[int, Shard],
    shards: Shards,
    step: int,
) -> dict[str, torch.Tensor]:
    """Average of what the model's buffers became with each shard, by samples; collective."""
    own = [shard for shard, rank in enumerate(owners) if rank == comm.rank]
    order = torch.argsort(torch.tensor(_by_rank(owners, comm.size)))
    now = shards.buffers.copies()
    gathered = {}
    with comm.phase("buffers"):
        for name, value in now.items():
            mine = [held[shard].buffers[name] for shard in own]
            rows = torch.stack(mine) if mine else value.new_empty((0, *value.shape))
            gathered[name] = torch.cat(comm.all_gather_v(rows))[order]
    counts = shards.counts(step)
    sets = [{name: rows[i] for name, rows in gathered.items()} for i in range(len(counts))]
    return average(sets, counts, statistics=shards.buffers.statistics)


def _sum(
    comm: Communicator,
    owners: Sequence[int],
    rows: Sequence[torch.Tensor],
    out: torch.Tensor,
    summed: Callable[[Sequence[torch.Tensor]], torch.Tensor],
) -> None:
    places = torch.tensor_split(out, comm.size)
    cuts = [len(place) for place in places]
    split = [torch.tensor_split(row, comm.size) for row in rows]
    slices = [_rows([pieces[r] for pieces in split], out, cut) for r, cut in enumerate(cuts)]
    many = [sum(owner == rank for owner in owners) for rank in range(comm.size)]
    room = [out.new_empty((count, cuts[comm.rank])) for count in many]
    comm.all_to_all(slices, out=room, agreed=True)
    came = dict(
        zip(_by_rank(owners, comm.size), (row for block in room for row in block), strict=True)
    )
    total = summed([came[shard] for shard in range(len(owners))])
    comm.all_to_all([total] * comm.size, out=list(places), agreed=True)


def _rows(pieces: Sequence[torch.Tensor], like: torch.Tensor, length: int) -> torch.Tensor:
    """Slices of several shards as one message; a single one is sent from where it lies."""
    if len(pieces) == 1:
        return pieces[0].unsqueeze(0)
    return torch.stack(list(pieces)) if pieces else like.new_empty((0, length))


def _by_rank(owners: Sequence[int], size: int) -> list[int]:
    """Shards in the order in which they come from the ranks."""
    return [s for rank in range(size) for s, owner in enumerate(owners) if owner == rank]
