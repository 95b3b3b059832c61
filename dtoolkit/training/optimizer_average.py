"""The mean of what the optimizers of several ranks keep: momentum, second moments, counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.training.averaging import average_over

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator
    from dtoolkit.training.replica import Replica

__all__ = ["average_optimizer"]

Slot = tuple[str, str]  # a parameter's name, and that of what is kept of it


def average_optimizer(replica: Replica, samples: float | Sequence[float]) -> None:
    """Put the mean of all ranks' optimizer states into this rank's optimizer; collective.

    Tensors are averaged like parameters, weighted by samples; counts of steps are the largest. What
    a rank does not have yet (it had no samples, or did not use the parameter) counts as zeros, as
    optimizers begin with.

    Parameters
    ----------
    replica : Replica
    samples : float or sequence of float
        What this rank's state weighs, or each rank's.

    Raises
    ------
    TypeError
        The optimizer keeps something that is neither a tensor nor a count.
    """
    learned = dict(replica.parameters)
    here = {
        (name, key): _tensor(key, value)
        for name, parameter in learned.items()
        for key, value in replica.optimizer.state.get(parameter, {}).items()
        if value is not None
    }
    shapes = _agreed(replica.comm, here)
    state = {}
    for number, (slot, (dtype, shape)) in enumerate(shapes.items()):
        zeros = torch.zeros(shape, dtype=dtype, device=replica.device)
        state[str(number)] = here.get(slot, zeros).to(replica.device)
    mean = average_over(replica.comm, state, samples)
    for number, (name, key) in enumerate(shapes):
        kept = replica.optimizer.state[learned[name]]
        kept[key] = _like(kept.get(key), key, mean[str(number)])


def _tensor(key: str, value: Any) -> torch.Tensor:
    """What is averaged; counts as integers, of which the largest is taken."""
    if key == "step":
        return torch.as_tensor(value).to(torch.int64)
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"optimizer_state='average': the optimizer keeps {key!r}, a {type(value).__name__}, "
            "which has no mean; choose optimizer_state='own'"
        )
    return value


def _like(before: Any, key: str, value: torch.Tensor) -> Any:
    if key != "step":
        return value
    # torch keeps counts as float32 on the host; where an optimizer keeps an int, so do we.
    return int(value) if isinstance(before, int) else value.to("cpu", torch.float32)


def _agreed(
    comm: Communicator, here: dict[Slot, torch.Tensor]
) -> dict[Slot, tuple[torch.dtype, list[int]]]:
    """What any rank keeps: dtype and shape, in the same order on all ranks."""
    mine = [[*slot, str(v.dtype).removeprefix("torch."), [*v.shape]] for slot, v in here.items()]
    text = torch.frombuffer(bytearray(json.dumps(mine).encode()), dtype=torch.uint8)
    slots: dict[Slot, tuple[torch.dtype, list[int]]] = {}
    for said in comm.all_gather_v(text):
        for name, key, dtype, shape in json.loads(said.cpu().numpy().tobytes()):
            slots.setdefault((name, key), (getattr(torch, dtype), shape))
    return slots
