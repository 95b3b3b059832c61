"""Gossip over workers, against the same by hand in one process."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.training import mixing
from dtoolkit.training.averaging import average
from dtoolkit.training.compression import RandomK, Sign, TopK
from dtoolkit.training.strategies import STRATEGIES, Gossip, GossipPairs, LocalSGD
from tests.training import by_hand, cases
from tests.training.by_hand import close, same
from tests.training.reference import trained

STEPS = 5


def owned(alone: by_hand.Alone, partition: Any, ranks: int) -> list[int]:
    if partition is None:
        return [alone.sampler.planned(0, rank) for rank in range(ranks)]
    owners = range(cases.SAMPLES) if isinstance(partition, str) else partition
    return np.bincount([owner % ranks for owner in owners], minlength=ranks).tolist()


def gossip(
    task: Any, steps: int, ranks: int, graph: str, *, seed: int, accumulate: int, partition: Any
) -> dict[str, torch.Tensor]:
    """The one model after some steps of gossip, by hand."""
    alone = by_hand.Alone(task, ranks, seed=seed, accumulate=accumulate, partition=partition)
    mass = mixing.masses_of(owned(alone, partition, ranks))
    used = [0] * ranks
    for step in range(steps):
        total = alone.sampler.planned(step)
        for rank, model in enumerate(alone.models):
            before = [value.detach().clone() for value in model.parameters()]
            count = alone.step(rank, step)
            used[rank] += count
            gain = mixing.gain(mass[rank], count, total, ranks)
            for value, old in zip(model.parameters(), before, strict=True):
                value.data = old + gain * (value.data - old)
        matrix = matrix_of(graph, mass, seed, step)
        there = [[value.data for value in model.parameters()] for model in alone.models]
        for rank, model in enumerate(alone.models):
            for number, value in enumerate(model.parameters()):
                value.data = sum(float(matrix[rank, s]) * there[s][number] for s in range(ranks))
    pooled, buffers = average(alone.states(), used), dict(alone.models[0].named_buffers())
    return average(alone.states(), mass.tolist()) | {name: pooled[name] for name in buffers}


def matrix_of(graph: str, mass: Any, seed: int, step: int) -> Any:
    if graph == "pairs":
        return mixing.pairs(mass, mixing.matching(len(mass), seed=seed, step=step))
    return {"ring": mixing.ring, "complete": mixing.complete}[graph](mass)


def strategy_of(graph: str) -> Gossip:
    return GossipPairs() if graph == "pairs" else Gossip(graph)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_as_by_hand(cluster_of, workers):
    runs, wants = [], []
    for model, partition in product(cases.MODELS, cases.PARTITIONS):
        if model == "batch norm" and partition in ("cyclic", "uneven"):
            continue  # a share of one sample has no variance
        number = len(runs)
        graph = ["ring", "pairs", "complete"][number % 3]
        task = cases.task(
            model, list(cases.OPTIMIZERS)[number % 2], schedule=number % 2 == 0, batch=12
        )
        accumulate = 1 if model == "batch norm" else 1 + number % 2
        owners = cases.PARTITIONS[partition](workers)
        settings = {"seed": number, "accumulate": accumulate, "partition": owners}
        runs.append((task, strategy_of(graph), {"steps": STEPS, **settings}))
        wants.append(gossip(task, STEPS, workers, graph, **settings))
    for got, want in zip(by_hand.models(cluster_of(workers), runs), wants, strict=True):
        close(got, want, 1e-11)


def test_of_three_one_is_left_out(cluster3):
    task, settings = cases.task("plain", "sgd"), {"seed": 1, "accumulate": 1, "partition": None}
    run = dt.train(cluster3, task, "gossip-pairs", steps=STEPS, seed=1)
    close(run.state.model, gossip(task, STEPS, 3, "pairs", **settings), 1e-11)
    assert len(run.trace.filter(phase="gossip", operation="send")) == STEPS * 2


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_where_all_are_neighbours_it_is_one_process(cluster_of, workers):
    runs, wants = [], []
    for model, partition in product(("plain", "tied", "chosen"), cases.PARTITIONS):
        number = len(runs)
        accumulate, owners = 1 + number % 3, cases.PARTITIONS[partition](workers)
        batch = 3 if number % 5 == 0 else 9  # fewer samples than ranks
        task = cases.task(model, schedule=number % 2 == 0, penalty=number % 4 == 1, batch=batch)
        task = by_hand.plainly(task)
        graphs = ["complete"] if workers == 4 else ["ring", "pairs", "complete"]
        settings = {"steps": STEPS, "seed": 4, "accumulate": accumulate, "partition": owners}
        runs.append((task, strategy_of(graphs[number % len(graphs)]), settings))
        wants.append(trained(task, STEPS, seed=4, accumulate=accumulate)[0].state_dict())
    for got, want in zip(by_hand.models(cluster_of(workers), runs), wants, strict=True):
        close(got, dict(want), 1e-12)


def test_one_worker_is_plain_training_to_the_bit(cluster1):
    task = cases.task("batch norm", "adam", schedule=True, penalty=True)
    plain = dt.train(cluster1, task, "data-parallel", steps=STEPS)
    for name in ("gossip", "gossip-pairs", "local-sgd"):
        run = dt.train(cluster1, task, name, steps=STEPS)
        assert run.state.own == ()
        same_model = [torch.equal(run.state.model[k], v) for k, v in plain.state.model.items()]
        assert all(same_model), name
        assert run.history["bytes"].sum() == 0


def test_a_ring_of_two_is_a_pair(cluster2):
    task = cases.task("plain", "sgd")
    runs = [(task, one, {"steps": STEPS}) for one in (Gossip(), GossipPairs(), Gossip("complete"))]
    ring, pair, whole = by_hand.models(cluster2, runs)
    assert all(torch.equal(ring[k], pair[k]) and torch.equal(ring[k], whole[k]) for k in ring)


@pytest.mark.parametrize(
    ("strategy", "compression"),
    [("gossip", None), ("gossip-pairs", TopK(share=0.2)), ("gossip", Sign())],
)
def test_resume_to_the_bit(cluster4, tmp_path, strategy, compression):
    task = cases.task("batch norm", "adam", schedule=True, batch=12)
    settings = {"seed": 3, "compression": compression}
    whole = dt.train(cluster4, task, strategy, steps=6, **settings)
    first = dt.train(cluster4, task, strategy, steps=3, **settings)
    first.save(tmp_path / "run")
    again = dt.train(cluster4, task, strategy, steps=6, resume=tmp_path / "run", **settings)
    same(again, whole)
    assert again.history["loss"].tolist() == whole.history["loss"].tolist()[3:]


def test_resume_with_other_workers_or_without_copies_is_refused(cluster_of):
    task = cases.task("plain", "sgd")
    run = dt.train(cluster_of(2), task, "gossip", steps=2)
    with pytest.raises(ValueError, match="2 workers"):
        dt.train(cluster_of(4), task, "gossip", steps=4, resume=run)
    with pytest.raises(ValueError, match="compression of the saved run is none, and TopK"):
        dt.train(cluster_of(2), task, "gossip", steps=4, resume=run, compression="top-k")


def test_neighbours_talk_without_collectives(cluster4):
    task = cases.task("plain", "sgd", dtype=torch.float32)
    parameters = 6 * 7 + 7 + 7 * 3 + 3
    run = dt.train(cluster4, task, "gossip", steps=STEPS)
    gossiping = run.trace.filter(phase="gossip")
    assert {event.operation for event in gossiping} == {"send", "recv"}
    assert gossiping.total == STEPS * 4 * 2 * 4 * parameters
    matrix = gossiping.matrix()
    assert (matrix > 0).tolist() == (mixing.ring(np.ones(4)) - np.eye(4) / 3 > 0.1).tolist()
    run = dt.train(cluster4, task, "gossip-pairs", steps=STEPS)
    assert run.trace.filter(phase="gossip").total == STEPS * 4 * 4 * parameters


@pytest.mark.parametrize("coder", [TopK(k=9), RandomK(k=9), Sign()])
def test_compressed_bytes(cluster4, coder):
    task = cases.task("plain", "sgd", dtype=torch.float32)
    run = dt.train(cluster4, task, "gossip", steps=STEPS, compression=coder)
    each = coder.payload_bytes(6 * 7 + 7 + 7 * 3 + 3, torch.float32)
    assert run.trace.filter(phase="gossip").total == STEPS * 4 * 2 * each


@pytest.mark.parametrize("workers", [2, 4])
def test_compressed_to_everything_is_no_compression(cluster_of, workers):
    runs = []
    for number, partition in enumerate(("even", "uneven", "all on the last")):
        settings = {"steps": STEPS, "partition": cases.PARTITIONS[partition](workers)}
        task, graph = cases.task("chosen", "sgd"), ["ring", "complete", "pairs"][number]
        runs += [(task, strategy_of(graph), settings)]
        for coder in (TopK(share=1), RandomK(share=1)):
            runs += [(task, strategy_of(graph), {**settings, "compression": coder})]
    ended = by_hand.models(cluster_of(workers), runs)
    for at in range(0, len(ended), 3):
        close(ended[at + 1], ended[at], 1e-11)
        close(ended[at + 2], ended[at], 1e-11)


def root(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A finite loss whose gradient is not."""
    return torch.sqrt(0 * sum(p.sum() for p in model.parameters())) + 0 * inputs.sum(1)


@pytest.mark.parametrize("strategy", ["gossip", "local-sgd"])
def test_gradients_that_are_not_finite_are_not_shared(cluster2, strategy):
    task = cases.task("plain")
    task = dt.training.Task("root", task.model, task.train, root, batch=9)
    with pytest.raises(FloatingPointError, match=r"gradient of 0\.weight .* on rank \d at step 0"):
        dt.train(cluster2, task, strategy, steps=2)


def test_compression_keeps_the_mean(cluster4):
    """Gradients that do not depend on the model: the mean must be that of one process."""
    task = by_hand.plainly(cases.task("plain"))

    def loss(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return inputs.sum(1) * sum(p.sum() for p in model.parameters()) * 1e-2

    task = dt.training.Task(
        "linear", task.model, task.train, loss, optimizer=by_hand.PLAIN, batch=9
    )
    runs = [
        (task, one, {"steps": STEPS, "compression": coder, "partition": "cyclic"})
        for one in (Gossip(), GossipPairs())
        for coder in (TopK(share=0.05), RandomK(share=0.1), Sign())
    ]
    want = trained(task, STEPS)[0].state_dict()
    for got in by_hand.models(cluster4, runs):
        close(got, dict(want), 1e-9)


def test_settings_are_checked(cluster1):
    assert repr(Gossip("complete")) == "Gossip(graph='complete', consensus=None)"
    assert repr(GossipPairs(consensus=0.3)) == "GossipPairs(consensus=0.3)"
    assert all(one.cite() for one in (Gossip(), GossipPairs(), LocalSGD()))
    assert {"gossip", "gossip-pairs", "local-sgd"} <= set(STRATEGIES)
    with pytest.raises(ValueError, match="'gossip-pairs'"):
        Gossip("pairs")
    for wrong in (0, 1.5, True):
        with pytest.raises(ValueError, match="consensus"):
            Gossip(consensus=wrong)
    task = cases.task("plain")
    with pytest.raises(ValueError, match="leave error_feedback=True"):
        dt.train(cluster1, task, "gossip", steps=1, compression=TopK(error_feedback=False))
    with pytest.raises(ValueError, match=r"consensus=0\.5"):
        dt.train(cluster1, task, Gossip(consensus=0.5), steps=1)
