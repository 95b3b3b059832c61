"""How a masked weight is cut into dense tiles: which outputs, and which inputs each looks at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

__all__ = ["Singles", "Tile", "TileLayout", "tile_layout"]

# What a choice costs for each row of the batch, in multiplications of a dense product; fitted to
# float32 products of 768 to 3,072 on two cores. They rank layouts; what runs is measured.
_GATHER = 50  # bring one input of one tile to its place
_SINGLE = 5  # a weight that is kept alone, in a sparse product
_SINGLES = 10  # turn one input or output around for that product
_TILE = 2000  # start the product of one more tile
_GAPS = 3
_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True, eq=False)
class Tile:
    """Outputs next to each other in a layout, and the inputs that they look at.

    Attributes
    ----------
    start, stop : int
        Places in the layout's outputs.
    inputs : int64 tensor or None
        Ascending; None for all.
    begin, end : int
        Places of its weights, outputs x inputs, in the packed weights.
    """

    start: int
    stop: int
    inputs: torch.Tensor | None
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class Singles:
    """Weights outside of tiles as a sparse matrix of all outputs x all inputs, and transposed.

    Attributes
    ----------
    begin : int
        Place of the first of them in the packed weights, where they come last, row after row.
    rows, columns : int64 tensor
        Start of each row, and the column of each weight.
    turned_rows, turned_columns : int64 tensor
        The same of the transposed matrix.
    order : int64 tensor
        Which weight is the next in the transposed matrix.
    """

    begin: int
    rows: torch.Tensor
    columns: torch.Tensor
    turned_rows: torch.Tensor
    turned_columns: torch.Tensor
    order: torch.Tensor


@dataclass(frozen=True, eq=False)
class TileLayout:
    """A mask as tiles, and single weights where those cost less.

    Attributes
    ----------
    shape : tuple of int
        Outputs and inputs.
    width : int
        Outputs of the widest tile; 0 without tiles.
    outputs : int64 tensor or None
        That tiles are made of, one tile after the other; None for all as they stand.
    tiles : tuple of Tile
    singles : Singles or None
    flat : int64 tensor
        Where each packed weight is in the weight, row-major.
    short : int32 tensor, or int64 for weights of 2^31 and more
        The same: half of what packing has to read.
    live : bool tensor or None
        Which packed weights the mask keeps; None for all.
    """

    shape: tuple[int, int]
    width: int
    outputs: torch.Tensor | None
    tiles: tuple[Tile, ...]
    singles: Singles | None
    flat: torch.Tensor
    short: torch.Tensor
    live: torch.Tensor | None

    @property
    def multiplied(self) -> float:
        """Share of the weight that is multiplied, holes in tiles included."""
        return len(self.flat) / max(self.shape[0] * self.shape[1], 1)

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """Bring the weights of the tiles together, 0 where the mask keeps nothing.

        Parameters
        ----------
        weight : tensor of `shape`, or one that is flat

        Returns
        -------
        tensor, shape (packed weights,)
        """
        packed = weight.detach().reshape(-1).index_select(0, self.short)
        return packed if self.live is None else packed.masked_fill_(~self.live, 0)

    @property
    def name(self) -> str:
        """What it is called in reports."""
        parts = []
        if self.tiles:
            whole = len(self.tiles) == 1 and self.tiles[0].inputs is None
            count = f"{len(self.tiles)} tile{'s' if len(self.tiles) > 1 else ''}"
            parts.append("live outputs" if whole else f"{count} of up to {self.width} outputs")
        if self.singles is not None:
            parts.append(f"{len(self.singles.columns):,} single weights")
        return " and ".join(parts) or "bias alone"


def tile_layout(mask: torch.Tensor, *, width: int | None = None) -> TileLayout:
    """Find the tiles of a mask.

    Outputs without a live weight are left out, the others cut into tiles: of `width`, or as costs
    the least among usual widths and cuts where one output's inputs differ from the next one's. Any
    mask has a layout, and its product is exact; it is fast where neighbouring outputs look at the
    same inputs.

    Parameters
    ----------
    mask : bool tensor, outputs x inputs
    width : int, optional

    Returns
    -------
    TileLayout
        On the mask's device.
    """
    cuts = [
        _Cut(counted, outputs, cuts, alone, total=total)
        for outputs, total in _tiled_outputs(mask)
        for counted in [functional.pad(mask[outputs].cumsum(0, dtype=torch.int32), (0, 0, 1, 0))]
        for cuts in _boundaries(mask[outputs], width)
        for alone in (False, True)
        if alone or total == int(counted[-1].sum())
    ]
    return _assemble(mask, min(cuts, key=lambda cut: cut.cost))


class _Cut:
    """One way to cut outputs into tiles: which segments it takes into them, and its cost."""

    def __init__(
        self,
        counted: torch.Tensor,
        outputs: torch.Tensor,
        bounds: torch.Tensor,
        alone: bool,
        *,
        total: int,
    ) -> None:
        self.outputs, self.bounds = outputs, bounds
        widths = bounds.diff().unsqueeze(1)
        counts = counted[bounds[1:]] - counted[bounds[:-1]]
        self.taken = counts * _SINGLE > widths + _GATHER if alone else counts > 0
        singles = total - int((counts * self.taken).sum())
        self.alone = singles > 0
        dense = int(((widths + _GATHER) * self.taken).sum())
        self.cost = dense + _SINGLE * singles + _TILE * int(self.taken.any(1).sum())
        if self.alone:
            # Live outputs are not all that are turned, but whatever the cut they are the same.
            self.cost += _SINGLES * (len(outputs) + counted.shape[1])


def _tiled_outputs(mask: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """Outputs that tiles may be made of, and the number of live weights of all outputs."""
    lives = mask.sum(1)
    total = int(lives.sum())
    yield lives.nonzero().view(-1), total
    # Where whole outputs were dropped and single weights came back, few live weights are left in
    # those: they are told from the others by one of the widest gaps.
    steps = lives.sort().values
    gaps = steps.diff()
    for place in gaps.topk(min(_GAPS, len(gaps))).indices.tolist():
        if int(gaps[place]) and int(steps[place]):
            yield (lives > steps[place]).nonzero().view(-1), total


def _boundaries(rows: torch.Tensor, width: int | None) -> Iterator[torch.Tensor]:
    """Boundaries of tiles that are worth a look."""
    count = len(rows)
    widths = [*(each for each in _WIDTHS if each < count), max(count, 1)] if width is None else []
    for each in [width] if width is not None else widths:
        starts = torch.arange(0, count, each, device=rows.device)
        yield functional.pad(starts, (0, 1), value=count)
    if width is None and count > 1:
        changes = (rows[1:] != rows[:-1]).any(1).nonzero().view(-1) + 1
        if len(changes) < count // 4:
            yield functional.pad(functional.pad(changes, (1, 0)), (0, 1), value=count)


def _assemble(mask: torch.Tensor, cut: _Cut) -> TileLayout:
    """Make the layout of a cut."""
    inputs_of_all, device = mask.shape[1], mask.device
    left = mask.clone() if cut.alone else None
    tiles, flat, outputs = [], [], []
    start = begin = 0
    bounds = cut.bounds.tolist()
    for low, high, taken in zip(bounds[:-1], bounds[1:], cut.taken, strict=True):
        inputs = taken.nonzero().view(-1)
        if not len(inputs):
            continue
        own = cut.outputs[low:high]
        if left is not None:
            left[own.unsqueeze(1), inputs] = False
        flat.append((own.unsqueeze(1) * inputs_of_all + inputs).view(-1))
        stop, end = start + len(own), begin + len(flat[-1])
        every = len(inputs) == inputs_of_all
        tiles.append(Tile(start, stop, None if every else inputs, begin, end))
        outputs.append(own)
        start, begin = stop, end
    singles = None
    if left is not None:
        singles = _singles(left, begin)
        flat.append(left.view(-1).nonzero().view(-1))
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    packed = torch.cat([nothing, *flat])
    alive = mask.reshape(-1)[packed]
    return TileLayout(
        shape=(mask.shape[0], inputs_of_all),
        width=max((tile.stop - tile.start for tile in tiles), default=0),
        outputs=None if start == mask.shape[0] else torch.cat([nothing, *outputs]),
        tiles=tuple(tiles),
        singles=singles,
        flat=packed,
        short=packed.to(torch.int32) if mask.numel() < 1 << 31 else packed,
        live=None if bool(alive.all()) else alive,
    )


def _singles(mask: torch.Tensor, begin: int) -> Singles:
    """What is left beside the tiles."""
    rows, columns = mask.nonzero(as_tuple=True)
    order = columns.argsort(stable=True)
    return Singles(
        begin=begin,
        rows=_starts(rows, mask.shape[0]),
        columns=columns,
        turned_rows=_starts(columns, mask.shape[1]),
        turned_columns=rows[order],
        order=order,
    )


def _starts(places: torch.Tensor, count: int) -> torch.Tensor:
    return functional.pad(torch.bincount(places, minlength=count).cumsum(0), (1, 0))
