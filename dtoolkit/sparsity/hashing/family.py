"""Families of hash functions: what SimHash and DWTA share, and how one is chosen by name.

A family has K x L hash functions. The K values of a table make one code, the first value in the
highest bits. Whoever computes them (NumPy, torch, a GPU, sparse or dense input, any batch) gets the
same codes to the bit: hash functions compare, or add whole numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from dtoolkit.philox import philox, seed_key
from dtoolkit.sparsity.citing import Cited

__all__ = ["FAMILIES", "HashFamily", "make_family", "random_words"]

FAMILIES: dict[str, type[HashFamily]] = {}
"""Families by name."""


class HashFamily(Cited, ABC):
    """K x L hash functions of vectors.

    Attributes
    ----------
    name : str
    in_features : int
        Length of the vectors, d.
    tables, hashes : int
        L and K.
    seed : int
        All functions come from it.
    width : int
        Bits of one function's value; a code has ``hashes * width``, at most 30.
    """

    name: ClassVar[str]
    width: ClassVar[int]
    least_features: ClassVar[int] = 1

    def __init__(self, in_features: int, *, tables: int, hashes: int, seed: int = 0) -> None:
        for name, value in (("tables", tables), ("hashes", hashes)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}: wanted a whole number, 1 or more")
        if in_features < self.least_features:
            raise ValueError(
                f"in_features={in_features}: family {self.name!r} wants {self.least_features} or "
                "more"
            )
        if hashes * self.width > 30:
            raise ValueError(
                f"hashes={hashes}: a code of family {self.name!r} has {self.width} bits a hash "
                f"function and 30 at most: wanted {30 // self.width} or fewer"
            )
        self.in_features, self.tables, self.hashes, self.seed = in_features, tables, hashes, seed

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        FAMILIES[cls.name] = cls

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.hashes * self.width

    @property
    def functions(self) -> int:
        """Hash functions in all."""
        return self.tables * self.hashes

    def codes(self, vectors: Any) -> torch.Tensor:
        """Codes of some vectors in every table.

        Parameters
        ----------
        vectors : tensor, array, or sparse matrix, shape (n, in_features)
            Dense (torch or NumPy), or rows of a SciPy sparse or torch sparse matrix; float32, or
            taken as such. A zero is a zero, stored or not.

        Returns
        -------
        int32 tensor, shape (tables, n)
            On the device of `vectors`.

        Raises
        ------
        ValueError
            `vectors` is of another shape.
        """
        rows = as_rows(vectors)
        if rows.ndim != 2 or rows.shape[1] != self.in_features:
            raise ValueError(
                f"vectors has shape {tuple(rows.shape)}: wanted (n, {self.in_features})"
            )
        return self._codes(rows)

    def values(self, vectors: Any) -> torch.Tensor:
        """Value of each hash function.

        Returns
        -------
        int32 tensor, shape (tables, hashes, n)
        """
        codes = self.codes(vectors)
        shifts = self.width * torch.arange(self.hashes - 1, -1, -1, device=codes.device)
        return (codes[:, None] >> shifts[None, :, None]).int() & ((1 << self.width) - 1)

    @abstractmethod
    def _codes(self, rows: torch.Tensor | scipy.sparse.csr_array) -> torch.Tensor: ...

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_features}, tables={self.tables}, "
            f"hashes={self.hashes}, seed={self.seed})"
        )


def make_family(
    family: Any, in_features: int, *, tables: int, hashes: int, seed: int = 0
) -> HashFamily:
    """Make a family of its name ("simhash", "dwta"), or take one that is there.

    Raises
    ------
    ValueError, TypeError
        There is none of that name; or the one given is for vectors of another length.
    """
    if isinstance(family, HashFamily):
        if family.in_features != in_features:
            raise ValueError(
                f"family is for vectors of {family.in_features}: wanted in_features={in_features}"
            )
        return family
    if not isinstance(family, str):
        raise TypeError(f"family={family!r}: wanted a name or a HashFamily")
    if family.lower() not in FAMILIES:
        raise ValueError(f"family={family!r}: wanted one of {', '.join(sorted(FAMILIES))}")
    return FAMILIES[family.lower()](in_features, tables=tables, hashes=hashes, seed=seed)


def as_rows(vectors: Any) -> torch.Tensor | scipy.sparse.csr_array:
    """Dense float32 rows as a tensor, sparse ones as SciPy CSR without stored zeros."""
    if isinstance(vectors, torch.Tensor) and vectors.layout == torch.strided:
        return vectors.detach().to(torch.float32).contiguous()
    if isinstance(vectors, torch.Tensor):
        own = vectors.detach().cpu().to_sparse_csr()
        parts = (own.values().numpy(), own.col_indices().numpy(), own.crow_indices().numpy())
        vectors = scipy.sparse.csr_array(parts, shape=tuple(own.shape))
    if scipy.sparse.issparse(vectors):
        rows = scipy.sparse.csr_array(vectors, dtype=np.float32, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        return rows
    return torch.from_numpy(np.ascontiguousarray(vectors, np.float32))


def random_words(rows: range, columns: int, seed: int, name: str) -> NDArray[np.int64]:
    """Whole numbers from 0 to 2**32 - 1, each from the seed, the name and its place alone."""
    down, across = torch.tensor(rows, dtype=torch.int64), torch.arange(columns)
    row, column = (x.contiguous() for x in torch.broadcast_tensors(down[:, None], across[None]))
    empty = torch.zeros_like(row)
    words = [row.clone(), column.clone(), empty, empty.clone()]
    return philox(words, seed_key(seed, name, domain="dtoolkit.sparsity"))[0].numpy()
