"""Numbers that are wrong: one element of a rank's tensors becomes NaN, Inf, or another number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from dtoolkit.faults.fault import Fault, Moment
from dtoolkit.philox import philox, seed_key

if TYPE_CHECKING:
    from dtoolkit.cluster.instrument import Site

__all__ = ["Corrupt"]

_WHATS = ("gradients", "parameters", "optimizer")
_KINDS = {"nan": "NaN", "inf": "Inf", "bitflip": "a flipped bit"}
_Aim = tuple[str, torch.Tensor, tuple[int, ...]]


@dataclass(frozen=True, repr=False)
class Corrupt(Fault):
    """Make one element of a rank's tensors wrong, in place.

    Training, or a function by ``ctx.expose(name, get)``, says where the tensors are.

    Parameters
    ----------
    rank : int
    at_step : int
        In this step, when the tensors are exposed first.
    what : {"gradients", "parameters", "optimizer"}
        Which tensors, by the name under which they are exposed.
    kind : {"nan", "inf", "bitflip"}
    layer : str, optional
        Name of the tensor; drawn by default, each as likely as it has elements.
    element : int, optional
        Which element of it, in row-major order; drawn by default.
    bit : int, optional
        Which bit of the element flips, from 0, the lowest; drawn by default.
    seed : int
        Of what is drawn; it is the same on every machine.

    Raises
    ------
    TypeError, ValueError
        An argument is out of range; on the rank: the layer, the element or the bit is not there.
    """

    rank: int
    _: KW_ONLY
    what: str = "gradients"
    kind: str = "nan"
    layer: str | None = None
    element: int | None = None
    bit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.at_step is None or self.where != "begin":
            raise ValueError(
                "Corrupt: at_step= says when, and what= which tensors; they are changed where they "
                "are exposed, so that at_operation=, after= and where= make no sense"
            )
        super().__post_init__()
        for name in ("rank", "element", "bit"):
            if getattr(self, name) is not None:
                self._set(name, self._whole(name))
        self._one_of("what", _WHATS)
        self._one_of("kind", _KINDS)
        if self.layer is not None and not isinstance(self.layer, str):
            raise TypeError(f"Corrupt: layer={self.layer!r} is no name of a tensor")
        if self.bit is not None and self.kind != "bitflip":
            raise ValueError(f"Corrupt: bit={self.bit} flips none with kind={self.kind!r}")
        seed_key(self.seed)

    def words(self) -> str:
        """What happens, in words."""
        of = "" if self.layer is None else f", {self.layer},"
        return f"{_KINDS[self.kind]} in the {self.what}{of} of rank {self.rank}"

    def due(self, moment: Moment) -> bool:
        """Whether the tensors are there."""
        return (moment.kind, moment.name, moment.step) == ("state", self.what, self.at_step)

    def detail(self, site: Site, moment: Moment) -> str:
        """Which element changes, and how."""
        name, tensor, place = self._aim(moment.tensors())
        before = tensor[place].item()
        after = self._wrong(tensor[place]).item()
        return f"{name}[{', '.join(map(str, place))}]: {before:.9g} became {after:.9g}"

    def strike(self, site: Site, moment: Moment) -> None:
        """Change the element."""
        _, tensor, place = self._aim(moment.tensors())
        with torch.no_grad():
            tensor[place] = self._wrong(tensor[place])

    def _aim(self, tensors: Mapping[str, torch.Tensor]) -> _Aim:
        """Name of a tensor, the tensor, and where in it."""
        there = {name: tensor.detach() for name, tensor in tensors.items() if self._takes(tensor)}
        if self.layer is not None and self.layer not in there:
            raise ValueError(
                f"Corrupt: layer={self.layer!r} is not among the {self.what} that {self.kind} can "
                f"be put in: {', '.join(there) or 'none'}"
            )
        if not there:
            raise ValueError(f"Corrupt: no {self.what} are there that {self.kind} can be put in")
        name = self.layer
        high, low, _ = self._drawn()
        if name is None:
            position = (high << 32 | low) % sum(tensor.numel() for tensor in there.values())
            for name, tensor in there.items():  # noqa: B007
                if position < tensor.numel():
                    break
                position -= tensor.numel()
        else:
            position = (high << 32 | low) % there[name].numel()
        assert name is not None
        tensor = there[name]
        if self.element is not None:
            position = self.element
        if position >= tensor.numel():
            raise ValueError(
                f"Corrupt: element={position} is not in {name}, which has {tensor.numel()}"
            )
        place = np.unravel_index(position, tuple(tensor.shape)) if tensor.dim() else ()
        return name, tensor, tuple(int(i) for i in place)

    def _takes(self, tensor: torch.Tensor) -> bool:
        """Whether what is to be put into a tensor has room in it."""
        if tensor.layout != torch.strided or not tensor.numel() or tensor.dtype == torch.bool:
            return False
        return self.kind == "bitflip" or tensor.is_floating_point() or tensor.is_complex()

    def _wrong(self, value: torch.Tensor) -> torch.Tensor:
        """The element as it shall be."""
        if self.kind != "bitflip":
            return torch.full_like(value, math.nan if self.kind == "nan" else math.inf)
        wrong = value.clone().reshape(1)
        bits = wrong.view(torch.uint8)
        width = 8 * bits.numel()
        bit = self._drawn()[2] % width if self.bit is None else self.bit
        if bit >= width:
            raise ValueError(f"Corrupt: bit={bit} is not in {value.dtype}, which has {width}")
        bits[bit // 8] ^= 1 << bit % 8
        return wrong.reshape(())

    def _drawn(self) -> tuple[int, int, int]:
        """Three random words."""
        assert self.at_step is not None
        counter = [torch.tensor(n) for n in (self.at_step, self.rank, 0, 0)]
        words = philox(counter, seed_key(self.seed, domain="dtoolkit.faults.corrupt"))
        high, low, bit, _ = (int(word) for word in words)
        return high, low, bit
