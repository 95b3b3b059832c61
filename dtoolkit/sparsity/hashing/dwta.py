"""DWTA: which of eight permuted features is the largest; empty bins borrow from others."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch

from dtoolkit.sparsity.hashing.family import HashFamily, random_words
from dtoolkit.sparsity.spreading import spread

__all__ = ["BIN", "DWTA"]

BIN = 8
_HEIGHT = 2048  # vectors of a chunk


class DWTA(HashFamily):
    """Densified winner-takes-all hashing.

    Permutations of the features are cut into bins of 8; the value of a hash function is the place
    (0 to 7) of the largest nonzero feature of its bin, the first of equal ones. A bin whose
    features are all zero is empty, and takes the value of another: bins are looked at in an order
    of its own (from a start, by a stride that shares no divisor with their number), the same for
    every vector, until one is not empty. A vector of zeros has the value 0 everywhere.

    Only comparisons: order is all that counts, and codes are exact on any device. Zeros never win,
    also over negative features, so that a vector has the same codes whether its zeros are stored
    or not.

    Parameters
    ----------
    in_features : int
        At least 8; where it is no multiple, each permutation leaves the rest out.
    tables, hashes : int
        L and K; at most 10 hash functions a table.
    seed : int
    """

    name: ClassVar[str] = "dwta"
    width: ClassVar[int] = 3
    least_features: ClassVar[int] = BIN
    citation = (
        "B. Chen and A. Shrivastava, Densified winner take all (WTA) hashing for sparse datasets, "
        "UAI 2018; as used by B. Chen et al., SLIDE, MLSys 2020"
    )

    def __init__(self, in_features: int, *, tables: int, hashes: int, seed: int = 0) -> None:
        super().__init__(in_features, tables=tables, hashes=hashes, seed=seed)
        bins = in_features // BIN
        rounds = math.ceil(self.functions / bins)
        words = random_words(range(rounds), in_features, seed, "dwta")
        orders = np.argsort(words, axis=1, kind="stable")[:, : bins * BIN]
        places = orders.reshape(rounds * bins, BIN)[: self.functions]
        self.places = torch.from_numpy(places.astype(np.int32))  # features of each bin, (K L, 8)
        number = self.functions
        strides = np.array([s for s in range(1, number + 1) if math.gcd(s, number) == 1], np.int64)
        drawn = random_words(range(number), 2, seed, "dwta, empty bins")
        starts = drawn[:, 0] % number
        self.donors = torch.from_numpy(
            np.stack([starts, strides[drawn[:, 1] % len(strides)]], axis=1).astype(np.int32)
        )  # start and stride of each bin's search, (K L, 2)

    def _codes(self, rows: Any) -> torch.Tensor:
        if isinstance(rows, torch.Tensor) and rows.device.type != "cpu":
            return self.codes_in_torch(rows)
        from dtoolkit.sparsity.hashing import kernels
        from dtoolkit.sparsity.hashing.bits import LANES

        count = rows.shape[0]
        codes = torch.empty(self.tables, count, dtype=torch.int32)
        shared = (self.places.numpy(), self.donors.numpy(), self.hashes, codes.numpy())
        chunks = -(-count // _HEIGHT)
        if isinstance(rows, torch.Tensor):
            height = _HEIGHT
            if chunks < 16:  # a batch of inputs: enough chunks for all threads
                height = max(LANES, -(-count // 16))
            spread(kernels.dense_codes, -(-count // height), height, rows.numpy(), *shared)
        else:
            parts = (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data)
            spread(kernels.sparse_codes, chunks, _HEIGHT, *parts, *self._inverse(), *shared)
        return codes

    def codes_in_torch(self, rows: torch.Tensor) -> torch.Tensor:
        """The same codes by torch's operations, on the device of `rows`.

        Parameters
        ----------
        rows : float32 tensor, shape (n, in_features)

        Returns
        -------
        int32 tensor, shape (tables, n)
        """
        absent = torch.where(rows == 0, -torch.inf, rows)
        device = rows.device
        place = torch.arange(BIN, device=device)
        shifts = self.width * torch.arange(self.hashes - 1, -1, -1, device=device)
        codes = torch.empty(self.tables, len(rows), dtype=torch.int32, device=device)
        height = max(1, (1 << 25) // (self.functions * BIN))
        for first in range(0, len(rows), height):
            bins = absent[first : first + height, self.places.to(device).long()]
            largest = bins.amax(2, keepdim=True)
            found = torch.where(bins == largest, place, BIN).amin(2)
            found = self._borrowed(found, largest.squeeze(2) == -torch.inf)
            parts = found.view(len(found), self.tables, self.hashes) << shifts
            codes[:, first : first + len(found)] = parts.sum(2).int().T
        return codes

    def _borrowed(self, found: torch.Tensor, empty: torch.Tensor) -> torch.Tensor:
        """Values of all bins, where `empty` ones have taken another's."""
        starts, strides = self.donors.to(found.device).long().unbind(1)
        missing, result = empty.clone(), torch.where(empty, 0, found)
        for turn in range(self.functions):
            if not missing.any():
                break
            donor = (starts + turn * strides) % self.functions
            filled = missing & ~empty[:, donor]
            result = torch.where(filled, found[:, donor], result)
            missing &= ~filled
        return result

    def _inverse(self) -> tuple[np.ndarray, np.ndarray]:
        """For each feature the bins it is in, as ``bin * 8 + place``: CSR over the features."""
        flat = self.places.numpy().ravel()
        order = np.argsort(flat, kind="stable")
        starts = np.searchsorted(flat[order], np.arange(self.in_features + 1))
        return starts.astype(np.int64), order.astype(np.int64)
