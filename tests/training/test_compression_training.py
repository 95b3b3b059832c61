"""Training with compression: bytes that really travel, and what becomes of the loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.training import Examples, Task
from dtoolkit.training.compression import RandomK, Sign, Stream, TopK, elements
from tests.training import by_hand, cases

PARAMETERS = 6 * 7 + 7 + 7 * 3 + 3  # of the plain model


def wide() -> Task:
    """Regression with 300 weights of very different scales: what is never sent is missed."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(256, 300, generator=generator) * torch.linspace(0.2, 2, 300)
    y = X @ torch.randn(300, 1, generator=generator) / 300**0.5
    return Task.of(
        partial(nn.Linear, 300, 1),
        Examples(X, y),
        "mse",
        batch=64,
        optimizer=partial(torch.optim.SGD, lr=0.003),
    )


def sums(ctx: Any, coder: Any, rounds: int) -> list[torch.Tensor]:
    stream = Stream(coder, seed=5)
    given = torch.zeros(50, dtype=torch.float64)
    sent = torch.zeros(50, dtype=torch.float64)
    for step in range(rounds):
        generator = torch.Generator().manual_seed(100 * step + ctx.rank)
        flat = torch.randn(50, generator=generator, dtype=torch.float64)
        given += flat
        sent += stream.sum(ctx.comm, flat, step=step)
    owed = ctx.comm.all_reduce(stream.feedback.residual)
    return [sent, ctx.comm.all_reduce(given), owed]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("coder", [TopK(k=5), RandomK(k=5), Sign()])
def test_nothing_is_lost_over_ranks(cluster_of, workers, coder):
    before = len(cluster_of(workers).trace)
    by_rank = cluster_of(workers).run(sums, coder, 12, timeout=60)
    for sent, given, owed in by_rank:
        assert torch.equal(sent, by_rank[0][0])
        torch.testing.assert_close(sent + owed, given, rtol=1e-12, atol=1e-12)
    events = list(cluster_of(workers).trace)[before:]
    payload = coder.payload_bytes(50, torch.float64)
    each = 2 * (workers - 1) * payload // workers if coder.additive else (workers - 1) * payload
    moved = sum(sum(event.sent) for event in events) - 2 * 2 * (workers - 1) * 50 * 8
    assert moved == pytest.approx(12 * workers * each, abs=12 * 8 * workers)


@pytest.mark.parametrize("coder", [TopK(share=0.1), RandomK(share=0.1), Sign()])
def test_bytes_of_data_parallel(cluster4, coder):
    task = cases.task("plain", "sgd", dtype=torch.float32)
    run = dt.train(cluster4, task, steps=5, compression=coder)
    whole = dt.train(cluster4, task, steps=5)
    payload = coder.payload_bytes(PARAMETERS, torch.float32)
    operation = "all_reduce" if coder.additive else "all_gather"
    each = 2 * 3 * payload if coder.additive else 4 * 3 * payload
    assert run.trace.filter(operation=operation, phase="compressed").total == 5 * each
    assert run.trace.total < whole.trace.total


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_everything_is_no_compression(cluster_of, workers):
    runs = []
    for model, partition in (("chosen", "uneven"), ("batch norm", "even"), ("tied", "cyclic")):
        settings = {"steps": 5, "partition": cases.PARTITIONS[partition](workers)}
        task = cases.task(model, "sgd", penalty=True)
        runs += [(task, "data-parallel", settings)]
        for coder in (TopK(share=1), RandomK(share=1), RandomK(share=1, error_feedback=False)):
            runs += [(task, "data-parallel", {**settings, "compression": coder})]
    ended = by_hand.models(cluster_of(workers), runs)
    for at in range(0, len(ended), 4):
        for other in ended[at + 1 : at + 4]:
            for name, value in ended[at].items():
                torch.testing.assert_close(other[name], value, rtol=1e-12, atol=1e-12)


def test_random_places_do_not_depend_on_the_workers(cluster_of):
    """All ranks draw the same places, so that only rounding tells the number of workers."""
    task = cases.task("chosen", "sgd")
    settings = {"steps": 6, "compression": RandomK(share=0.2)}
    (one,) = by_hand.models(cluster_of(1), [(task, "data-parallel", settings)])
    for workers in (2, 4):
        owners = cases.PARTITIONS["uneven"](workers)
        runs = [(task, "data-parallel", {**settings, "partition": p}) for p in (None, owners)]
        for other in by_hand.models(cluster_of(workers), runs):
            for name, value in one.items():
                torch.testing.assert_close(other[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("strategy", ["data-parallel", "local-sgd"])
def test_learns_with_feedback_and_worse_without(cluster2, strategy):
    coders = [
        TopK(share=0.01),
        TopK(share=0.01, error_feedback=False),
        Sign(),
        Sign(error_feedback=False),
    ]
    top, top_without, sign, sign_without = losses(cluster2, strategy, coders)
    assert top < 0.3 * top_without
    assert sign < 0.8 * sign_without
    assert max(top, sign) < 0.2


@pytest.mark.parametrize(
    ("strategy", "coders"),
    [
        ("gossip", [TopK(share=0.1), RandomK(share=0.1)]),
        ("gossip-pairs", [TopK(share=0.1), Sign()]),
    ],
)
def test_gossip_learns_with_compression(cluster4, strategy, coders):
    assert max(losses(cluster4, strategy, coders, steps=120)) < 0.3


def losses(cluster: Any, strategy: str, coders: list[Any], steps: int = 200) -> list[float]:
    """Loss on the whole set after some steps, over the loss of a model of zeros."""
    task = wide()
    runs = [(task, strategy, {"steps": steps, "compression": coder}) for coder in coders]
    reached = []
    for state in by_hand.models(cluster, runs):
        model = task.model()
        model.load_state_dict(state)
        with torch.no_grad():
            loss = float(task.loss(model, *task.train.take(torch.arange(256))).mean())
        reached.append(loss / float(task.train.targets.square().mean()))
    return reached


def test_resume_to_the_bit(cluster2, tmp_path):
    task = cases.task("chosen", "adam")
    settings = {"seed": 1, "compression": TopK(share=0.1)}
    whole = dt.train(cluster2, task, steps=6, **settings)
    first = dt.train(cluster2, task, steps=3, **settings)
    first.save(tmp_path / "run")
    again = dt.train(cluster2, task, steps=6, resume=tmp_path / "run", **settings)
    assert again.state.differs_from(whole.state) == []
    assert len(first.state.own) == 2
    assert first.state.own[0]["residual"].shape == first.state.own[1]["residual"].shape


def test_elements():
    parameters = [("a", torch.zeros(2, 2)), ("b", torch.zeros(3)), ("c", torch.zeros(1))]
    assert elements(parameters, torch.tensor([True, True, True])) is None
    where = elements(parameters, torch.tensor([True, False, True]))
    assert where.tolist() == [True] * 4 + [False] * 3 + [True]
