"""Scheduled all-reduce on real ranks: a schedule executed chunk by chunk, dimension by dimension.

The ranks stand in a grid of the network's dimensions, the first varying fastest. A chunk's
reduce-scatter in a dimension is an all-to-all of its pieces and a sum in order of the coordinate;
its all-gather, an all-to-all of one piece. All ranks start these in one order, which the model of
the queues gives, and several chunks are under way at the same time.

Source: S. Rashidi et al., ISCA 2022, arXiv 2110.04478, which leaves open how a stage is executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from dtoolkit.comm.arguments import check_order, dimensions_of
from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.exchange import plain
from dtoolkit.comm.network import Dimension, Network
from dtoolkit.comm.reduction import check_reduction, reduce_in_order
from dtoolkit.comm.schedules import Schedule, Stage
from dtoolkit.comm.schedules import schedule as make_schedule
from dtoolkit.comm.serving import call_order
from dtoolkit.comm.themis import Policy
from dtoolkit.errors import MessageMismatch

__all__ = ["all_reduce_scheduled", "grid_groups"]

Groups = tuple[Communicator | None, ...]


def all_reduce_scheduled(
    ctx: Any,
    tensor: torch.Tensor,
    network: Network | Sequence[int],
    schedule: Schedule | str | Policy | Sequence[Sequence[int]] = "themis",
    *,
    chunks: int = 64,
    order: str = "fifo",
    op: str = "sum",
    groups: Groups | None = None,
    agreed: bool = False,
) -> torch.Tensor:
    """Combine a tensor over all ranks as a schedule says; every rank gets the whole result.

    Terms are added in a fixed order: in the first dimension that a chunk visits by coordinate, the
    sums of that in the second dimension by coordinate, and so on. All ranks hold the same bits, and
    a repetition gives them again; another schedule rounds differently. Integers are exact.
    bfloat16 and float16 are added in float32 and rounded once a dimension.

    Parameters
    ----------
    ctx : Context or Communicator
        All of its ranks must call.
    tensor : torch.Tensor
        Same shape and dtype on all ranks; any shape, also smaller than the number of ranks.
    network : Network or sequence of int
        Its dimensions are the grid, the first varying fastest; or the ranks in each dimension,
        which then count as equally fast.
    schedule : Schedule, {"themis", "baseline"}, Policy, or sequence of orders
        As data, or what chooses it, or for each chunk a permutation of the dimensions.
    chunks : int
        Number of chunks where a policy chooses. A rank sends each chunk's pieces in messages of
        their own: few chunks suit small tensors.
    order : {"fifo", "scf"}
        Order in the queues of the model that tells in what order calls are made.
    op : {"sum", "mean", "prod", "min", "max"}
        As in :meth:`Communicator.all_reduce`; a mean is one of means.
    groups : tuple of Communicator, optional
        What :func:`grid_groups` made of this `ctx` and `network`, to be used again: forming groups
        takes longer than a small all-reduce.
    agreed : bool
        The ranks are known to have equal arguments, so that nothing is compared. Sizes that do not
        fit end a process.

    Returns
    -------
    torch.Tensor
        New, of the shape, dtype and device of `tensor`.

    Raises
    ------
    ValueError
        Naming the argument that is wrong; before anything is sent.
    MessageMismatch
        The ranks differ in shape, dtype, schedule, order or op; before anything of it is sent.
    """
    comm = _communicator(ctx)
    plan = _plan(network, schedule, chunks)
    check_order(order)
    check_reduction(op, tensor)
    if plan.ranks != comm.size:
        raise ValueError(f"network has {plan.ranks} ranks ({plan.shape}), ctx has {comm.size}")
    if not agreed:
        _compare(comm, f"{plan.to_json()} {order} {op} {tuple(tensor.shape)} {tensor.dtype}")
    if groups is None:
        groups = grid_groups(comm, plan.shape)
    _check_groups(comm, groups, plan.shape)
    source = plain(tensor).reshape(-1)
    total = torch.empty_like(source) if comm.size > 1 else source.clone()
    pieces = zip(
        torch.tensor_split(source, plan.chunks),
        torch.tensor_split(total, plan.chunks),
        strict=True,
    )
    under_way = [_Chunk(groups, op, *piece) for piece in pieces]
    for number, stage in call_order(plan, order):
        chunk, name = under_way[number], plan.stages(number)[stage]
        chunk.finish()
        with comm.phase(f"scheduled/{name.operation} {name.dimension}"):
            chunk.start(name)
    for chunk in under_way:
        chunk.finish()
    return total.reshape(tensor.shape)


def grid_groups(ctx: Any, network: Network | Sequence[int]) -> Groups:
    """Form a group of ranks along each dimension; all ranks must call.

    Parameters
    ----------
    ctx : Context or Communicator
    network : Network or sequence of int
        As in :func:`all_reduce_scheduled`.

    Returns
    -------
    tuple of Communicator or None
        For each dimension the ranks that differ from this one in that coordinate alone, by
        coordinate; None where the dimension has one rank.
    """
    comm = _communicator(ctx)
    shape = tuple(d.ranks for d in _dimensions(network))
    if prod(shape) != comm.size:
        raise ValueError(f"network has {prod(shape)} ranks ({shape}), ctx has {comm.size}")
    # A grid of the communicator has its last axis fastest.
    axes = iter(reversed(comm.grid([n for n in reversed(shape) if n > 1])))
    return tuple(next(axes) if n > 1 else None for n in shape)


class _Chunk:
    """A chunk on its way: what this rank holds of it, and the stage that is under way."""

    def __init__(self, groups: Groups, op: str, source: torch.Tensor, total: torch.Tensor) -> None:
        self._groups = groups
        self._op = op
        self._held = source
        self._spans = [total]  # where what is held belongs in the result, at each depth
        self._finish: Callable[[], None] = _nothing

    def start(self, stage: Stage) -> None:
        """Start a stage without waiting for it."""
        group = self._groups[stage.dimension]
        assert group is not None  # a dimension of one rank has no stages
        if stage.operation == "reduce_scatter":
            self._scatter(group)
        else:
            self._gather(group)

    def finish(self) -> None:
        """Wait for the stage that is under way, if one is, and put its result in place."""
        self._finish()
        self._finish = _nothing

    def _scatter(self, group: Communicator) -> None:
        pieces = list(torch.tensor_split(self._held, group.size))
        span = torch.tensor_split(self._spans[-1], group.size)[group.rank]
        buffer = torch.empty(span.numel() * group.size, dtype=span.dtype, device=span.device)
        out = list(buffer.view(group.size, -1))
        call = group.all_to_all(pieces, out=out, agreed=True, wait=False)
        self._spans.append(span)

        def finish() -> None:
            self._held = span.copy_(reduce_in_order(call.wait(), self._op))

        self._finish = finish

    def _gather(self, group: Communicator) -> None:
        own = self._spans.pop()
        out = list(torch.tensor_split(self._spans[-1], group.size))
        call = group.all_to_all([own] * group.size, out=out, agreed=True, wait=False)
        self._finish = call.wait


def _nothing() -> None:
    """No stage is under way."""


def _communicator(ctx: Any) -> Communicator:
    comm = getattr(ctx, "comm", ctx)
    if not isinstance(comm, Communicator):
        raise ValueError(f"ctx must be a Context or a Communicator, got {type(ctx).__name__}")
    return comm


def _plan(
    network: Network | Sequence[int],
    schedule: Schedule | str | Policy | Sequence[Sequence[int]],
    chunks: int,
) -> Schedule:
    dimensions = _dimensions(network)
    shape = tuple(d.ranks for d in dimensions)
    if isinstance(schedule, Schedule):
        plan = schedule
    elif isinstance(schedule, Sequence) and not isinstance(schedule, str):
        plan = Schedule(dimensions, tuple(tuple(one) for one in schedule))
    else:
        plan = make_schedule(Network.dims(dimensions), schedule, chunks=chunks)
    if plan.shape != shape:
        raise ValueError(f"schedule is for {plan.shape} ranks, network has {shape}")
    if plan.operation != "all_reduce":
        raise ValueError(f"schedule is for {plan.operation}, wanted one for all_reduce")
    return plan


def _dimensions(network: Network | Sequence[int]) -> tuple[Dimension, ...]:
    if isinstance(network, Network):
        return dimensions_of(network)
    try:
        return tuple(Dimension("switch", n, 1.0) for n in network)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"network must be a Network or the ranks in each dimension, got {network!r}"
        ) from error


def _check_groups(comm: Communicator, groups: Groups, shape: tuple[int, ...]) -> None:
    stride, wanted = 1, []
    for n in shape:
        first = comm.rank - comm.rank // stride % n * stride
        wanted.append(tuple(comm.ranks[first + i * stride] for i in range(n)) if n > 1 else None)
        stride *= n
    got = [None if group is None else group.ranks for group in groups]
    if got != wanted:
        raise ValueError(
            f"groups are of ranks {got}, a grid of {shape} has {wanted}: make them with "
            "grid_groups(ctx, network)"
        )


def _compare(comm: Communicator, what: str) -> None:
    """Make sure that all ranks are about to do the same."""
    digest = int.from_bytes(hashlib.blake2b(what.encode(), digest_size=8).digest(), "big") >> 1
    with comm.phase("scheduled/agree"):
        said = comm.all_gather(torch.tensor([digest])).flatten().tolist()
    others = [comm.ranks[r] for r, number in enumerate(said) if number != digest]
    if others:
        raise MessageMismatch(
            f"all_reduce_scheduled: rank {comm.ranks[comm.rank]} and "
            f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others))} differ in the tensor's "
            "shape or dtype, the schedule, the order or op; a policy must choose the same on all "
            "ranks"
        )
