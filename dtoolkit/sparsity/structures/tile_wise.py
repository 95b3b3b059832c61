"""Tile-wise: outputs in groups, and in each group whole segments of one input."""

from __future__ import annotations

import math

import torch

from dtoolkit.sparsity.selection import largest
from dtoolkit.sparsity.structures.base import Shape, Structure
from dtoolkit.sparsity.structures.n_of_m import NofM
from dtoolkit.sparsity.structures.segments import fill, norms, segments, spread_segments

__all__ = ["TEW", "TW1", "TW2", "VW", "TileWise"]

_SOURCE = (
    "C. Guo et al., Accelerating sparse DNN models without hardware-support via tile-wise "
    "sparsity, SC 2020"
)


class TileWise(Structure):
    """Tiles of outputs that each look at inputs of their own, so that dense kernels can run them.

    A weight is seen as outputs x inputs (of a convolution: output channels x all that one output
    sees). Outputs in groups of `width` are a tile, and what is kept or dropped is a segment: the
    weights from one input to a tile, by its l2 norm over its length. With `columns`, whole outputs
    go first (a share of 1 - sqrt(density) of them; columns in the paper, whose matrices are inputs
    x outputs), tiles are made of those that survive, and segments go for the rest. With `restore`,
    that share of all weights is taken off the tiles and given to the best single weights elsewhere.

    What counts are weights: segments are kept down to the one that comes nearest to the asked
    number, whatever the width of the last tile; with single weights the number is met exactly.

    Guo et al., "Accelerating sparse DNN models without hardware-support via tile-wise sparsity", SC
    2020, sections IV and V.

    Parameters
    ----------
    width : int
        Outputs of a tile, G in the paper.
    columns : bool
        Whether whole outputs are dropped first.
    restore : float
        Share of all weights that are kept one by one, delta in the paper; at most half of what is
        kept at all.

    Raises
    ------
    ValueError
        A width below 1, or a share outside 0 to 1.

    Notes
    -----
    Methods give it scores of single weights, which it pools itself; random integers are added
    modulo 2^32, which keeps them uniform. Where masks may only shrink (gradual pruning) and outputs
    go, tiles move over the outputs that are left, and segments may keep holes from before.
    """

    citation = _SOURCE

    def __init__(self, width: int = 128, *, columns: bool = True, restore: float = 0.0) -> None:
        if width < 1:
            raise ValueError(f"width={width}: wanted 1 output or more in a tile")
        if not 0 <= restore < 1:
            raise ValueError(f"restore={restore}: wanted a share of the weights, from 0 to below 1")
        self.width, self.columns, self.restore = width, columns, restore

    @property
    def name(self) -> str:
        """Such as ``"tw2-128"``, ``"tew-128+5%"``; ``"tew1-128+5%"`` where no outputs go first."""
        if self.restore:
            return f"tew{'' if self.columns else '1'}-{self.width}+{100 * self.restore:g}%"
        return f"tw{2 if self.columns else 1}-{self.width}"

    def arrangement(self, shape: Shape) -> Shape:
        """Scores are of single weights."""
        return shape

    def fold(self, tensor: torch.Tensor) -> torch.Tensor:
        """One element a unit."""
        return tensor.unsqueeze(-1)

    def spread(self, units: torch.Tensor, shape: Shape) -> torch.Tensor:
        """The units are the elements."""
        return units

    def pool(self, values: torch.Tensor) -> torch.Tensor:
        """Absolute values."""
        return values.abs()

    def slack(self, shape: Shape) -> int:
        """A segment, unless single weights fill up what is missing."""
        return 0 if self.restore else min(self.width, shape[0])

    def keep(
        self,
        scores: torch.Tensor,
        shape: Shape,
        density: float,
        among: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Keep the best outputs, of their segments the best, and the best single weights.

        Parameters
        ----------
        scores : tensor, shape of the weight
        shape : tuple of int
        density : float
        among : bool tensor, shape of the weight, optional

        Returns
        -------
        bool tensor, shape of the weight
        """
        matrix = scores.reshape(shape[0], -1)
        allowed = torch.ones_like(matrix, dtype=torch.bool)
        if among is not None:
            allowed = among.reshape(matrix.shape)
            matrix = matrix.masked_fill(~allowed, 0)
        wanted = min(self.count(shape, density), int(allowed.sum()))
        in_tiles = self.in_tiles(wanted, matrix.numel())
        outputs = self._best_outputs(matrix, allowed, in_tiles)
        pooled = norms(matrix[outputs], self.width)
        sizes = segments(allowed[outputs], self.width)
        exact = self.restore > 0
        least = int(wanted > 0 and not exact)
        chosen = fill(pooled, sizes, in_tiles, below=exact, least=least)
        kept = spread_segments(chosen, outputs, self.width, matrix.shape[0]) & allowed
        if exact:
            kept |= largest(matrix, wanted - int(kept.sum()), allowed & ~kept)
        return kept.view(shape)

    def exchange(
        self,
        mask: torch.Tensor,
        keep: torch.Tensor,
        grow: torch.Tensor,
        drop: int,
        density: float,
    ) -> torch.Tensor:
        """Drop a share of outputs, segments and single weights, and grow others.

        Parameters
        ----------
        mask : bool tensor, shape of the weight
        keep, grow : tensor of that shape
        drop : int
            Weights to drop; their share of the live ones is that of outputs and of segments too.
        density : float

        Returns
        -------
        bool tensor, shape of the weight
        """
        live = mask.reshape(mask.shape[0], -1)
        value, promise = keep.reshape(live.shape).masked_fill(~live, 0), grow.reshape(live.shape)
        stay = 1 - min(drop / max(int(live.sum()), 1), 1.0)
        wanted = self.count(tuple(mask.shape), density)
        in_tiles = self.in_tiles(wanted, live.numel())
        outputs = self._exchanged_outputs(live, value, promise, in_tiles, stay)
        sizes = segments(torch.ones_like(live)[outputs], self.width)
        there = segments(live[outputs], self.width) > 0
        exact = self.restore > 0
        part = round(stay * in_tiles)
        old = fill(norms(value[outputs], self.width), sizes * there, part, below=exact)
        left = max(in_tiles - int(sizes[old].sum()), 0)
        least = int(wanted > 0 and not exact and not old.any())
        pooled = norms(promise[outputs], self.width)
        new = fill(pooled, sizes * ~old, left, below=exact, least=least)
        kept = spread_segments(old | new, outputs, self.width, live.shape[0])
        if exact:
            single = wanted - int(kept.sum())
            alone = live & ~kept
            kept |= largest(value, min(round(stay * single), int(alone.sum())), alone)
            kept |= largest(promise, wanted - int(kept.sum()), ~kept)
        return kept.view(mask.shape)

    def in_tiles(self, wanted: int, size: int) -> int:
        """How many of the weights that are kept belong to whole segments.

        Parameters
        ----------
        wanted, size : int
            Weights that are kept, and all.
        """
        return wanted - min(round(self.restore * size), wanted // 2)

    def _outputs(self, in_tiles: int, shape: Shape) -> int:
        """How many outputs survive."""
        if not self.columns:
            return shape[0]
        share = math.sqrt(in_tiles / max(math.prod(shape), 1))
        return max(round(share * shape[0]), -(-in_tiles // max(shape[1], 1)), min(1, shape[0]))

    def _best_outputs(
        self, matrix: torch.Tensor, allowed: torch.Tensor, in_tiles: int
    ) -> torch.Tensor:
        """Outputs that survive, ascending."""
        count = self._outputs(in_tiles, tuple(matrix.shape))
        if count == matrix.shape[0]:
            return torch.arange(count, device=matrix.device)
        pooled = norms(matrix.t(), matrix.shape[1])[0]
        room = allowed.sum(1)
        # Outputs with holes from before hold less: more of them, until they hold what is wanted.
        order = pooled.masked_fill(room == 0, -1).argsort(descending=True, stable=True)
        enough = int((room[order].cumsum(0) < in_tiles).sum()) + 1
        return order[: max(count, enough)].sort().values

    def _exchanged_outputs(
        self,
        live: torch.Tensor,
        value: torch.Tensor,
        promise: torch.Tensor,
        in_tiles: int,
        stay: float,
    ) -> torch.Tensor:
        """Outputs after an exchange, ascending."""
        count = self._outputs(in_tiles, tuple(live.shape))
        if count == live.shape[0]:
            return torch.arange(count, device=live.device)
        there = live.any(1)
        old = largest(
            norms(value.t(), live.shape[1])[0], min(round(stay * count), int(there.sum())), there
        )
        new = largest(norms(promise.t(), live.shape[1])[0], count - int(old.sum()), ~old)
        return (old | new).nonzero().view(-1)


class TW1(TileWise):
    """Tile-wise by segments alone: outputs in groups as they stand, one segment or not.

    Parameters
    ----------
    width : int
        Outputs of a tile.
    """

    def __init__(self, width: int = 128) -> None:
        super().__init__(width, columns=False)


class TW2(TileWise):
    """Tile-wise by outputs, then by segments of tiles of the outputs that survive.

    Parameters
    ----------
    width : int
        Outputs of a tile.
    """

    def __init__(self, width: int = 128) -> None:
        super().__init__(width)


class TEW(TileWise):
    """Tile-wise as :class:`TW2`, with a share of the weights kept one by one.

    Parameters
    ----------
    width : int
        Outputs of a tile.
    restore : float
        Share of all weights that are kept one by one.
    """

    def __init__(self, width: int = 128, *, restore: float = 0.05) -> None:
        super().__init__(width, restore=restore)


class VW(NofM):
    """Vector-wise: of every `length` weights that follow each other along the inputs the best.

    How many follows from the density: a quarter of each vector at density 0.25. The balanced
    sparsity that tile-wise is compared with; no kernel for it runs on ordinary hardware.

    Parameters
    ----------
    length : int
    """

    citation = _SOURCE

    def __init__(self, length: int = 16) -> None:
        super().__init__(None, length)

    @property
    def name(self) -> str:
        """Such as ``"vw-16"``."""
        return f"vw-{self.m}"
