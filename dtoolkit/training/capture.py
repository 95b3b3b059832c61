"""The state of a run taken from its ranks, put back into them, and held against the others'."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.errors import ReplicaMismatch
from dtoolkit.training.optimizer_state import load_optimizer, optimizer_state
from dtoolkit.training.plain import digest_of, plain
from dtoolkit.training.sparse import with_masks, without_masks
from dtoolkit.training.state import RunState
from dtoolkit.training.terms import partition_terms

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.strategy import Strategy

__all__ = ["capture", "check_same", "own_part", "replica_state", "restore", "run_state"]

COUNT = "count of steps"
"""Where a rank's own count is kept, if it is not that of the run."""


def capture(
    replica: Replica, strategy: Strategy, *, step: int, count: int, model: dict[str, torch.Tensor]
) -> RunState | None:
    """The state of the run, on rank 0; collective.

    Parameters
    ----------
    replica : Replica
    strategy : Strategy
    step : int
        Steps of the run that are done.
    count : int
        Steps that this rank has made.
    model : dict of tensors
        What the strategy reconciled.

    Returns
    -------
    RunState or None
        None on the other ranks.
    """
    own = dict(plain(strategy.own_state(), "the strategy's own state"))
    if count != step:
        own[COUNT] = count
    gathered = _gather_own(replica, own)
    if gathered is None:
        return None
    return run_state(
        replica, strategy, step=step, model=model, own=tuple(gathered), workers=replica.size
    )


def run_state(
    replica: Replica,
    strategy: Strategy,
    *,
    step: int,
    model: dict[str, torch.Tensor],
    workers: int,
    own: tuple[dict[str, Any], ...] = (),
) -> RunState:
    """The state of a run whose ranks hold what this one does, beside what is each one's own.

    Parameters
    ----------
    replica : Replica
    strategy : Strategy
    step : int
        Steps of the run that are done.
    model : dict of tensors
        The one model of all ranks.
    workers : int
        Ranks that the run began with.
    own : tuple of dict
        What is each rank's own.
    """
    here = replica_state(replica, step)
    dense, masks = without_masks(replica.model, model)
    return RunState(
        step=step,
        strategy=strategy.name,
        workers=workers,
        seed=replica.settings.seed,
        model=plain(dense, "the model"),
        optimizer=here.optimizer,
        schedule=here.schedule,
        sampler=here.sampler,
        masks=plain(masks, "the masks"),
        sparsity=here.sparsity,
        own=own,
        terms={
            **replica.settings.terms,
            "partition": partition_terms(
                replica.settings.partition, replica.sampler.samples, workers
            ),
        },
    )


def replica_state(replica: Replica, step: int, *, copy: bool = True) -> RunState:
    """What one rank holds, by itself; as copies, or as it is for who only looks at it."""
    sampler, schedule, sparse = replica.sampler, replica.schedule, replica.sparse
    model, masks = without_masks(replica.model, replica.model.state_dict())
    return RunState(
        step=step,
        strategy="",
        workers=1,
        seed=replica.settings.seed,
        model=plain(model, "the model", copy=copy),
        optimizer=optimizer_state(replica.optimizer, _all_parameters(replica), copy=copy),
        schedule=None if schedule is None else plain(schedule.state_dict(), "the schedule"),
        sampler={
            "samples": sampler.samples,
            "batch": sampler.size,
            "accumulate": sampler.accumulate,
        },
        masks=plain(masks, "the masks", copy=copy),
        sparsity={} if sparse is None else plain(sparse.state(), "the state of sparsity"),
    )


def restore(replica: Replica, state: RunState) -> None:
    """Put a state into a rank's model, optimizer and schedule, to the bit.

    Raises
    ------
    ValueError
        The state is of another model, optimizer or schedule.
    """
    if replica.sparse is not None:
        replica.sparse.prepare(state.sparsity)
    replica.model.load_state_dict(with_masks(replica.model, state.model, state.masks))
    load_optimizer(replica.optimizer, state.optimizer, _all_parameters(replica))
    if (replica.schedule is None) != (state.schedule is None):
        has, had = ("none", "one") if replica.schedule is None else ("one", "none")
        raise ValueError(f"resume: the saved run has {had} schedule, and the task has {has}")
    if replica.schedule is not None and state.schedule is not None:
        replica.schedule.load_state_dict(plain(state.schedule, "the schedule"))
    if replica.sparse is not None:
        replica.sparse.load(state.sparsity, state.masks)


def own_part(state: RunState, rank: int) -> tuple[dict[str, Any], int]:
    """What is a rank's own in a state, for the strategy, and its count of steps."""
    own = dict(state.own[rank]) if rank < len(state.own) else {}
    return own, int(own.pop(COUNT, state.step))


def check_same(replica: Replica, step: int) -> None:
    """Hold the states of all ranks against each other; collective.

    Raises
    ------
    ReplicaMismatch
        On every rank, if they differ.
    """
    if replica.size == 1:
        return
    fields = replica_state(replica, step, copy=False).fields()
    mine = torch.frombuffer(bytearray.fromhex(digest_of(fields)), dtype=torch.uint8)
    with replica.comm.phase("comparison"):
        said = replica.comm.all_gather(mine)
    if bool((said == said[0]).all()):
        return
    text = torch.frombuffer(bytearray(json.dumps(fields).encode()), dtype=torch.uint8)
    each = [json.loads(bytes(one.tolist())) for one in replica.comm.all_gather_v(text)]
    names = [n for n in dict.fromkeys(n for one in each for n in one) if _differ(each, n)]
    ranks = [rank for rank, one in enumerate(each) if one != each[0]]
    raise ReplicaMismatch(fields=names, ranks=ranks, step=step)


def _gather_own(replica: Replica, own: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Bring every rank's own part to rank 0; collective."""
    content = b""
    if own:
        buffer = io.BytesIO()
        torch.save(own, buffer)
        content = buffer.getvalue()
    data = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else _NOTHING
    with replica.comm.phase("state"):
        came = replica.comm.gather(data)
    if came is None:
        return None
    return [
        torch.load(io.BytesIO(one.cpu().numpy().tobytes()), weights_only=True) if len(one) else {}
        for one in came
    ]


_NOTHING = torch.empty(0, dtype=torch.uint8)


def _differ(each: list[dict[str, str]], name: str) -> bool:
    return any(one.get(name) != each[0].get(name) for one in each)


def _all_parameters(replica: Replica) -> list[tuple[str, Any]]:
    """Learned parameters, and what an optimizer holds that is none."""
    known = {id(parameter) for _, parameter in replica.parameters}
    rest = [
        parameter
        for group in replica.optimizer.param_groups
        for parameter in group["params"]
        if id(parameter) not in known
    ]
    return [*replica.parameters, *((f"unnamed.{i}", p) for i, p in enumerate(rest))]
