"""Which kernel a compiled layer runs, and what it keeps for that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from dtoolkit.sparsity.tiles.layout import TileLayout, tile_layout

__all__ = ["Execution", "Measured", "only_live"]


@dataclass(frozen=True)
class Measured:
    """Medians of a layer on this device, dense and by the best sparse kernel.

    Attributes
    ----------
    kernel : str
        The sparse one.
    dense, sparse : float
        Seconds; forward, with `backward` also that.
    rows : int
        Of the batch: all leading dimensions, for a convolution the images.
    backward : bool
    device : str
    """

    kernel: str
    dense: float
    sparse: float
    rows: int
    backward: bool
    device: str

    @property
    def ratio(self) -> float:
        """Dense over sparse: how many times as fast the sparse kernel is."""
        return self.dense / self.sparse


@dataclass
class Execution:
    """What a compiled layer runs.

    Attributes
    ----------
    kernel : str
        ``"tiles"``, ``"channels"``, ``"semi-structured"`` or ``"dense"``.
    reason : str
        Why that one.
    width : int or None
        Outputs of a tile; None for as costs the least.
    dense_gradient : bool
        Whether masked weights get a gradient.
    frozen : bool
        Whether packed weights are kept from one call to the next.
    measured : Measured or None
    """

    kernel: str
    reason: str = ""
    width: int | None = None
    dense_gradient: bool = False
    frozen: bool = False
    measured: Measured | None = None
    _kept: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False, compare=False)

    def layout(self, mask: torch.Tensor) -> TileLayout:
        """Tiles of the mask as it is now; found anew when the mask has changed."""
        found: TileLayout = self.kept("layout", (mask,), lambda: self._layout(mask))
        return found

    def packed(self, weight: torch.Tensor, mask: torch.Tensor, layout: TileLayout) -> torch.Tensor:
        """Weights of the tiles, kept while neither weight nor mask is written to."""
        found: torch.Tensor = self.kept("packed", (weight, mask), lambda: layout.pack(weight))
        return found

    def kept(self, name: str, tensors: tuple[torch.Tensor, ...], make: Any) -> Any:
        """Return what was made of these tensors, or make it again if they are others by now."""
        # A version counts what was written in place; tensors made in inference mode have none.
        stamp = tuple(
            (t.data_ptr(), t.shape, t.device, t.dtype, -1 if t.is_inference() else t._version)
            for t in tensors
        )
        stored, value = self._kept.get(name, (None, None))
        if stored != stamp:
            value = make()
            self._kept[name] = (stamp, value)
        return value

    def __getstate__(self) -> dict[str, Any]:
        # A copy has other tensors, whose stamps could be the same by chance.
        return {**self.__dict__, "_kept": {}}

    def _layout(self, mask: torch.Tensor) -> TileLayout:
        return tile_layout(mask.flatten(1), width=self.width)


def only_live(weight: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The weight as it is, whose gradient is 0 where the mask keeps nothing."""
    live: torch.Tensor = _OnlyLive.apply(weight, mask)
    return live


class _OnlyLive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(mask)
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient.masked_fill(~mask, 0), None
