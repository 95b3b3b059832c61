"""Learned parameters end to end in flat memory, cut so that each rank keeps a piece.

A unit is what one module holds itself, of one dtype. Pieces of one unit differ by one element at
most, and so do the pieces of all units together: nothing is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

__all__ = ["Place", "Unit", "storage_of", "units_of"]


@dataclass(frozen=True)
class Place:
    """Where a piece of a parameter lies.

    Attributes
    ----------
    number : int
        Of the parameter, among those that are learned.
    start, stop : int
        Elements of the flat parameter.
    at : int
        Where the first of them lies in the unit.
    """

    number: int
    start: int
    stop: int
    at: int


@dataclass(eq=False)
class Unit:
    """Parameters that are gathered, and freed, together.

    Attributes
    ----------
    module : str
        Name of the module that holds them.
    numbers : list of int
        Of the parameters, among those that are learned.
    names : list of str
    parameters : list of nn.Parameter
        Views of `flat`.
    flat : torch.Tensor
        All of them end to end; its memory may be given back (:meth:`free`).
    cuts : list of int
        Elements of each rank's piece, in rank order.
    kept : torch.Tensor or None
        This rank's piece where the rest is given back; else it is in `flat` alone.
    gradient : torch.Tensor or None
        What is held of the summed gradient: all of it, or this rank's piece.
    """

    module: str
    numbers: list[int]
    names: list[str]
    parameters: list[nn.Parameter]
    flat: torch.Tensor
    cuts: list[int]
    kept: torch.Tensor | None = None
    gradient: torch.Tensor | None = None
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._starts = [sum(self.cuts[:rank]) for rank in range(len(self.cuts))]

    @property
    def here(self) -> bool:
        """Whether all parameters are in memory."""
        return self.flat.untyped_storage().nbytes() > 0 or not self.flat.numel()

    @property
    def held(self) -> int:
        """Bytes of parameters that are in memory."""
        kept = 0 if self.kept is None else self.kept.nbytes
        return kept + self.flat.untyped_storage().nbytes()

    def span(self, rank: int) -> slice:
        """Elements of a rank's piece."""
        return slice(self._starts[rank], self._starts[rank] + self.cuts[rank])

    def pieces(self) -> list[torch.Tensor]:
        """The piece of each rank: views of `flat`, without a graph."""
        return list(torch.split(self.flat.detach(), self.cuts))

    def places(self, rank: int) -> list[Place]:
        """What a rank's piece has of each parameter."""
        span, at, found = self.span(rank), 0, []
        for number, value in zip(self.numbers, self.parameters, strict=True):
            start, stop = max(span.start, at), min(span.stop, at + value.numel())
            if start < stop:
                found.append(Place(number, start - at, stop - at, start))
            at += value.numel()
        return found

    def memory(self, place: Place, rank: int) -> torch.Tensor:
        """Where a place of a rank's piece lies: in what is kept of the unit, or in the whole."""
        size = place.stop - place.start
        if self.kept is None:
            return self.flat.detach()[place.at : place.at + size]
        return self.kept[place.at - self.span(rank).start :][:size]

    def gradient_of(self, place: Place, rank: int) -> torch.Tensor:
        """The gradient of a place: of the whole, or of the rank's piece, whichever is held."""
        assert self.gradient is not None
        begin = place.at
        if self.gradient.numel() != self.flat.numel():
            begin -= self.span(rank).start
        return self.gradient[begin : begin + place.stop - place.start]

    def give_back(self, rank: int) -> None:
        """Keep this rank's piece alone."""
        if self.kept is None:
            self.kept = self.flat.detach()[self.span(rank)].clone()
        if not self.flat.untyped_storage().resizable():  # NumPy has looked at it
            self.lay(self.flat.detach().clone())
        self.free()

    def lay(self, flat: torch.Tensor) -> None:
        """Let the parameters be views of a flat tensor."""
        self.flat = flat
        pieces = torch.split(flat, [value.numel() for value in self.parameters])
        for value, piece in zip(self.parameters, pieces, strict=True):
            value.data = piece.view(value.shape)

    def free(self) -> None:
        """Give the memory of the whole back; the parameters keep their shape, without content."""
        self.flat.untyped_storage().resize_(0)

    def make_room(self) -> None:
        """Take memory for the whole again; what is in it must be filled in."""
        storage = self.flat.untyped_storage()
        if not storage.nbytes():
            storage.resize_(self.flat.nbytes)


def units_of(
    model: nn.Module, parameters: Sequence[tuple[str, nn.Parameter]], ranks: int
) -> list[Unit]:
    """The units of a model, in the order of its modules; parameters become views of them.

    Parameters
    ----------
    model : nn.Module
    parameters : sequence of (str, nn.Parameter)
        What is learned, tied parameters once: they belong to the first module that holds them.
    ranks : int
        Pieces that each unit is cut into.
    """
    groups: dict[tuple[str, torch.dtype, torch.device], list[int]] = {}
    for number, (name, value) in enumerate(parameters):
        key = (name.rpartition(".")[0], value.dtype, value.device)
        groups.setdefault(key, []).append(number)
    units, turn = [], 0
    for (module, _, _), numbers in groups.items():
        values = [parameters[number][1] for number in numbers]
        flat = torch.cat([value.detach().reshape(-1) for value in values])
        cuts, turn = _cut(len(flat), ranks, turn)
        names = [parameters[number][0] for number in numbers]
        units.append(Unit(module, numbers, names, values, flat, cuts))
        units[-1].lay(flat)
    return units


def storage_of(value: torch.Tensor) -> int:
    """Which memory a tensor lies in: the same number for all views; 0 where it has none."""
    return int(value.untyped_storage()._cdata) if value.layout is torch.strided else 0


def _cut(size: int, ranks: int, turn: int) -> tuple[list[int], int]:
    """Sizes of pieces; those that are one larger begin with the rank whose turn it is."""
    base, more = divmod(size, ranks)
    cuts = [base] * ranks
    for one in range(more):
        cuts[(turn + one) % ranks] += 1
    return cuts, (turn + more) % ranks
