"""Which samples a step uses, and which rank computes them.

A global batch is drawn from the whole set, by seed and epoch alone: the number of ranks changes who
computes a sample, never which samples a step uses.
"""

from __future__ import annotations

from typing import Any

import torch

from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.errors import LayoutError
from dtoolkit.training.seeds import number

__all__ = ["Sampler"]


class Sampler:
    """Global batches of a training set, cut into micro-batches and shared out among ranks.

    Every epoch is a new order of all samples, cut into batches; the last one may be smaller and is
    used. A batch is cut into ``accumulate`` micro-batches, as ``torch.tensor_split`` does, and each
    of these is shared out.

    Parameters
    ----------
    samples : int
        Samples in the set.
    batch : int
        Samples of a global batch; more than there are means all.
    seed : int
    ranks : int
    partition : "block", "cyclic", Layout or array of int, optional
        Who computes each sample: shares may differ in size, and be empty. By default a micro-batch
        is cut as ``torch.tensor_split`` does.
    accumulate : int
        Micro-batches a batch.
    shards : int, optional
        Cut each micro-batch into so many shards first, whatever the number of ranks, and give each
        rank a run of whole shards; excludes `partition`.

    Attributes
    ----------
    steps_per_epoch : int

    Raises
    ------
    ValueError
        A count is below 1, or more micro-batches than samples are asked for.
    LayoutError
        The partition does not fit.
    """

    def __init__(
        self,
        samples: int,
        batch: int,
        *,
        seed: int,
        ranks: int,
        partition: Any = None,
        accumulate: int = 1,
        shards: int | None = None,
    ) -> None:
        self.samples = _count("samples", samples)
        self.size = min(_count("batch", batch), self.samples)
        self.seed = int(seed)
        self.ranks = _count("ranks", ranks)
        self.accumulate = _count("accumulate", accumulate)
        self.shards = None if shards is None else _count("shards", shards)
        if self.accumulate > self.size:
            raise ValueError(
                f"accumulate={accumulate}: a batch of {self.size} samples cannot be cut into so "
                "many micro-batches"
            )
        if partition is not None and shards is not None:
            raise ValueError(
                "partition= and shards= exclude each other: shards are cut from the batch, "
                "whoever owns its samples"
            )
        self._owners: torch.Tensor | None = None
        if partition is not None:
            try:
                layout = as_layout(partition, self.samples, self.ranks, name="partition")
            except LayoutError as error:
                raise LayoutError(f"partition= of the samples: {error}") from None
            self._owners = torch.from_numpy(layout.owner(range(self.samples)).copy())
        self.steps_per_epoch = -(-self.samples // self.size)
        self._order: tuple[int, torch.Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def epoch(self, step: int) -> int:
        """Epoch of a step, from 0."""
        return step // self.steps_per_epoch

    def batch(self, step: int) -> torch.Tensor:
        """Samples of a step: int64 ids, in the order of the batch."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = (epoch, _shuffled(self.samples, number(self.seed, "epoch", epoch)))
        return self._order[1][place * self.size : (place + 1) * self.size]

    def micro_batches(self, step: int) -> list[torch.Tensor]:
        """The batch of a step, cut into micro-batches."""
        return list(torch.tensor_split(self.batch(step), self.accumulate))

    def share(self, step: int, rank: int) -> list[torch.Tensor]:
        """What a rank computes of each micro-batch of a step: int64 ids, maybe none."""
        micros = self.micro_batches(step)
        if self._owners is not None:
            return [ids[self._owners[ids] == rank] for ids in micros]
        if self.shards is not None:
            mine = [number for number, _ in self.shares(step, rank)]
            return [
                torch.cat(
                    [ids.new_empty(0), *(torch.tensor_split(ids, self.shards)[s] for s in mine)]
                )
                for ids in micros
            ]
        return [torch.tensor_split(ids, self.ranks)[rank] for ids in micros]

    def shares(self, step: int, rank: int) -> list[tuple[int, list[torch.Tensor]]]:
        """The shards that a rank computes: number of each, and its ids of each micro-batch.

        Raises
        ------
        ValueError
            The sampler was made without ``shards=``.
        """
        if self.shards is None:
            raise ValueError("shares: this sampler has no shards; make it with shards=")
        mine = Layout.block(self.shards, self.ranks).indices(rank)
        cut = [torch.tensor_split(ids, self.shards) for ids in self.micro_batches(step)]
        return [(int(shard), [pieces[shard] for pieces in cut]) for shard in mine]

    def planned(self, step: int, rank: int | None = None) -> int:
        """Samples of a step, of all ranks or of one."""
        if rank is None:
            return len(self.batch(step))
        return sum(len(ids) for ids in self.share(step, rank))

    def has_samples(self, rank: int) -> bool:
        """Whether a rank ever computes a sample."""
        if self._owners is not None:
            return bool((self._owners == rank).any())
        largest = -(-self.size // self.accumulate)
        if self.shards is None:
            return rank < largest
        # A shard of the largest micro-batch is empty only from `largest` on.
        return any(shard < largest for shard in Layout.block(self.shards, self.ranks).indices(rank))


def _shuffled(samples: int, seed: int) -> torch.Tensor:
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed))


def _count(name: str, value: Any) -> int:
    whole = hasattr(type(value), "__index__") and not isinstance(value, bool)
    if not whole or int(value) < 1:
        raise ValueError(f"{name}={value!r}: wanted an integer of at least 1")
    return int(value)
