"""AsyncMesh over workers, against the same in one process with delays set by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.errors import RankError
from dtoolkit.training import Examples, Run, Task, mesh, tasks
from dtoolkit.training.strategies import STRATEGIES, AsyncMesh
from tests.training import by_hand, cases
from tests.training.by_hand import close, same
from tests.training.reference import trained
from tests.training.toys import toy

STEPS = 7
EXACT = 1e-12  # everything is of double precision
WIDTH = 8


def model() -> nn.Module:
    """Four layers that learn; no number of elements is a multiple of the parts."""
    layers = [nn.Linear(cases.INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, cases.CLASSES)]
    return nn.Sequential(*layers).double()


def task(optimizer: str = "sgd", *, batch: int = 9, samples: int = cases.SAMPLES) -> Task:
    whole = replace(cases.task("plain", optimizer, schedule=True, batch=batch), model=model)
    train = Examples(whole.train.inputs[:samples], whole.train.targets[:samples])
    return replace(whole, train=train)


def everything_each_step(**more: Any) -> AsyncMesh:
    return AsyncMesh(averaging="plain", share=1, delay=0, **more)


LATE = {
    2: [
        AsyncMesh(2, optimizer="nadam"),
        AsyncMesh(2, optimizer="adamw"),
        AsyncMesh(2, cut_at=[4]),
        AsyncMesh(averaging="ema", share=0.3, delay=2, decay=(0.5, 0.9, 3)),
    ],
    4: [
        AsyncMesh(4, optimizer="nadam"),
        AsyncMesh(2, 2, averaging="ema", share=0.3, delay=2, optimizer="nadam"),
        AsyncMesh(2, averaging="plain", share=0.5, delay=0),
        AsyncMesh(2, averaging="update", share=0.4, delay=3, fixed=True, strength=0.5),
        AsyncMesh(2, averaging="gradients"),
        AsyncMesh(averaging="ema", share=0.5, delay=1, optimizer="adamw"),
    ],
}


@pytest.mark.parametrize("workers", [2, 4])
def test_late_is_one_process_with_the_delays_set(
    workers: int, cluster_of: Callable[[int], dt.Cluster]
) -> None:
    learned = by_hand.models(
        cluster_of(workers),
        [(task("adam"), strategy, {"steps": STEPS, "seed": 3}) for strategy in LATE[workers]],
    )
    for strategy, got in zip(LATE[workers], learned, strict=True):
        alone = AsyncMesh(
            **{**vars(strategy), "replicas": workers // strategy.stages, "decay": strategy.decay}
        )
        close(got, mesh.simulate(task("adam"), alone, steps=STEPS, seed=3).model, EXACT)


def test_delays_can_be_set_and_count() -> None:
    alone = AsyncMesh(2)
    none, one, three = (
        mesh.simulate(task(), alone, steps=STEPS, delays=delays).model["0.weight"]
        for delays in ([0, 0], [1, 0], [3, 0])
    )
    want, _ = trained(task(), STEPS)
    torch.testing.assert_close(none, want[0].weight.detach(), rtol=EXACT, atol=EXACT)
    assert not torch.allclose(none, one)
    assert not torch.allclose(one, three)
    with pytest.raises(ValueError, match="wanted 2 numbers of at least 0"):
        mesh.simulate(task(), alone, steps=1, delays=[1])


@pytest.mark.parametrize("workers", [2, 4])
def test_synchronous_is_one_process(workers: int, cluster_of: Callable[[int], dt.Cluster]) -> None:
    grids = [stages for stages in (1, 2, 4) if workers % stages == 0]
    runs = [
        (
            task("sgd"),
            # One stage alone is never late.
            AsyncMesh(stages, pipeline="sync" if stages > 1 else "async", averaging="gradients"),
            accumulate,
        )
        for stages in grids
        for accumulate in (1, 3)
    ]
    learned = by_hand.models(
        cluster_of(workers),
        [(t, s, {"steps": STEPS, "seed": 3, "accumulate": n}) for t, s, n in runs],
    )
    for (_, _, accumulate), got in zip(runs, learned, strict=True):
        want, _ = trained(task("sgd"), STEPS, seed=3, accumulate=accumulate)
        close(got, dict(want.state_dict()), EXACT)


@pytest.mark.parametrize("workers", [2, 4])
def test_all_weights_without_delay_is_averaging_every_step(
    workers: int, cluster_of: Callable[[int], dt.Cluster]
) -> None:
    even = task("adam", batch=8, samples=16)
    plain = by_hand.plainly(replace(even, schedule=None))
    rounds = AsyncMesh(averaging="rounds", local_steps=3, outer=(1, 0))
    settings = {"steps": STEPS, "seed": 3}
    adam, sgd, local = by_hand.models(
        cluster_of(workers),
        [
            (even, everything_each_step(), settings),
            (plain, everything_each_step(), settings),
            (even, rounds, settings),
        ],
    )
    close(adam, by_hand.local_sgd(even, STEPS, workers, local_steps=1, seed=3), EXACT)
    close(sgd, dict(trained(plain, STEPS, seed=3)[0].state_dict()), EXACT)
    close(local, by_hand.local_sgd(even, STEPS, workers, local_steps=3, seed=3), EXACT)


def test_rounds_end_with_a_step_of_nesterovs_momentum(cluster2: dt.Cluster) -> None:
    even = by_hand.plainly(replace(task(batch=8, samples=16), schedule=None))
    strategy = AsyncMesh(averaging="rounds", local_steps=2, outer=(0.7, 0.9))
    (got,) = by_hand.models(cluster2, [(even, strategy, {"steps": 6, "seed": 3})])
    alone = by_hand.Alone(even, 2, seed=3, accumulate=1, partition=None)
    outer = [value.detach().clone().requires_grad_() for value in alone.models[0].parameters()]
    optimizer = torch.optim.SGD(outer, lr=0.7, momentum=0.9, nesterov=True)
    for step in range(6):
        for rank in range(2):
            alone.step(rank, step)
        if step % 2:
            for place, value in enumerate(outer):
                both = [[*one.parameters()][place].data for one in alone.models]
                value.grad = value.detach() - (both[0] + both[1]) / 2
            optimizer.step()
            for one in alone.models:
                for value, new in zip(one.parameters(), outer, strict=True):
                    value.data.copy_(new.detach())
    close(got, alone.states()[0], EXACT)


# ----------------------------------------------------------------------------- stop and resume

HELD = [
    AsyncMesh(2, 2, averaging="ema", share=0.3, delay=2, decay=(0.5, 0.5, 0), optimizer="nadam"),
    AsyncMesh(averaging="update", share=0.5, delay=3),
    AsyncMesh(2, averaging="rounds", local_steps=3, pipeline="sync"),
]


@pytest.mark.parametrize("strategy", HELD, ids=["mesh", "averages", "rounds"])
@pytest.mark.parametrize("at", [1, 4])
def test_a_stop_changes_nothing(strategy: AsyncMesh, at: int, cluster4: dt.Cluster) -> None:
    """With dropout, batch norm, a schedule, and batches of which a replica has no share."""
    learned = toy(batch=7)  # the last batch of an epoch has one sample
    whole = dt.train(cluster4, learned, strategy, steps=6, seed=3, evaluate_every=3)
    first = dt.train(cluster4, learned, strategy, steps=at, seed=3)
    same(dt.train(cluster4, learned, strategy, steps=6, resume=first), whole)


def test_what_fails_is_made_again_to_the_bit(cluster4: dt.Cluster) -> None:
    whole = dt.train(cluster4, toy(), HELD[0], steps=6)
    fault = dt.faults.Raise(3, at_step=4)
    run = dt.train(cluster4, toy(), HELD[0], steps=6, recovery="restart", faults=[fault])
    assert len(run.recoveries) == 1
    same(run, whole)


def test_other_workers_are_refused(cluster2: dt.Cluster, cluster4: dt.Cluster) -> None:
    first = dt.train(cluster4, toy(), AsyncMesh(), steps=1)
    with pytest.raises(ValueError, match="resume on 4 workers"):
        dt.train(cluster2, toy(), AsyncMesh(), steps=2, resume=first)


# --------------------------------------------------------------------------- bytes, and states


def wide() -> nn.Module:
    """Every number of elements is a multiple of four; both halves are alike."""
    return nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12)).double()


def squares(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (model(inputs) - targets).square().mean(1)


def sent(run: Run, phase: str) -> int:
    return sum(sum(event.sent) for event in run.trace.events if event.phase == phase)


def test_bytes_are_the_share_of_what_is_dense(cluster4: dt.Cluster) -> None:
    X = torch.randn(16, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    even = Task("wide", wide, Examples(X, X), squares, batch=8)
    stage = 8 * (12 * 12 + 12)  # bytes
    hidden = 8 * 4 * 12  # of a replica's share of a batch
    dense = dt.train(cluster4, even, AsyncMesh(2, pipeline="sync", averaging="gradients"), steps=6)
    late = dt.train(cluster4, even, AsyncMesh(2, share=0.25, delay=2), steps=6)
    assert sent(dense, "gradient-sum") == 6 * 4 * stage
    assert sent(late, "averaging") == 6 * 4 * stage // 4
    assert sent(late, "gradient-sum") == 0
    for run, ahead in ((dense, 0), (late, 1)):
        assert sent(run, "activations") == 2 * (6 + ahead) * hidden
        assert sent(run, "gradients") == 2 * 6 * hidden
    # Every step's messages are in the history once the ranks have met.
    assert dense.history["bytes"].sum() == 6 * 4 * stage + 2 * 12 * hidden


def test_stages_keep_as_many_versions_as_the_order_says(cluster4: dt.Cluster) -> None:
    run = dt.train(cluster4, task("adam"), AsyncMesh(4), steps=STEPS)
    for stage, own in enumerate(run.state.own):
        kept = own["pipeline"]["stage"]
        flying = [flight["version"] for flight in kept["flights"]]
        assert kept["updates"] == STEPS
        assert flying == [mesh.version_of(stage, 4, STEPS + k) for k in range(3 - stage)]
        assert len({*flying, STEPS}) == mesh.versions_kept(stage, 4)
    assert run.history["staleness"].tolist() == [0, 1, 2, 3, 3, 3, 3]
    assert run.summary["versions a stage"] == [4, 3, 2, 1]


def test_replicas_agree_where_they_must(cluster4: dt.Cluster) -> None:
    def lanes(strategy: AsyncMesh) -> list[bool]:
        held = [own["held"] for own in dt.train(cluster4, task(), strategy, steps=3).state.own]
        return [
            all(torch.equal(held[stage][name], held[2 + stage][name]) for name in held[stage])
            for stage in range(2)
        ]

    assert lanes(AsyncMesh(2, averaging="gradients")) == [True, True]
    assert lanes(everything_each_step(stages=2)) == [True, True]
    assert lanes(AsyncMesh(2, share=0.5, delay=1)) == [False, False]


def test_the_text_task_learns_in_stages(cluster2: dt.Cluster) -> None:
    text = tasks.text(
        width=16, heads=2, context=16, train_bytes=4096, test_bytes=1024, tied=False, batch=8
    )
    run = dt.train(cluster2, text, AsyncMesh(2, optimizer="nadam"), steps=8)
    assert run.history["loss"].iloc[-1] < run.history["loss"].iloc[0]
    assert run.history["samples_0"].sum() == 0  # losses are the last stage's
    assert 4 < run.history["test_loss"].iloc[-1] < 5.7


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("strategy", "settings", "words"),
    [
        (AsyncMesh(), {"compression": "top-k"}, "compression=.*smaller share="),
        (AsyncMesh(2), {"accumulate": 2}, "accumulate=2.*pipeline='sync'"),
        (AsyncMesh(2), {"partition": "block"}, "with stages all workers of a replica do"),
        (AsyncMesh(), {"batch_norm": "sync"}, "asyncmesh workers do not step together"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_settings_that_do_not_fit(
    strategy: AsyncMesh, settings: dict[str, Any], words: str, nothing_runs: dt.Cluster
) -> None:
    with pytest.raises(ValueError, match=words):
        dt.train(nothing_runs, toy(), strategy, steps=2, **settings)


@pytest.mark.parametrize(
    ("strategy", "changes", "words"),
    [
        (AsyncMesh(3), {}, "2 workers are no such mesh"),
        (AsyncMesh(1, 3), {}, "2 workers are no such mesh"),
        (AsyncMesh(2), {"penalty": cases.shrink}, "the task has a penalty"),
        (AsyncMesh(2), {"model": cases.Tied}, "a Tied does not say"),
        (AsyncMesh(2), {"model": lambda: nn.Sequential(nn.LSTM(6, 4), nn.Linear(4, 3))}, "tuple"),
    ],
    ids=["stages", "replicas", "penalty", "unknown", "tuple"],
)
def test_what_no_stage_can_learn(
    strategy: AsyncMesh, changes: dict[str, Any], words: str, cluster2: dt.Cluster
) -> None:
    wanted = replace(cases.task(dtype=torch.float32), **changes)
    if words == "tuple":
        wanted = replace(wanted, loss=_of_the_last, test=None, metrics={})
    with pytest.raises(RankError, match=words):
        dt.train(cluster2, wanted, strategy, steps=2)


def _of_the_last(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that a whole model with an LSTM in it cannot be tried with, but stages can."""
    if isinstance(model, nn.Sequential) and isinstance(model[0], nn.LSTM):
        return model[1](model[0](inputs)[0]).square().mean(1)
    return model(inputs).square().mean(1)


def test_it_has_a_name_and_works_alone(cluster1: dt.Cluster) -> None:
    assert STRATEGIES["asyncmesh"] is AsyncMesh
    run = dt.train(cluster1, replace(task("sgd"), penalty=cases.shrink), "asyncmesh", steps=3)
    want, _ = trained(replace(task("sgd"), penalty=cases.shrink), 3)
    close(run.state.model, dict(want.state_dict()), EXACT)
    assert "AsyncMesh" in run.settings["citation"]
    assert partial(AsyncMesh, 2, 2)().promise.resume.startswith("bit-equal")
