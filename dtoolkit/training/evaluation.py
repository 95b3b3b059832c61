"""Mean loss and metrics on the test set, the same figures on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from dtoolkit.training.task import check_values

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["evaluate"]


def evaluate(replica: Replica, state: dict[str, torch.Tensor] | None = None) -> dict[str, float]:
    """Mean loss and metrics, the test set shared out among the ranks; collective.

    The set is cut into chunks whose size depends on it alone, and their sums are added in order.

    Parameters
    ----------
    replica : Replica
    state : dict, optional
        The model to evaluate, as a state dict; by default the replica's own.

    Returns
    -------
    dict
        ``test_loss`` and ``test_<metric>``; empty where the task has no test set.
    """
    task, test = replica.task, replica.test
    if test is None:
        return {}
    values = {"loss": task.loss, **(getattr(task, "metrics", None) or {})}
    chunks = torch.split(torch.arange(len(test)), min(1024, max(32, -(-len(test) // 64))))
    mine = torch.tensor_split(torch.arange(len(chunks)), replica.size)[replica.rank].tolist()
    sums = torch.zeros(len(mine), len(values), dtype=torch.float64)

    def summed(name: str, value: Callable[..., torch.Tensor], ids: torch.Tensor) -> float:
        given = value(replica.model, *test.take(ids))
        return float(check_values(given, len(ids), name).double().sum())

    with _evaluating(replica.model, state):
        for row, chunk in enumerate(mine):
            replica.alive()
            for column, (name, value) in enumerate(values.items()):
                sums[row, column] = summed(name, value, chunks[chunk])
    total = torch.cat(replica.comm.all_gather_v(sums)).sum(0) / len(test)
    return {f"test_{name}": float(one) for name, one in zip(values, total, strict=True)}


@contextmanager
def _evaluating(model: nn.Module, state: dict[str, torch.Tensor] | None) -> Iterator[None]:
    """Evaluation mode, with another state if one is given; all is put back after."""
    modes = [(module, module.training) for module in model.modules()]
    before = None
    if state is not None:
        before = {name: value.detach().clone() for name, value in model.state_dict().items()}
        model.load_state_dict(state)
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
        if before is not None:
            model.load_state_dict(before)
