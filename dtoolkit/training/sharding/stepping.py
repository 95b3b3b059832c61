"""An optimizer that steps pieces of parameters, and the whole of what it keeps when that is saved.

The optimizer stays the object that its schedule knows: what its groups hold is replaced by flat
pieces, which share memory with the parameters or with what a rank keeps of them.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dtoolkit.training.sharding.units import Place

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Pieces", "told_to_all"]

Kept = dict[str, Any]
"""What an optimizer keeps of a parameter, by name."""


class Pieces:
    """The pieces that one rank steps.

    Parameters
    ----------
    replica : Replica
        Whose optimizer holds, and has a state of, whole parameters; pieces take their part of it.
    held : sequence of (Place, torch.Tensor)
        Where each piece lies in its parameter, and its memory.
    told : sequence of bool, optional
        Which pieces this rank tells rank 0 of, where others hold the same; by default all.
    """

    def __init__(
        self,
        replica: Replica,
        held: Sequence[tuple[Place, torch.Tensor]],
        told: Sequence[bool] | None = None,
    ) -> None:
        self._replica, self._optimizer = replica, replica.optimizer
        self._held = [(place, nn.Parameter(memory)) for place, memory in held]
        self._told = [True] * len(held) if told is None else list(told)
        of: dict[int, list[tuple[Place, nn.Parameter]]] = {}
        for place, value in self._held:
            of.setdefault(place.number, []).append((place, value))
        numbers = {id(value): number for number, (_, value) in enumerate(replica.parameters)}
        state: defaultdict[Any, Any] = defaultdict(dict)
        self._whole = [group["params"] for group in self._optimizer.param_groups]
        for group in self._optimizer.param_groups:
            here = [numbers.get(id(value), -1) for value in group["params"]]
            found = [one for number in here for one in of.get(number, [])]
            for place, value in found:
                whole = replica.parameters[place.number][1]
                if kept := self._optimizer.state.get(whole):
                    state[value] = {k: _cut(v, whole, place, value) for k, v in kept.items()}
            group["params"] = [value for _, value in found]
        self._optimizer.state = state
        self._aside: tuple[list[Any], Any] | None = None

    def load_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Take the gradient of each piece, in the order in which they were given."""
        for (_, value), gradient in zip(self._held, gradients, strict=True):
            value.grad = None if gradient is None else gradient.view(value.shape)

    def add_gradients(self, extra: Sequence[torch.Tensor | None]) -> None:
        """Add to the gradients of pieces their part of some of whole parameters."""
        for place, value in self._held:
            more = extra[place.number]
            if more is not None:
                part = more.reshape(-1)[place.start : place.stop].to(value.dtype).view(value.shape)
                value.grad = part.clone() if value.grad is None else value.grad.add_(part)

    def zero_grad(self) -> None:
        """Forget the gradients of all pieces."""
        for _, value in self._held:
            value.grad = None

    def state_bytes(self, numbers: Container[int] | None = None) -> tuple[int, int]:
        """Bytes of what the optimizer keeps of each element, and of its counters.

        `numbers` are those of the parameters that count; by default all.
        """
        elements = counters = 0
        for place, value in self._held:
            if numbers is not None and place.number not in numbers:
                continue
            for kept in self._optimizer.state.get(value, {}).values():
                if isinstance(kept, torch.Tensor):
                    by_element = kept.shape == value.shape
                    elements += kept.nbytes if by_element else 0
                    counters += 0 if by_element else kept.nbytes
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
            for (place, value), told in zip(self._held, self._told, strict=True)
            if told or not sharded
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


def told_to_all(replica: Replica, mine: Mapping[str, int]) -> dict[str, list[int]]:
    """What each rank has measured, by name, in rank order; collective. Empty where nothing was."""
    if not mine:
        return {}
    with replica.comm.phase("state"):
        said = replica.comm.all_gather(torch.tensor(list(mine.values())))
    return dict(zip(mine, said.T.tolist(), strict=True))


def _loaded(data: torch.Tensor) -> list[Any]:
    content = io.BytesIO(data.cpu().numpy().tobytes())
    pieces: list[Any] = torch.load(content, weights_only=True, map_location="cpu")
    return pieces


def _cut(value: Any, whole: torch.Tensor, place: Place, piece: torch.Tensor) -> Any:
    """The part of a piece in what is kept of a whole parameter; counters as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.shape != whole.shape:
        return value.clone()
    return value.detach().reshape(-1)[place.start : place.stop].clone().view(piece.shape)


def _joined(key: str, parts: list[tuple[int, int, Kept]], whole: nn.Parameter) -> Any:
    """What is kept of a whole parameter, of what is kept of its pieces."""
    first = parts[0][2][key]
    by_element = isinstance(first, torch.Tensor) and all(
        kept[key].dim() > 0 and kept[key].numel() == stop - start for start, stop, kept in parts
    )
    if not by_element:
        return first.clone() if isinstance(first, torch.Tensor) else first
    flat = first.new_empty(whole.numel())
    for start, stop, kept in parts:
        flat[start:stop] = kept[key].reshape(-1)
    return flat.view(whole.shape)
