"""The one model of a mesh: the mean of its replicas, its stages brought together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from dtoolkit.comm.exchange import bytes_of
from dtoolkit.training.averaging import (
    average_over,
    batch_statistics,
    kept_buffers,
    whole_state,
)

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator

__all__ = ["held_by", "one_model"]


def held_by(model: nn.Module, stages: Sequence[nn.Module]) -> list[dict[str, torch.Tensor]]:
    """What each stage learns and keeps, by its name in the model: the tensors themselves.

    Parameters
    ----------
    model : nn.Module
    stages : sequence of nn.Module
        As :func:`~dtoolkit.training.mesh.cutting.cut` gives them.
    """
    learned = {name: value for name, value in model.named_parameters() if value.requires_grad}
    kept: dict[str, torch.Tensor] = {**learned, **kept_buffers(model)}
    held = []
    for stage in stages:
        here = {id(value) for value in [*stage.parameters(), *stage.buffers()]}
        held.append({name: value for name, value in kept.items() if id(value) in here})
    return held


def one_model(
    model: nn.Module,
    held: Sequence[dict[str, torch.Tensor]],
    *,
    replicas: Communicator,
    pipeline: Communicator,
) -> dict[str, torch.Tensor]:
    """The state dict of the mean of all replicas; collective, the same bits on every rank.

    Parameters
    ----------
    model : nn.Module
        This rank's; left as it is.
    held : sequence of dict
        Of :func:`held_by`.
    replicas, pipeline : Communicator
        Of the replicas of this rank's stage, and of the stages of its replica.
    """
    mine = held[pipeline.rank]
    mean = average_over(replicas, mine, [1.0] * replicas.size, statistics=batch_statistics(model))
    if pipeline.size > 1:
        flat = torch.cat([bytes_of(value) for value in mean.values()])
        for stage, data in zip(held, pipeline.all_gather_v(flat), strict=True):
            pieces = torch.split(data, [value.nbytes for value in stage.values()])
            for (name, value), piece in zip(stage.items(), pieces, strict=True):
                mean[name] = piece.clone().view(value.dtype).reshape(value.shape)
    return whole_state(model, mean)
