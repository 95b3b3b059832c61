"""Gradients summed among those who hold a part, and weights given to those who do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.training.sharding.units import Place
from dtoolkit.training.subnetworks.plan import Part, SubnetworkPlan

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Sharing"]


class Sharing:
    """One rank's parts of a model, and its exchanges with others who hold them.

    All ranks make it together: a set of holders that are not all ranks gets a communicator.

    Parameters
    ----------
    replica : Replica
    plan : SubnetworkPlan

    Attributes
    ----------
    held : list of (Place, torch.Tensor)
        What this rank holds, and where it lies: in the shape of the parameter where that is whole.
    told : list of bool
        Whether this rank is the first of those who hold it.
    absent : list of int
        Numbers of parameters of which this rank holds nothing.
    """

    def __init__(self, replica: Replica, plan: SubnetworkPlan) -> None:
        self._replica = replica
        self._numbers = {name: number for number, (name, _) in enumerate(replica.parameters)}
        for _, value in replica.parameters:
            if not value.is_contiguous():
                value.data = value.data.contiguous()
        self.held: list[tuple[Place, torch.Tensor]] = []
        self.told: list[bool] = []
        self._sets: list[tuple[tuple[int, ...], Any, list[Part]]] = []
        for holders, parts in plan.sets().items():
            mine = replica.rank in holders
            comm = replica.comm
            if 1 < len(holders) < replica.size:
                comm = comm.split(0 if mine else None)
            if mine:
                self._sets.append((holders, comm, list(parts)))
                self.held += [self._place(part) for part in parts]
                self.told += [replica.rank == holders[0]] * len(parts)
        here = {place.number for place, _ in self.held}
        self.absent = [n for n in range(len(replica.parameters)) if n not in here]
        self._routes = _routes(plan, replica.rank)

    def sum(
        self, used: torch.Tensor, samples: Sequence[int], divided: int
    ) -> list[torch.Tensor | None]:
        """Mean gradients over holders, by their samples, in the order of :attr:`held`; collective.

        ``.grad`` of all parameters goes. None where no holder has used a parameter.

        Parameters
        ----------
        used : bool tensor, shape (ranks, parameters)
        samples : sequence of int
            That each rank has used.
        divided : int
            What this rank's gradients were divided by.
        """
        found: list[torch.Tensor | None] = []
        for holders, comm, parts in self._sets:
            count = sum(samples[rank] for rank in holders)
            sums = self._summed(comm, len(holders), parts)
            for part, total in zip(parts, sums, strict=True):
                had = bool(used[list(holders), self._numbers[part.parameter]].any())
                if count and count != divided:
                    total.mul_(divided / count)
                found.append(total if had and count else None)
        for _, value in self._replica.parameters:
            value.grad = None
        return found

    def spread(self) -> None:
        """Give every rank the weights that it does not hold, from those who do; collective."""
        comm = self._replica.comm
        for dtype in dict.fromkeys(value.dtype for _, value in self._replica.parameters):
            sends = [self._flat(parts, dtype) for parts in self._routes[0]]
            targets = [
                [self._memory(p) for p in parts if self._parameter(p).dtype == dtype]
                for parts in self._routes[1]
            ]
            rooms = [
                torch.empty(sum(map(torch.numel, some)), dtype=dtype, device=comm.device)
                for some in targets
            ]
            comm.all_to_all(sends, out=rooms, agreed=True)
            for room, some in zip(rooms, targets, strict=True):
                for piece, memory in zip(
                    torch.split(room, [memory.numel() for memory in some]), some, strict=True
                ):
                    memory.copy_(piece)

    def _summed(self, comm: Any, holders: int, parts: list[Part]) -> list[torch.Tensor]:
        """Sums of the gradients of some parts, over those who hold them."""
        sums: dict[int, torch.Tensor] = {}
        dtypes = [self._parameter(part).dtype for part in parts]
        for dtype in dict.fromkeys(dtypes):
            some = [number for number, one in enumerate(dtypes) if one == dtype]
            flat = torch.cat([self._gradient(parts[number]) for number in some])
            total = comm.all_reduce(flat) if holders > 1 else flat
            pieces = torch.split(total, [len(parts[number]) for number in some])
            sums |= dict(zip(some, pieces, strict=True))
        return [sums[number] for number in range(len(parts))]

    def _gradient(self, part: Part) -> torch.Tensor:
        value = self._parameter(part)
        if value.grad is None:
            return torch.zeros(len(part), dtype=value.dtype, device=value.device)
        return value.grad.detach().reshape(-1)[part.start : part.stop]

    def _parameter(self, part: Part) -> torch.Tensor:
        return self._replica.parameters[self._numbers[part.parameter]][1]

    def _memory(self, part: Part) -> torch.Tensor:
        return self._parameter(part).detach().view(-1)[part.start : part.stop]

    def _place(self, part: Part) -> tuple[Place, torch.Tensor]:
        value = self._parameter(part)
        place = Place(self._numbers[part.parameter], part.start, part.stop, 0)
        return place, value.detach() if len(part) == value.numel() else self._memory(part)

    def _flat(self, parts: Sequence[Part], dtype: torch.dtype) -> torch.Tensor:
        some = [self._memory(part) for part in parts if self._parameter(part).dtype == dtype]
        device = self._replica.comm.device
        return torch.cat([torch.empty(0, dtype=dtype, device=device), *some])


def _routes(plan: SubnetworkPlan, rank: int) -> tuple[list[list[Part]], list[list[Part]]]:
    """What a rank sends to each other, and gets from each; holders send in turn."""
    sends: list[list[Part]] = [[] for _ in range(plan.workers)]
    comes: list[list[Part]] = [[] for _ in range(plan.workers)]
    for block in plan.blocks:
        others = [worker for worker in range(plan.workers) if worker not in block.holders]
        for turn, target in enumerate(others):
            source = block.holders[turn % len(block.holders)]
            if source == rank:
                sends[target] += block.parts
            if target == rank:
                comes[source] += block.parts
    return sends, comes
