"""Hash tables of neurons: for each code the ids that have it, all of them or as many as fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.philox import seed_key
from dtoolkit.sparsity.spreading import spread

__all__ = ["POLICIES", "Buckets", "HashTables"]

POLICIES = ("fifo", "reservoir")
_DIRECT = 12  # bits up to which every code has an entry of its own in the directory


@dataclass(frozen=True)
class Buckets:
    """Sizes of the buckets that hold anything, over all tables.

    Attributes
    ----------
    count : int
        Buckets with one neuron or more.
    mean, largest : float, int
        Neurons of a bucket.
    dropped : int
        Entries that did not fit, over all tables; 0 for uncapped ones.
    """

    count: int
    mean: float
    largest: int
    dropped: int


class HashTables:
    """L tables in which neurons lie by their codes.

    Ids are inserted in ascending order. In a table they lie sorted by code, those of a code in the
    order of the bucket's slots, so that a bucket is a slice; a directory of the codes' highest bits
    says where to look for it. Uncapped tables hold every neuron once a table.

    Parameters
    ----------
    codes : int32 tensor or array, shape (tables, n)
        Code of each neuron in each table (:meth:`HashFamily.codes`), at least 0.
    bits : int
        Bits of a code, 1 to 30.
    capacity : int, optional
        Slots of a bucket; by default as many as are needed.
    policy : str
        What a full bucket does with one more: "fifo" lets it take the place of the one that came
        first; "reservoir" lets the m-th that comes take a slot with probability ``capacity / m``,
        drawn at random, so that any is kept with the same probability.
    seed : int
        Of the draws, which depend on the table and the neuron besides.

    Raises
    ------
    ValueError
        An argument makes no sense; codes do not fit into `bits`.
    """

    def __init__(
        self,
        codes: Any,
        *,
        bits: int,
        capacity: int | None = None,
        policy: str = "fifo",
        seed: int = 0,
    ) -> None:
        own = codes.detach().cpu().numpy() if isinstance(codes, torch.Tensor) else np.asarray(codes)
        own = np.ascontiguousarray(own, np.int32)
        check_capacity(capacity, policy)
        if own.ndim != 2 or not 1 <= bits <= 30:
            raise ValueError(
                f"codes has shape {own.shape}, bits={bits}: wanted (tables, n), and 1 to 30 bits"
            )
        if own.size and (own.min() < 0 or own.max() >> bits):
            raise ValueError(
                f"codes are from {own.min()} to {own.max()}: wanted 0 to {(1 << bits) - 1}"
            )
        self.bits, self.capacity, self.policy = bits, capacity, policy
        self.tables, self.neurons = own.shape
        self._build(own, seed)

    def _build(self, codes: NDArray[np.int32], seed: int) -> None:
        from dtoolkit.sparsity.hashing import table_kernels

        shape = codes.shape
        fitting = max(_DIRECT, self.neurons.bit_length() - 1)
        self.shift = self.bits - fitting if self.bits > fitting + 1 else 0
        entries = (1 << (self.bits - self.shift)) + 1
        self.directory = np.empty((self.tables, entries), np.int32)
        self.ids, self.sorted = np.empty(shape, np.int32), np.empty(shape, np.int32)
        spread(table_kernels.sort, self.tables, codes, self.bits, self.ids, self.sorted)
        self.sizes = np.full(self.tables, self.neurons, np.int64)
        if self.capacity is not None:
            low, high = seed_key(seed, "reservoir", domain="dtoolkit.sparsity")
            key = np.uint64(low | high << 32)
            drawn = self.policy == "reservoir"
            shared = (self.ids, self.sorted, self.sizes, self.capacity, drawn, key)
            spread(table_kernels.cap, self.tables, *shared)
        parts = (self.sorted, self.sizes, self.shift, self.directory)
        spread(table_kernels.direct, self.tables, *parts)

    def ranges(self, codes: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Where the bucket of each code begins and ends in ``ids``.

        Parameters
        ----------
        codes : int32 tensor or array, shape (tables, n)
            Codes of inputs.

        Returns
        -------
        begin, end : int32 arrays, shape (n, tables)
            Bucket of table t: ``ids[t, begin:end]``.
        """
        from dtoolkit.sparsity.hashing import table_kernels

        own = codes.detach().cpu().numpy() if isinstance(codes, torch.Tensor) else np.asarray(codes)
        own = np.ascontiguousarray(own, np.int32)
        if own.ndim != 2 or own.shape[0] != self.tables:
            raise ValueError(f"codes has shape {own.shape}: wanted ({self.tables}, n)")
        begin, end = (np.empty((own.shape[1], self.tables), np.int32) for _ in range(2))
        height = max(1, -(-own.shape[1] // 16))
        shared = (own, self.sorted, self.directory, self.shift, begin, end)
        spread(table_kernels.find, -(-own.shape[1] // height), height, *shared)
        return begin, end

    def bucket(self, table: int, code: int) -> NDArray[np.int32]:
        """Ids in a bucket, in the order of its slots."""
        codes = np.full((self.tables, 1), code, np.int32)
        begin, end = self.ranges(codes)
        return self.ids[table, begin[0, table] : end[0, table]]

    def buckets(self) -> Buckets:
        """Sizes of the buckets."""
        runs = [
            np.unique(row[:size], return_counts=True)[1]
            for row, size in zip(self.sorted, self.sizes, strict=True)
        ]
        sizes = np.concatenate(runs)
        return Buckets(
            count=len(sizes),
            mean=float(sizes.mean()) if len(sizes) else 0.0,
            largest=int(sizes.max(initial=0)),
            dropped=int(self.tables * self.neurons - self.sizes.sum()),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.ids.nbytes + self.sorted.nbytes + self.directory.nbytes

    def __repr__(self) -> str:
        room = "uncapped" if self.capacity is None else f"{self.capacity} a bucket, {self.policy}"
        return f"<HashTables: {self.neurons:,} neurons in {self.tables} tables, {room}>"


def check_capacity(capacity: int | None, policy: str) -> None:
    """Refuse what is no capacity or no policy.

    Raises
    ------
    ValueError
    """
    if capacity is not None and (
        isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1
    ):
        raise ValueError(f"capacity={capacity!r}: wanted 1 or more, or None")
    if policy not in POLICIES:
        raise ValueError(f"policy={policy!r}: wanted one of {', '.join(POLICIES)}")
