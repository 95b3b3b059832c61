"""Ends of rounds: the mean is that of models in one place, whether or not it came along."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dtoolkit.training import round_end
from dtoolkit.training.averaging import average, average_model
from dtoolkit.training.round_end import RoundEnd
from tests.training.test_averaging import SAMPLES, net


def made(ctx: Any, model: torch.nn.Module, **options: bool) -> RoundEnd:
    replica: Any = SimpleNamespace(ctx=ctx, comm=ctx.comm, model=model)
    return RoundEnd(replica, **options)


def rounds(ctx: Any, samples: list[int], room: int) -> list[str]:
    """Two rounds of a model that changes between them."""
    before, round_end._SMALL = round_end._SMALL, room
    try:
        model = net(ctx.rank)
        end = made(ctx, model)
        wrong = []
        for turn in range(2):
            met = end.meet(samples[ctx.rank], 0.5 * ctx.rank)
            got, want = end.mean(met), average_model(ctx.comm, model, samples)
            if met.samples != samples or met.numbers != [0.5 * r for r in range(ctx.size)]:
                wrong.append(f"samples {met.samples}")
            wrong += [n for n, value in want.items() if not torch.equal(got[n], value)]
            wrong += [f"also {name}" for name in got.keys() ^ want.keys()]
            with torch.no_grad():
                model.first.weight.add_(turn + ctx.rank)
        return wrong
    finally:
        round_end._SMALL = before


@pytest.mark.parametrize("room", [0, 1024])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_mean_of_a_round(cluster_of: Any, workers: int, room: int) -> None:
    for samples in SAMPLES[workers]:
        assert cluster_of(workers).run(rounds, samples, room, timeout=60) == [[]] * workers


def waiting(ctx: Any) -> tuple[float, int]:
    end = made(ctx, net(0), whole=False)
    ctx.comm.barrier()
    if ctx.rank == 1:
        time.sleep(0.2)
    sent = ctx.recorder.sent
    return end.meet(1).idle, ctx.recorder.sent - sent


def test_who_waits_is_idle_and_without_a_model_little_travels(cluster2: Any) -> None:
    (early, sent), (late, _) = cluster2.run(waiting)
    assert early > 0.1
    assert late == 0.0
    assert sent == 32


def test_models_as_one_place_averages_them(cluster2: Any) -> None:
    def mean(ctx: Any) -> dict[str, torch.Tensor]:
        end = made(ctx, net(ctx.rank))
        return end.mean(end.meet(3 - 2 * ctx.rank))

    want = average([dict(net(rank).state_dict()) for rank in range(2)], [3, 1])
    for got in cluster2.run(mean):
        assert all(torch.equal(value, want[name]) for name, value in got.items())
