"""Parameters that are there while a module needs them: gathered before, given back after.

All ranks gather all units once a forward, in one order, and once a backward, in the other, so that
a rank that skips a module, or has no samples, takes part. What backward needs of a parameter is
asked for by autograd itself: instead of the tensor it saves where in a unit that lies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dtoolkit.training.sharding.recording import Asking
from dtoolkit.training.sharding.units import Unit, storage_of

__all__ = ["Gathering"]


class Gathering:
    """Units of a model of which a rank keeps its pieces, and gathers the whole as it is needed.

    Parameters
    ----------
    units : list of Unit
    asking : Asking
        The same on all ranks.
    comm : Communicator
        That nothing else uses while the model runs.

    Attributes
    ----------
    largest : int
        Bytes of parameters held at once so far, at most, while the model ran.
    seconds : float
        Spent in gathering since :meth:`around` was last entered.
    """

    def __init__(self, units: Sequence[Unit], asking: Asking, comm: Any) -> None:
        self._units, self._asking, self._comm = units, asking, comm
        self._turns = {unit: turn for turn, unit in enumerate(asking.order)}
        self._storages: dict[int, int] = {}
        self._phase, self._next = "", 0
        self._left = list(asking.times)
        self._saved = [0] * len(units)
        self._without = [0] * len(units)  # parameters whose gradient has not come
        self.largest, self.seconds = 0, 0.0
        self._hooks: list[Any] = []
        for module, numbers in asking.by_module.items():
            if module is not None:
                self._hooks.append(module.register_forward_pre_hook(self._before(numbers)))
                self._hooks.append(module.register_forward_hook(self._after(numbers)))
        for number, unit in enumerate(units):
            for value in unit.parameters:
                hook = value.register_post_accumulate_grad_hook(self._came(number))
                self._hooks.append(hook)

    def close(self) -> None:
        """Leave the model alone."""
        for hook in self._hooks:
            hook.remove()

    def all(self, phase: str) -> None:
        """Gather all units; collective. `phase` is that of the trace."""
        for unit in self._units:
            self._gather(unit, phase)

    def free(self) -> None:
        """Give all units back."""
        for unit in self._units:
            unit.free()

    @contextmanager
    def around(self) -> Iterator[None]:
        """One forward and its backward; nothing is whole afterwards. Collective."""
        self.seconds = 0.0
        self._phase, self._next = "forward", 0
        self._storages = {storage_of(unit.flat): n for n, unit in enumerate(self._units)}
        self._left = list(self._asking.times)
        self._saved = [0] * len(self._units)
        self._without = [len(unit.parameters) for unit in self._units]
        try:
            for number in self._asking.by_module.get(None, ()):
                self._need(number)
            with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
                yield
            self._turn()
            self._pass_by(len(self._units), keep=False)
        finally:
            self._phase = ""
        self.free()

    # --------------------------------------------------------------------------------- modules

    def _before(self, numbers: tuple[int, ...]) -> Callable[..., None]:
        def gather(module: nn.Module, args: Any) -> None:
            if self._phase:
                for number in numbers:
                    self._need(number)

        return gather

    def _after(self, numbers: tuple[int, ...]) -> Callable[..., None]:
        def give_back(module: nn.Module, args: Any, output: Any) -> None:
            if self._phase != "forward":
                return
            for number in numbers:
                self._left[number] -= 1
                if not self._left[number] and number not in self._asking.by_module.get(None, ()):
                    self._units[number].free()

        return give_back

    def _came(self, number: int) -> Callable[..., None]:
        def count(value: torch.Tensor) -> None:
            if self._phase == "backward":
                self._without[number] -= 1
                if self._without[number] <= 0 and not self._saved[number]:
                    self._units[number].free()

        return count

    # -------------------------------------------------------------------------------- autograd

    def _pack(self, value: torch.Tensor) -> torch.Tensor | _Where:
        number = self._storages.get(storage_of(value))
        if number is None:
            return value.detach()
        self._saved[number] += 1
        return _Where(number, value.shape, value.stride(), int(value.storage_offset()))

    def _unpack(self, saved: torch.Tensor | _Where) -> torch.Tensor:
        if isinstance(saved, torch.Tensor):
            return saved
        self._turn()
        self._need(saved.unit)
        self._saved[saved.unit] -= 1
        flat = self._units[saved.unit].flat.detach()
        return flat.as_strided(saved.shape, saved.stride, saved.offset)

    # ------------------------------------------------------------------------------- gathering

    def _need(self, number: int) -> None:
        """Gather all units up to one, in the order of all ranks."""
        if self._units[number].here:
            return
        turn = self._turns[number]
        turn = turn if self._phase == "forward" else len(self._units) - 1 - turn
        if turn < self._next:
            unit = self._units[number]
            raise ValueError(
                f"stage 3 has given {', '.join(unit.names)} back, and {unit.module or 'the model'} "
                "asks for it again: modules must run as often as in the first forward, which is "
                "made in eval mode; wanted Zero(stage=2), or a model that always runs alike"
            )
        self._pass_by(turn + 1, keep=True)

    def _pass_by(self, end: int, *, keep: bool) -> None:
        """Gather units up to a turn, to keep them, or because others do."""
        while self._next < end:
            order, turn = self._asking.order, self._next
            number = order[turn] if self._phase == "forward" else order[-1 - turn]
            self._next += 1
            self._gather(self._units[number])
            if not keep:
                self._units[number].free()

    def _turn(self) -> None:
        """Backward begins: forward's gathers that are left are made, and all is given back."""
        if self._phase == "forward":
            self._pass_by(len(self._units), keep=False)
            self.free()
            self._phase, self._next = "backward", 0

    def _gather(self, unit: Unit, phase: str = "parameters") -> None:
        began = time.perf_counter()
        assert unit.kept is not None
        unit.make_room()
        with self._comm.phase(phase):
            self._comm.all_to_all([unit.kept] * self._comm.size, out=unit.pieces(), agreed=True)
        if self._phase:
            self.largest = max(self.largest, sum(one.held for one in self._units))
        self.seconds += time.perf_counter() - began


@dataclass(frozen=True)
class _Where:
    unit: int
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
