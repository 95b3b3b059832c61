"""A rank that is behind, or new, gets the whole state of the run from a peer."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.training.capture import replica_state, restore
from dtoolkit.training.statefile import state_of, state_part

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["catch_up"]

_TAG = 2**20 - 3


def catch_up(
    replica: Replica,
    *,
    step: int,
    source: int,
    targets: Sequence[int],
    beside: dict[str, Any] | None = None,
) -> tuple[int, dict[str, Any] | None]:
    """Bring some ranks to the state of one; the others do nothing.

    Parameters
    ----------
    replica : Replica
    step : int
        Steps that are done.
    source : int
        Rank that has the state.
    targets : sequence of int
        Ranks that get it.
    beside : dict, optional
        Plain content that goes with it.

    Returns
    -------
    nbytes : int
        Bytes of the state, times those that got it; 0 on ranks that had no part in it.
    beside : dict or None
        On ranks that got it, what came with it.
    """
    comm = replica.comm
    with comm.phase("catch-up"):
        if comm.rank == source and targets:
            content = _packed(replica, step, beside or {})
            sending = [comm.send(content, target, tag=_TAG, wait=False) for target in targets]
            for one in sending:
                one.wait()
            return content.numel() * len(targets), None
        if comm.rank in targets:
            content, _ = comm.recv(source, _TAG)
            return content.numel(), _unpacked(replica, content)
    return 0, None


def _packed(replica: Replica, step: int, beside: dict[str, Any]) -> torch.Tensor:
    buffer = io.BytesIO()
    state = replica_state(replica, step, copy=False)
    torch.save({"state": state_part(state), "beside": beside}, buffer)
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def _unpacked(replica: Replica, content: torch.Tensor) -> dict[str, Any]:
    parts = torch.load(io.BytesIO(content.numpy().data), map_location="cpu", weights_only=True)
    restore(replica, state_of(parts, "the state of a peer"))
    beside: dict[str, Any] = parts["beside"]
    return beside
