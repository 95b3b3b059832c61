"""Gradients in a few flat buckets, summed over ranks while backward still runs.

Backward gives gradients from the last layer to the first. As soon as those of a bucket are there
its sum starts, in the background and in the same order on all ranks; a parameter that a rank did
not use counts as zeros. Which parameters were used by whom, and how many samples, travels in one
small message beside.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["Buckets", "Totals"]

MEGABYTES = 4.0
"""Size of a bucket: large enough that messages are, small enough that the first leaves early."""


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
        Seconds from this rank's own arrival until the last one had arrived.
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

    Raises
    ------
    ValueError
        Ranks have other parameters.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        comm: Any,
        *,
        megabytes: float = MEGABYTES,
    ) -> None:
        self._comm = comm
        self._names = [name for name, _ in parameters]
        self._parameters = [value for _, value in parameters]
        self._buckets, self._home = _filled(self._parameters, megabytes)
        self._compare()
        self._step = 0
        self._armed = False
        self._used = [False] * len(parameters)
        self._sums: list[Any] = []
        self._waiting = [0] * len(self._buckets)
        self._hooks = [
            value.register_post_accumulate_grad_hook(self._hook(number))
            for number, value in enumerate(self._parameters)
        ]

    def begin(self, step: int) -> None:
        """Forget the gradients of the step before."""
        self._step, self._armed = step, False
        self._used = [False] * len(self._parameters)
        self._sums = []
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
        told = torch.zeros(9 + len(self._used), dtype=torch.uint8)
        told[:8] = torch.tensor([samples]).view(torch.uint8)
        told[8] = flag
        told[9:] = torch.tensor(self._used, dtype=torch.uint8)
        # The last bucket needs the first layer's gradient, and so the end of backward: on every
        # rank the small message goes before it.
        while len(self._sums) < len(self._buckets) - 1:
            self._send()
        arrival = time.perf_counter()
        telling = self._comm.all_gather(told, agreed=True, wait=False)
        if self._buckets:
            self._send()
        said = telling.wait()
        idle = time.perf_counter() - arrival
        for pending in self._sums:
            pending.wait()
        self._give(said[:, 9:].any(0).tolist())
        counts = said[:, :8].contiguous().view(torch.int64)[:, 0].tolist()
        return Totals(tuple(counts), bool(said[:, 8].any()), idle)

    def close(self) -> None:
        """Leave the parameters alone."""
        for hook in self._hooks:
            hook.remove()

    def _hook(self, number: int) -> Any:
        place, view = self._home[number]

        def take(value: torch.Tensor) -> None:
            if not self._used[number]:
                view.copy_(self._dense(number))
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
        # Not the last one: finish sends it, after the small message.
        while len(self._sums) < len(self._buckets) - 1 and self._waiting[len(self._sums)] == 0:
            self._send()

    def _send(self) -> None:
        """Start the sum of the next bucket."""
        bucket = self._buckets[len(self._sums)]
        for number in bucket.numbers:
            if not self._used[number]:
                self._home[number][1].zero_()
        self._check(bucket)
        with self._comm.phase("gradients"):
            self._sums.append(
                self._comm.all_reduce(bucket.flat, out=bucket.flat, agreed=True, wait=False)
            )

    def _check(self, bucket: _Bucket) -> None:
        # One pass over memory; only where it looks bad is it looked at closely.
        if bucket.finite():
            return
        for number in bucket.numbers:
            if not bool(torch.isfinite(self._home[number][1]).all()):
                raise FloatingPointError(
                    f"the gradient of {self._names[number]} is not finite on rank "
                    f"{self._comm.rank} at step {self._step}"
                )

    def _give(self, used: list[bool]) -> None:
        for number, value in enumerate(self._parameters):
            value.grad = self._home[number][1] if used[number] else None

    def _compare(self) -> None:
        """See once that all ranks have the same buckets: later nothing is compared."""
        learned = zip(self._names, self._parameters, strict=True)
        text = repr([(n, tuple(p.shape), p.dtype) for n, p in learned])
        mine = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        for rank, theirs in enumerate(self._comm.all_gather_v(mine)):
            if not torch.equal(mine, theirs):
                raise ValueError(
                    f"rank {self._comm.rank} and rank {rank} have models with other parameters: "
                    "task.model() must make the same everywhere"
                )


@dataclass(frozen=True)
class _Bucket:
    flat: torch.Tensor
    numbers: tuple[int, ...]  # of its parameters

    def finite(self) -> bool:
        wide = torch.float32 if self.flat.element_size() < 4 else self.flat.dtype
        return bool(torch.isfinite(self.flat.sum(dtype=wide)))


def _filled(
    parameters: list[nn.Parameter], megabytes: float
) -> tuple[list[_Bucket], list[tuple[int, torch.Tensor]]]:
    """Buckets from the last parameter to the first, and where each parameter's gradient lies."""
    groups: list[list[int]] = []
    filling: dict[torch.dtype, tuple[list[int], float]] = {}  # and the room that is left
    for number in reversed(range(len(parameters))):
        value = parameters[number]
        size = value.numel() * value.element_size() / 2**20
        group, room = filling.get(value.dtype, ([], 0.0))
        if not group or size > room:
            group, room = [], megabytes
            groups.append(group)
        group.append(number)
        filling[value.dtype] = (group, room - size)
    buckets = []
    home: dict[int, tuple[int, torch.Tensor]] = {}
    for place, numbers in enumerate(groups):
        first = parameters[numbers[0]]
        sizes = [parameters[number].numel() for number in numbers]
        flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        for number, piece in zip(numbers, torch.split(flat, sizes), strict=True):
            home[number] = (place, piece.view(parameters[number].shape))
        buckets.append(_Bucket(flat, tuple(numbers)))
    return buckets, [home[number] for number in range(len(parameters))]
