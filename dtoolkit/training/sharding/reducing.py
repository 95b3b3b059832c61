"""Gradients summed over ranks, of which each rank keeps all, or its pieces.

Sums are taken in rank order for each element, so that all ways give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.comm.reduction import reduce_in_order
from dtoolkit.training.sharding.units import Unit

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Reduced", "bundled", "reduce_whole", "share_pieces"]


def reduce_whole(replica: Replica, units: Sequence[Unit], step: int) -> None:
    """Sum the gradients of all units over ranks, one all-reduce a dtype; all ranks hold all.

    ``.grad`` of the parameters goes, ``unit.gradient`` comes.

    Raises
    ------
    FloatingPointError
        A gradient of this rank is not finite.
    """
    groups: dict[torch.dtype, list[Unit]] = {}
    for unit in units:
        groups.setdefault(unit.flat.dtype, []).append(unit)
    for group in groups.values():
        flat = torch.cat([_taken(replica, unit, step) for unit in group])
        with replica.comm.phase("gradients"):
            total = replica.comm.all_reduce(flat)
        pieces = torch.split(total, [unit.flat.numel() for unit in group])
        for unit, piece in zip(group, pieces, strict=True):
            unit.gradient = piece


def bundled(units: Sequence[Unit], megabytes: float) -> list[list[Unit]]:
    """Units that travel together, from the last to the first; each bundle of one dtype.

    Parameters
    ----------
    units : sequence of Unit
    megabytes : float
        Of a bundle, at most, but for a unit that is larger; 0: each by itself.
    """
    bundles: list[list[Unit]] = []
    room: dict[torch.dtype, tuple[list[Unit], float]] = {}
    for unit in reversed(units):
        size = unit.flat.nbytes / 2**20
        bundle, left = room.get(unit.flat.dtype, ([], 0.0))
        if not bundle or size > left:
            bundle, left = [], megabytes
            bundles.append(bundle)
        bundle.append(unit)
        room[unit.flat.dtype] = bundle, left - size
    return bundles


def share_pieces(comm: Any, bundles: Sequence[Sequence[Unit]]) -> None:
    """Give all ranks the pieces that each has stepped; collective."""
    for bundle in bundles:
        own = torch.cat([unit.pieces()[comm.rank] for unit in bundle])
        cuts = [[unit.cuts[rank] for unit in bundle] for rank in range(comm.size)]
        rooms = [own.new_empty(sum(sizes)) for sizes in cuts]
        comm.all_to_all([own] * comm.size, out=rooms, agreed=True)
        for rank, (room, sizes) in enumerate(zip(rooms, cuts, strict=True)):
            for unit, part in zip(bundle, torch.split(room, sizes), strict=True):
                unit.pieces()[rank].copy_(part)


class Reduced:
    """Gradients of units that travel to the ranks whose pieces they are.

    A step is :meth:`begin`, any number of backward passes, :meth:`finish`. With :meth:`arm` before
    the last pass, gradients leave while it runs, and what of them is no piece of this rank is
    given back at once.

    Parameters
    ----------
    replica : Replica
    bundles : list of list of Unit
        Units that travel together.
    comm : Communicator
        That nothing else uses while backward runs.
    whole : bool
        Keep this rank's gradients too, with the sums in its pieces, until the step is over.

    Attributes
    ----------
    largest : int
        Bytes of gradients held at once so far, at most, while backward ran.
    """

    def __init__(
        self,
        replica: Replica,
        bundles: list[list[Unit]],
        comm: Any,
        *,
        whole: bool,
    ) -> None:
        self._replica, self._comm, self._whole, self._bundles = replica, comm, whole, bundles
        self._step, self._armed, self._sent = 0, False, 0
        self._left: set[int] = set()  # parameters whose gradients have left
        self._waiting = [0] * len(self._bundles)
        self._under_way: list[_Travelling] = []
        self.largest = 0
        self._hooks = [
            value.register_post_accumulate_grad_hook(self._hook(place))
            for place, bundle in enumerate(self._bundles)
            for unit in bundle
            for value in unit.parameters
        ]

    def begin(self, step: int) -> None:
        """A step begins."""
        self._step, self._armed, self._sent = step, False, 0
        self._left = set()

    @property
    def used(self) -> list[bool]:
        """Which parameters this rank has used in the step."""
        left, parameters = self._left, self._replica.parameters
        return [
            number in left or value.grad is not None for number, (_, value) in enumerate(parameters)
        ]

    def arm(self) -> None:
        """Let gradients leave during the backward pass that follows, which must be the last."""
        self._waiting = [sum(len(unit.parameters) for unit in one) for one in self._bundles]
        self._armed = True

    def finish(self) -> None:
        """Send what has not left, and wait until all sums are there, as ``unit.gradient``."""
        self._armed = False
        while self._sent < len(self._bundles):
            self._send()
        while self._under_way:
            self._under_way.pop(0).end(self._comm.rank, whole=self._whole)

    def close(self) -> None:
        """Leave the parameters alone."""
        for hook in self._hooks:
            hook.remove()

    def _hook(self, place: int) -> Callable[[torch.Tensor], None]:
        def take(value: torch.Tensor) -> None:
            if not self._armed:
                return
            self._waiting[place] -= 1
            if self._waiting[place] < 0:
                raise ValueError(
                    "a parameter got a gradient after it had left: a backward pass inside backward "
                    "(torch.utils.checkpoint with use_reentrant=True) needs Zero(overlap=False), "
                    "or use_reentrant=False"
                )
            while self._sent < len(self._bundles) and not self._waiting[self._sent]:
                self._send()

        return take

    def _send(self) -> None:
        """Start the sum of the next bundle, and end those that have come."""
        self._note()
        bundle = self._bundles[self._sent]
        self._sent += 1
        for unit in bundle:
            have = zip(unit.numbers, unit.parameters, strict=True)
            self._left |= {number for number, value in have if value.grad is not None}
        flats = [_taken(self._replica, unit, self._step) for unit in bundle]
        if self._whole:
            for unit, flat in zip(bundle, flats, strict=True):
                unit.gradient = flat
        sends = [
            torch.cat([flat[unit.span(rank)] for unit, flat in zip(bundle, flats, strict=True)])
            for rank in range(self._comm.size)
        ]
        own = sends[self._comm.rank]
        rooms = [torch.empty_like(own) for _ in sends]
        with self._comm.phase("gradients"):
            pending = self._comm.all_to_all(sends, out=rooms, agreed=True, wait=False)
        self._under_way.append(_Travelling(bundle, rooms, pending))
        # A rank that waited here could be waited for by others, for parameters that it has.
        while self._under_way and self._under_way[0].pending.done():
            self._under_way.pop(0).end(self._comm.rank, whole=self._whole)

    def _note(self) -> None:
        """Count what is held now."""
        held = 0
        for unit in chain.from_iterable(self._bundles):
            if unit.gradient is not None:
                held += unit.gradient.nbytes
            held += sum(value.grad.nbytes for value in unit.parameters if value.grad is not None)
        self.largest = max(self.largest, held)


@dataclass(frozen=True)
class _Travelling:
    bundle: list[Unit]
    rooms: list[torch.Tensor]
    pending: Any

    def end(self, rank: int, *, whole: bool) -> None:
        """Wait, and put the sums where they belong."""
        self.pending.wait()
        total = reduce_in_order(self.rooms, "sum")
        pieces = torch.split(total, [unit.cuts[rank] for unit in self.bundle])
        for unit, piece in zip(self.bundle, pieces, strict=True):
            if whole:
                assert unit.gradient is not None
                unit.gradient[unit.span(rank)] = piece
            else:
                unit.gradient = piece


def _taken(replica: Replica, unit: Unit, step: int) -> torch.Tensor:
    """The gradient of a unit, end to end; zeros where there is none, and ``.grad`` forgotten."""
    parts = []
    for name, value in zip(unit.names, unit.parameters, strict=True):
        gradient, value.grad = value.grad, None
        if gradient is None:
            gradient = torch.zeros(value.shape, dtype=value.dtype, device=value.device)
        elif gradient.layout is not torch.strided:
            raise ValueError(
                f"the gradient of {name} is a sparse tensor ({gradient.layout}); gradients are "
                "exchanged dense: make the layer without sparse=True"
            )
        elif not _finite(gradient):
            raise FloatingPointError(
                f"the gradient of {name} is not finite on rank {replica.rank} at step {step}"
            )
        parts.append(gradient.detach().reshape(-1))
    return torch.cat(parts)


def _finite(gradient: torch.Tensor) -> bool:
    """One quick pass; only where it looks bad a closer look."""
    if gradient.is_complex():
        return bool(torch.isfinite(gradient).all())
    wide = torch.float32 if gradient.element_size() < 4 else gradient.dtype
    return math.isfinite(gradient.sum(dtype=wide).item()) or bool(torch.isfinite(gradient).all())
