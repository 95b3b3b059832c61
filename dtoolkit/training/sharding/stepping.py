"""An optimizer that steps pieces of parameters, and the whole of what it keeps when that is saved.

The optimizer stays the object that its schedule knows: what its groups hold is replaced by flat
pieces, which share memory with the parameters or with what a rank keeps of them.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dtoolkit.training.sharding.units import Place, Unit

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Pieces"]

Kept = dict[str, Any]
"""What an optimizer keeps of a parameter, by name."""


class Pieces:
    """The pieces that one rank steps.

    All stages step the same pieces, whoever holds them: kernels may round the last elements of a
    tensor in another way than those before, so that only equal pieces give equal bits.

    Parameters
    ----------
    replica : Replica
        Whose optimizer holds, and has a state of, whole parameters; pieces take their part of it.
    units : list of Unit
    ranks : iterable of int
        Whose pieces are stepped here: this rank's, or those of all.
    """

    def __init__(self, replica: Replica, units: Sequence[Unit], ranks: Iterable[int]) -> None:
        self._replica, self._optimizer = replica, replica.optimizer
        self._held: list[tuple[Unit, Place, nn.Parameter]] = []
        for rank in ranks:
            for unit in units:
                self._held += [
                    (unit, place, nn.Parameter(_part(unit, place, rank)))
                    for place in unit.places(rank)
                ]
        of: dict[int, list[tuple[Place, nn.Parameter]]] = {}
        for _, place, value in self._held:
            of.setdefault(place.number, []).append((place, value))
        numbers = {id(value): number for number, (_, value) in enumerate(replica.parameters)}
        state: defaultdict[Any, Any] = defaultdict(dict)
        self._whole = [group["params"] for group in self._optimizer.param_groups]
        for group in self._optimizer.param_groups:
            here = [numbers.get(id(value), -1) for value in group["params"]]
            held = [one for number in here for one in of.get(number, [])]
            for place, value in held:
                whole = replica.parameters[place.number][1]
                if kept := self._optimizer.state.get(whole):
                    state[value] = {k: _cut(v, whole.shape, place) for k, v in kept.items()}
            group["params"] = [value for _, value in held]
        self._optimizer.state = state
        self._aside: tuple[list[Any], Any] | None = None

    def load_gradients(self, used: Sequence[bool]) -> None:
        """Give each piece its part of its unit's gradient; None where no rank used it."""
        for unit, place, value in self._held:
            value.grad = _gradient(unit, place, self._replica.rank) if used[place.number] else None

    def add_gradients(self, extra: Sequence[torch.Tensor | None]) -> None:
        """Add to the gradients of pieces their part of some of whole parameters."""
        for _, place, value in self._held:
            more = extra[place.number]
            if more is not None:
                part = more.reshape(-1)[place.start : place.stop].to(value.dtype)
                value.grad = part.clone() if value.grad is None else value.grad.add_(part)

    def zero_grad(self) -> None:
        """Forget the gradients of all pieces."""
        for _, _, value in self._held:
            value.grad = None

    def state_bytes(self) -> tuple[int, int]:
        """Bytes of what the optimizer keeps of each element, and of its counters."""
        elements = counters = 0
        for _, _, value in self._held:
            for kept in self._optimizer.state.get(value, {}).values():
                if isinstance(kept, torch.Tensor):
                    alike = kept.shape == value.shape
                    elements, counters = (
                        elements + kept.nbytes * alike,
                        counters + kept.nbytes * (not alike),
                    )
        return elements, counters

    # ------------------------------------------------------------------------------- the whole

    def show_whole(self, *, sharded: bool) -> None:
        """Make the optimizer of rank 0 one of whole parameters, with all that is kept; collective.

        Parameters
        ----------
        sharded : bool
            Other ranks step other pieces; False: all are here, and nothing is sent.
        """
        mine = [
            (place.number, place.start, place.stop, dict(self._optimizer.state.get(value, {})))
            for _, place, value in self._held
        ]
        pieces = self._gathered(mine) if sharded else mine
        if pieces is None:
            return
        state: defaultdict[Any, Any] = defaultdict(dict)
        by_number: dict[int, list[tuple[int, int, Kept]]] = {}
        for number, start, stop, kept in pieces:
            if kept:
                by_number.setdefault(number, []).append((start, stop, kept))
        for number, parts in by_number.items():
            whole = self._replica.parameters[number][1]
            state[whole] = {key: _joined(key, parts, whole) for key in parts[0][2]}
        groups = self._optimizer.param_groups
        self._aside = [group["params"] for group in groups], self._optimizer.state
        for group, values in zip(groups, self._whole, strict=True):
            group["params"] = values
        self._optimizer.state = state

    def hide_whole(self) -> None:
        """Go back to pieces."""
        if self._aside is None:
            return
        groups, self._optimizer.state = self._aside
        for group, values in zip(self._optimizer.param_groups, groups, strict=True):
            group["params"] = values
        self._aside = None

    def _gathered(self, mine: list[Any]) -> list[Any] | None:
        """The pieces of all ranks, on rank 0; None on the others."""
        buffer = io.BytesIO()
        torch.save(mine, buffer)
        data = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
        with self._replica.comm.phase("state"):
            came = self._replica.comm.gather(data)
        if came is None:
            return None
        return [piece for one in came for piece in _loaded(one)]


def _loaded(data: torch.Tensor) -> list[Any]:
    content = io.BytesIO(data.cpu().numpy().tobytes())
    pieces: list[Any] = torch.load(content, weights_only=True, map_location="cpu")
    return pieces


def _part(unit: Unit, place: Place, rank: int) -> torch.Tensor:
    """The memory of a piece of a parameter: of what is kept of the unit, or of the whole."""
    size = place.stop - place.start
    if unit.kept is None:
        return unit.flat.detach()[place.at : place.at + size]
    return unit.kept[place.at - unit.span(rank).start :][:size]


def _gradient(unit: Unit, place: Place, rank: int) -> torch.Tensor:
    gradient = unit.gradient
    assert gradient is not None
    begin = place.at
    if gradient.numel() != unit.flat.numel():
        begin -= unit.span(rank).start
    return gradient[begin : begin + place.stop - place.start]


def _cut(value: Any, shape: torch.Size, place: Place) -> Any:
    """The part of a piece in what is kept of a whole parameter; counters as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.shape != shape:
        return value.clone()
    return value.detach().reshape(-1)[place.start : place.stop].clone()


def _joined(key: str, parts: list[tuple[int, int, Kept]], whole: nn.Parameter) -> Any:
    """What is kept of a whole parameter, of what is kept of its pieces."""
    first = parts[0][2][key]
    by_element = isinstance(first, torch.Tensor) and all(
        kept[key].shape == (stop - start,) for start, stop, kept in parts
    )
    if not by_element:
        return first.clone() if isinstance(first, torch.Tensor) else first
    flat = first.new_empty(whole.numel())
    for start, stop, kept in parts:
        flat[start:stop] = kept[key]
    return flat.view(whole.shape)
