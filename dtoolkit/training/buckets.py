"""Gradients in a few flat buckets, summed over ranks while backward still runs.

Backward gives gradients from the last layer to the first. As soon as those of a bucket are there
its sum starts, in the background and in the same order on all ranks; a parameter that a rank did
not use counts as zeros. Which parameters were used, how many samples, and when the rank was ready
travels in one small message behind, of two ranks as the end of the last bucket. Where all gradients
together are as small as that, they travel in it. Of a masked parameter only the live values
travel.
"""

from __future__ import annotations

import cmath
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dtoolkit.comm.reduction import reduce_in_order
from dtoolkit.comm.standing import StandingGather, StandingSum
from dtoolkit.training.live_values import LiveValues

__all__ = ["MEGABYTES", "Buckets", "Totals"]

MEGABYTES = 25.0
"""Size of a bucket: few messages, and of a large model the first leaves early."""

_SMALL = 1024  # bytes of gradients that go with the small message: one round instead of two
_HEAD = 16  # bytes of the small message before the flags
_READY, _SAMPLES, _FLAG = slice(0, 8), slice(8, 12), 12  # float64, int32 and a byte of the head


@dataclass(frozen=True)
class Totals:
    """What the ranks told each other beside the gradients.

    Attributes
    ----------
    samples : tuple of int
        Samples that each rank used, in rank order.
    flagged : bool
        Whether any rank raised the flag.
    idle : float
        Seconds from when this rank was ready until the last one was, as exact as clocks agree.
    """

    samples: tuple[int, ...]
    flagged: bool
    idle: float


class Buckets:
    """The gradients of some parameters, to be summed over ranks step by step.

    A step is :meth:`begin`, any number of backward passes, and :meth:`finish`; :meth:`arm` before
    the last pass lets buckets leave while it runs. After that ``.grad`` of every parameter that
    any rank used is its sum over ranks, in rank order, the same bits on all; of the others it is
    None.

    Parameters
    ----------
    parameters : list of (str, nn.Parameter)
        What is learned; the same on all ranks. They may differ in dtype.
    comm : Communicator
    megabytes : float
        Size of a bucket.
    clock : callable
        Seconds on a clock that all ranks share.
    masks : mapping of str to bool tensor, optional
        By name of a parameter, which of its values travel; the same on all ranks. The gradient of
        the others is 0 after :meth:`finish`.
    phase : str
        Of the trace, to which what is sent belongs.
    agreed : bool
        True: ranks know that they have the same parameters and masks; nothing is sent for it here.

    Raises
    ------
    MessageMismatch
        Ranks have other parameters.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        comm: Any,
        *,
        megabytes: float = MEGABYTES,
        clock: Callable[[], float] = time.perf_counter,
        masks: Mapping[str, torch.Tensor] | None = None,
        phase: str = "gradients",
        agreed: bool = False,
    ) -> None:
        self._comm, self._clock, self._phase = comm, clock, phase
        self._names = [name for name, _ in parameters]
        self._parameters = [value for _, value in parameters]
        self._live = [LiveValues.of((masks or {}).get(name), value) for name, value in parameters]
        self._numels = [
            value.numel() if live is None else len(live)
            for value, live in zip(self._parameters, self._live, strict=True)
        ]
        bytes_of = [
            count * value.element_size()
            for count, value in zip(self._numels, self._parameters, strict=True)
        ]
        groups = _groups(self._parameters, bytes_of, megabytes)
        flags = -(-len(parameters) // _HEAD) * _HEAD  # what follows is aligned for any dtype
        sizes = [sum(bytes_of[number] for number in group) for group in groups]
        self._together = sum(sizes) <= min(_SMALL, megabytes * 2**20)
        room = sum(-(-size // _HEAD) * _HEAD for size in sizes) if self._together else 0
        self._pair = comm.size == 2 and not self._together
        last = -(-sizes[-1] // _HEAD) * _HEAD if self._pair else 0
        device = self._parameters[0].device if parameters else comm.device
        message = torch.zeros(last + _HEAD + flags + room, dtype=torch.uint8, device=device)
        self._last, self._told = message[:last], message[last:]
        self._flags = slice(_HEAD, _HEAD + len(parameters))
        self._lay(groups, sizes, _HEAD + flags)
        self._telling = StandingGather(comm, self._told, agreed=agreed)
        self._sums: list[StandingSum] = []
        if not self._together:
            messages = [None] * (len(groups) - 1) + [message if self._pair else None]
            self._sums = [
                StandingSum(comm, bucket.flat, message=one, agreed=agreed)
                for bucket, one in zip(self._buckets, messages, strict=True)
            ]
        self._step = 0
        self._armed = False
        self._used = [False] * len(parameters)
        self._under_way: list[Any] = []
        self._waiting = [0] * len(groups)
        self._hooks = [
            value.register_post_accumulate_grad_hook(self._hook(number))
            for number, value in enumerate(self._parameters)
        ]

    def begin(self, step: int) -> None:
        """Forget the gradients of the step before."""
        self._step, self._armed = step, False
        self._used = [False] * len(self._parameters)
        self._under_way = []
        for value in self._parameters:
            value.grad = None

    def arm(self) -> None:
        """Let buckets leave during the backward pass that follows, which must be the last."""
        self._waiting = [len(bucket.numbers) for bucket in self._buckets]
        self._armed = True

    def finish(self, samples: int, *, flag: bool = False) -> Totals:
        """Send what has not left, and wait until all sums are there.

        Parameters
        ----------
        samples : int
            Samples that this rank used in the step.
        flag : bool
            Anything that a rank wants all to know.

        Raises
        ------
        FloatingPointError
            A gradient of this rank is not finite.
        """
        self._armed = False
        if self._together:
            for bucket in self._buckets:
                self._ready(bucket)
        ready = self._fill(samples, flag)
        while len(self._under_way) < len(self._sums):
            self._send()
        if not self._pair:
            with self._comm.phase(self._phase):
                self._telling.run()
        for pending in self._under_way:
            pending.wait()
        said = self._said()
        if self._together:
            self._add(said)
        self._give(said[:, self._flags].amax(0).tolist() if self._parameters else [])
        # What is told may wait for the gradients' bytes: so each rank says when it was ready.
        last = float(_read(said[:, _READY], torch.float64).max())
        idle = min(max(last - ready, 0.0), self._clock() - ready)
        counts = _read(said[:, _SAMPLES], torch.int32).tolist()
        return Totals(tuple(counts), bool(said[:, _FLAG].any()), idle)

    def close(self) -> None:
        """Leave the parameters alone."""
        for hook in self._hooks:
            hook.remove()

    def _lay(self, groups: list[list[int]], sizes: list[int], start: int) -> None:
        """Say where each gradient lies: in memory of its bucket, or in the small message."""
        self._buckets: list[_Bucket] = []
        self._home: list[tuple[int, torch.Tensor]] = [(0, self._told)] * len(self._parameters)
        for place, (numbers, size) in enumerate(zip(groups, sizes, strict=True)):
            first = self._parameters[numbers[0]]
            span = slice(start, start + size)
            start += -(-size // _HEAD) * _HEAD
            if self._together:
                flat = self._told[span].view(first.dtype)
            elif self._pair and place == len(groups) - 1:
                flat = self._last[:size].view(first.dtype)
            else:
                flat = torch.zeros(
                    size // first.element_size(), dtype=first.dtype, device=first.device
                )
            self._buckets.append(_Bucket(flat, span, tuple(numbers)))
            pieces = flat.split([self._numels[number] for number in numbers])
            for number, piece in zip(numbers, pieces, strict=True):
                whole = self._live[number] is None
                shape = self._parameters[number].shape if whole else piece.shape
                self._home[number] = (place, piece.view(shape))

    def _hook(self, number: int) -> Callable[[torch.Tensor], None]:
        place, view = self._home[number]

        def take(value: torch.Tensor) -> None:
            if not self._used[number]:
                gradient = self._dense(number)
                if self._live[number] is None:
                    view.copy_(gradient)
                    value.grad = view  # further passes add to it in place
                self._used[number] = True
            if self._armed:
                self._count(number, place)

        return take

    def _dense(self, number: int) -> torch.Tensor:
        gradient = self._parameters[number].grad
        assert gradient is not None
        if gradient.layout is not torch.strided:
            raise ValueError(
                f"the gradient of {self._names[number]} is a sparse tensor ({gradient.layout}); "
                "gradients are exchanged dense: make the layer without sparse=True"
            )
        return gradient

    def _count(self, number: int, place: int) -> None:
        self._waiting[place] -= 1
        if self._waiting[place] < 0:
            raise ValueError(
                f"{self._names[number]} got a gradient after its bucket had left: a backward pass "
                "inside backward (torch.utils.checkpoint with use_reentrant=True) needs "
                "DataParallel(overlap=False), or use_reentrant=False"
            )
        while len(self._under_way) < len(self._sums) - 1:  # the last one waits for finish
            if self._waiting[len(self._under_way)]:
                return
            self._send()

    def _send(self) -> None:
        """Start the sum of the next bucket."""
        place = len(self._under_way)
        self._ready(self._buckets[place])
        with self._comm.phase(self._phase):
            self._under_way.append(self._sums[place].start())

    def _fill(self, samples: int, flag: bool) -> float:
        """Write the small message; when that was."""
        ready = self._clock()
        self._told[_READY] = torch.tensor([ready], dtype=torch.float64).view(torch.uint8)
        self._told[_SAMPLES] = torch.tensor([samples], dtype=torch.int32).view(torch.uint8)
        self._told[_FLAG] = flag
        self._told[self._flags] = torch.tensor(self._used, dtype=torch.uint8)
        return ready

    def _said(self) -> torch.Tensor:
        """The small messages of all ranks, which have come."""
        if not self._pair:
            return self._telling.whole
        came = self._sums[-1].came
        assert came is not None
        rows = [self._told, came[len(self._last) :]]
        return torch.stack(rows if self._comm.rank == 0 else rows[::-1])

    def _ready(self, bucket: _Bucket) -> None:
        """Zeros for what was not used here, live values of the rest; refuse what is not finite."""
        for number in bucket.numbers:
            live, home = self._live[number], self._home[number][1]
            if not self._used[number]:
                home.zero_()
            elif live is not None:
                live.take(self._dense(number), out=home)
        if bucket.finite():  # one pass over memory; only where it looks bad a closer look
            return
        for number in bucket.numbers:
            if not bool(torch.isfinite(self._home[number][1]).all()):
                raise FloatingPointError(
                    f"the gradient of {self._names[number]} is not finite on rank "
                    f"{self._comm.rank} at step {self._step}"
                )

    def _add(self, said: torch.Tensor) -> None:
        """Sum what came with the small messages."""
        for bucket in self._buckets:
            rows = [row[bucket.span].view(bucket.flat.dtype) for row in said]
            bucket.flat.copy_(reduce_in_order(rows, "sum"))

    def _give(self, used: list[int]) -> None:
        for number, value in enumerate(self._parameters):
            live, home = self._live[number], self._home[number][1]
            if not used[number]:
                value.grad = None
            else:
                value.grad = home if live is None else live.spread(home, over=value.grad)


@dataclass(frozen=True)
class _Bucket:
    flat: torch.Tensor
    span: slice  # of its bytes in the small message
    numbers: tuple[int, ...]  # of its parameters

    def finite(self) -> bool:
        wide = torch.float32 if self.flat.element_size() < 4 else self.flat.dtype
        total = self.flat.sum(dtype=wide).item()
        return cmath.isfinite(total)


def _read(columns: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """One number a rank."""
    return columns.contiguous().view(dtype)[:, 0]


def _groups(parameters: list[nn.Parameter], sizes: list[int], megabytes: float) -> list[list[int]]:
    """Which parameters share a bucket, from the last to the first; each bucket of one dtype."""
    groups: list[list[int]] = []
    filling: dict[torch.dtype, tuple[list[int], float]] = {}  # and the room that is left
    for number in reversed(range(len(parameters))):
        value = parameters[number]
        size = sizes[number] / 2**20
        group, room = filling.get(value.dtype, ([], 0.0))
        if not group or size > room:
            group, room = [], megabytes
            groups.append(group)
        group.append(number)
        filling[value.dtype] = (group, room - size)
    return groups
