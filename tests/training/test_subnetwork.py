"""Subnetworks over workers.

==================================  ====================================================
coverage 1                          data parallel, bit for bit
one batch on all, backward masking  data parallel, bit for bit
forward masking                     the subnetworks' gradients by hand
gradient's variance                 workers / holders times that of data parallel
bytes of gradients                  2 (h-1) words a parameter and set of h holders, exactly
state of what is masked             coverage times the dense one, exactly
stop and resume                     the same bits
==================================  ====================================================
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.training import Replica, Sampler, Settings, Task
from dtoolkit.training.loop import Job, learn
from dtoolkit.training.strategies import DataParallel, Subnetwork
from dtoolkit.training.subnetworks import plan_subnetworks
from dtoolkit.training.subnetworks.computing import Masked
from tests.training import cases
from tests.training.by_hand import close, same


class Branch(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(torch.tanh(self.inner(x)))


class Residual(nn.Module):
    """56 parameters, four blocks of 144, and 27."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(cases.INPUTS, 8)
        self.blocks = nn.ModuleList([Branch() for _ in range(4)])
        self.head = nn.Linear(8, cases.CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def residual(optimizer: str = "sgd", **more: Any) -> Task:
    dtype = more.get("dtype", torch.float64)
    return replace(
        cases.task("plain", optimizer, **more), model=lambda: Residual().to(dtype), batch=8
    )


def many(ctx: Any, jobs: list[Job]) -> list[Any]:
    return [learn(ctx, job) for job in jobs]


@pytest.mark.parametrize("workers", [2, 4])
def test_coverage_one_is_data_parallel(cluster_of: Any, workers: int) -> None:
    jobs = []
    for number, (model, way) in enumerate(
        product(("plain", "tied", "batch norm", "residual"), range(2))
    ):
        optimizer = list(cases.OPTIMIZERS)[number % 3]
        task = residual(optimizer) if model == "residual" else cases.task(model, optimizer)
        task = replace(task, penalty=cases.shrink if number % 2 else None, batch=12)
        masking = ("backward", "forward")[way]
        owners = list(cases.PARTITIONS.values())[number % 2 * 3](workers)
        settings = Settings(
            4,
            seed=number,
            accumulate=1 + number % 2,
            partition=owners,
            batch_norm="local" if way and model == "batch norm" else None,
        )
        by = "block" if model == "residual" and not way else "neuron"
        jobs += [Job(task, DataParallel(), settings)]
        jobs += [Job(task, Subnetwork(1, by=by, masking=masking), settings)]
    ended = cluster_of(workers).run(many, jobs, timeout=120)[0]
    for dense, part in zip(ended[::2], ended[1::2], strict=True):
        assert set(dense.state.differs_from(part.state)) <= {"strategy"}


class Same(Sampler):
    """The whole batch on every rank."""

    def share(self, step: int, rank: int) -> list[torch.Tensor]:
        return self.micro_batches(step)

    def planned(self, step: int, rank: int | None = None) -> int:
        return len(self.batch(step)) * (self.ranks if rank is None else 1)


def together(ctx: Any, task: Task, strategies: list[Any], steps: int, same: bool) -> list[Any]:
    """Model after some steps of each strategy."""
    ends = []
    for strategy in strategies:
        replica = Replica(ctx, task, Settings(steps), batch_norm=strategy.batch_norm)
        if same:
            replica.sampler.__class__ = Same
        strategy.configure(replica)
        for step in range(steps):
            strategy.step(replica, step)
        strategy.pause(replica)
        ends.append(strategy.reconcile(replica))
        strategy.finish(replica)
    return ends


@pytest.mark.parametrize("workers", [2, 4])
def test_one_batch_on_all_is_data_parallel(cluster_of: Any, workers: int) -> None:
    ways = [
        Subnetwork(coverage, by=by) for coverage in (1 / workers, 0.5) for by in ("neuron", "block")
    ]
    for optimizer in ("sgd", "adam"):
        task = residual(optimizer, schedule=True, penalty=True)
        want, *got = cluster_of(workers).run(together, task, [DataParallel(), *ways], 5, True)[1]
        for one in got:
            assert all(torch.equal(one[name], value) for name, value in want.items())


def by_hand(task: Task, plan: Any, workers: int, steps: int) -> dict[str, torch.Tensor]:
    """Forward masking in one process: each worker's subnetwork, and means over holders."""
    sampler = Sampler(len(task.train), task.batch, seed=0, ranks=workers)
    model, optimizer = trained_model(task)
    learned = dict(model.named_parameters())
    for step in range(steps):
        sums = {name: torch.zeros_like(value) for name, value in learned.items()}
        counts = {name: torch.zeros_like(value) for name, value in learned.items()}
        for worker in range(workers):
            (ids,) = sampler.share(step, worker)
            part = copy.deepcopy(model)
            for name, module in part.named_modules():
                mask(module, [b for b in plan.blocks if b.module == name], worker, plan.coverage)
            if len(ids):
                task.loss(part, *task.train.take(ids)).sum().backward()
            held = [p for b in plan.blocks if worker in b.holders for p in b.parts]
            for one in [*held, *plan.common]:
                gradient = part.get_parameter(one.parameter).grad
                span = slice(one.start, one.stop)
                if gradient is not None:
                    sums[one.parameter].view(-1)[span] += gradient.view(-1)[span]
                counts[one.parameter].view(-1)[span] += len(ids)
        for name, value in learned.items():
            value.grad = sums[name] / counts[name].clamp(min=1)
        optimizer.step()
    return dict(model.state_dict())


def trained_model(task: Task) -> Any:
    from tests.training.reference import trained

    return trained(task, 0)


def mask(module: nn.Module, blocks: list[Any], worker: int, coverage: float) -> None:
    """Hooks in place of what the strategy does."""
    if not blocks:
        return
    if blocks[0].rows is None:
        there = float(worker in blocks[0].holders) / coverage
        module.register_forward_hook(lambda m, args, out: args[0] + there * (out - args[0]))
        return
    rows = torch.zeros(len(module.weight), dtype=torch.float64)
    for block in blocks:
        rows[slice(*block.rows)] = float(worker in block.holders) / coverage
    shape = (-1, 1) if isinstance(module, nn.Conv1d) else (-1,)
    module.register_forward_hook(lambda m, args, out: out * rows.view(shape))


def convolved() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 5, 2), nn.Tanh(), nn.Flatten(), nn.Linear(10, 3)
    ).double()


@pytest.mark.parametrize(
    ("model", "by", "coverage"),
    [(Residual, "block", 0.5), (Residual, "neuron", 0.25), (convolved, "neuron", 0.5)],
)
def test_forward_masking_is_as_by_hand(
    cluster4: dt.Cluster, model: Any, by: str, coverage: float
) -> None:
    task = replace(residual("adam"), model=lambda: model().double(), batch=9)
    plan = plan_subnetworks(task.model(), workers=4, coverage=coverage, by=by, forward=True)
    way = Subnetwork(coverage, by=by, masking="forward")
    (got,) = cluster4.run(together, task, [way], 4, False)[2]
    close(got, by_hand(task, plan, 4, 4), 1e-10)
    run = dt.train(cluster4, task, way, steps=4)
    close(run.state.model, got, 1e-12)
    assert run.history["test_loss"].notna().iloc[-1]


class Kept(torch.optim.SGD):
    """Remembers the gradients that it is given."""

    def step(self, closure: Any = None) -> None:
        grads = [v.grad.reshape(-1) for g in self.param_groups for v in g["params"]]
        self.__dict__.setdefault("seen", []).append(torch.cat(grads).clone())
        super().step()


def variances(ctx: Any, task: Task, strategies: list[Any], steps: int) -> list[float]:
    """Variance over batches of the gradient of the first block, the mean over its elements."""
    found = []
    for strategy in strategies:
        replica = Replica(ctx, task, Settings(steps, seed=3))
        strategy.configure(replica)
        for step in range(steps):
            strategy.step(replica, step)
        first = 56  # it comes behind the stem
        found.append(
            float(torch.stack(replica.optimizer.seen)[:, first : first + 144].var(0).mean())
        )
    return found


def test_variance_is_workers_over_holders(cluster2: dt.Cluster) -> None:
    """Within 15%, over 300 batches of one sample a worker that have nothing in common."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(600, cases.INPUTS, generator=generator)
    task = Task(
        "noise",
        Residual,
        dt.training.Examples(X, torch.randint(0, 3, (600,), generator=generator)),
        cases.loss,
        optimizer=partial(Kept, lr=0.0),
        batch=2,
    )
    ways = [Subnetwork(coverage, by="block") for coverage in (1, 0.5)]
    dense, half = cluster2.run(variances, task, ways, 300, timeout=120)[0]
    assert half / dense == pytest.approx(2, rel=0.15)


@pytest.fixture(scope="module")
def measured(cluster_of: Any) -> dict[tuple[str, str, float], dt.training.Run]:
    task = residual("adam", dtype=torch.float32)
    return {
        (by, masking, coverage): dt.train(
            cluster_of(4), task, Subnetwork(coverage, by=by, masking=masking), steps=3
        )
        for by, masking, coverage in [
            ("block", "backward", 0.5),
            ("block", "backward", 0.25),
            ("block", "forward", 0.5),
            ("neuron", "backward", 0.75),
            ("neuron", "forward", 0.25),
        ]
    }


def test_bytes_are_those_of_the_holder_sets(measured: Any) -> None:
    for (by, masking, coverage), run in measured.items():
        masked = 4 * 144 if by == "block" else 4 * 144 + 56 + (27 if masking == "backward" else 0)
        common, holders = 659 - masked, round(4 * coverage)
        words = 2 * (holders - 1) * masked + 2 * 3 * common
        assert run.trace.filter(phase="gradients").total == 3 * 4 * words, (by, masking)
        sent = (4 - holders) * masked if masking == "backward" else 0
        assert run.trace.filter(phase="weights").total == 3 * 4 * sent
        plan = plan_subnetworks(
            Residual(), workers=4, coverage=coverage, by=by, forward=masking == "forward"
        )
        assert plan.gradient_words() == words
        assert plan.weight_words() == (4 - holders) * masked


def test_state_is_coverage_times_the_dense_one(measured: Any) -> None:
    for (by, masking, coverage), run in measured.items():
        said = run.summary
        assert sum(said["masked_state_bytes"]) == 4 * coverage * said["maskable"] * 8
        common = said["learned"] - said["maskable"]
        for kept, all_kept in zip(said["masked_state_bytes"], said["optimizer_bytes"], strict=True):
            if by == "block":
                assert kept == coverage * said["maskable"] * 8
            assert all_kept == kept + common * 8
        whole = masking == "backward" or by == "neuron"
        held = 659 if whole else 659 - (1 - coverage) * 4 * 144
        assert said["parameter_bytes"] == [4 * held] * 4


@pytest.mark.parametrize(
    ("by", "masking", "redraw"),
    [("neuron", "backward", False), ("block", "forward", False), ("neuron", "forward", True)],
)
def test_resume_to_the_bit(
    cluster_of: Any, by: str, masking: str, redraw: bool, tmp_path: Any
) -> None:
    way = Subnetwork(0.5, by=by, masking=masking, redraw=redraw)
    task = residual("adamw", schedule=True)
    whole = dt.train(cluster_of(2), task, way, steps=5, evaluate_every=2)
    first = dt.train(cluster_of(2), task, way, steps=3)
    assert first.state.own == ()
    first.save(tmp_path / "run")
    again = dt.train(cluster_of(2), task, way, steps=5, resume=tmp_path / "run")
    same(again, whole)
    assert dt.train(cluster_of(4), task, way, steps=4, resume=first).state.step == 4


def test_what_is_drawn_anew_differs_by_step_and_is_held_by_all(cluster2: dt.Cluster) -> None:
    for by in ("neuron", "block"):
        run = dt.train(
            cluster2,
            residual("adam"),
            Subnetwork(0.3, by=by, masking="forward", redraw=True),
            steps=2,
        )
        assert run.summary["masked_state_bytes"] == [run.summary["maskable"] * 16] * 2
        assert run.trace.filter(phase="gradients").total == 2 * 8 * 2 * 659


def test_plans() -> None:
    for workers, coverage, by in product((2, 3, 4, 6), (1 / 3, 0.5, 1), ("neuron", "block")):
        if (coverage * workers) % 1 > 1e-9:
            continue
        model = Residual()
        plan = plan_subnetworks(model, workers=workers, coverage=coverage, by=by)
        count = {name: torch.zeros(value.numel()) for name, value in model.named_parameters()}
        for holders, parts in plan.sets().items():
            for part in parts:
                count[part.parameter][part.start : part.stop] += len(holders)
        masked = {p.parameter for block in plan.blocks for p in block.parts}
        for name, times in count.items():
            assert (times == (round(coverage * workers) if name in masked else workers)).all()
        assert sum(plan.held(w) for w in range(workers)) == pytest.approx(
            coverage * workers * plan.maskable
        )
        assert plan.learned == 659
    assert "<table" in plan._repr_html_()
    assert "coverage 1 by block" in repr(plan)


def test_what_makes_no_sense_is_refused(cluster2: dt.Cluster) -> None:
    for changes, words in (
        ({"coverage": 0}, "coverage=0"),
        ({"coverage": 1.5}, "coverage=1.5"),
        ({"by": "layer"}, "by='layer'"),
        ({"masking": "both"}, "masking='both'"),
        ({"redraw": True}, "redraw=True"),
    ):
        with pytest.raises(ValueError, match=words):
            Subnetwork(**changes)
    model, narrow = Residual(), nn.Sequential(nn.Linear(6, 3))
    for changes, words in (
        ({"workers": 3}, "coverage=0.5: of 3 workers that is 1.5.*1/3, 2/3, 3/3"),
        ({"by": "block", "blocks": ["blocks.9"]}, "no part 'blocks.9'"),
        ({"by": "block", "blocks": ["blocks", "blocks.1"]}, "'blocks.1' is named twice, or lies"),
        ({"keep": ["blocks.0"]}, "no layer 'blocks.0'"),
        ({"by": "block", "model": narrow}, "no residual blocks"),
        ({"forward": True, "model": narrow}, "nothing that can be masked"),
    ):
        asked = {"model": model, "workers": 2, **changes}
        with pytest.raises(ValueError, match=words):
            plan_subnetworks(asked.pop("model"), **asked)
    task = residual()
    with pytest.raises(ValueError, match=r"batch_norm='sync'.*'local' alone"):
        dt.train(cluster2, task, Subnetwork(masking="forward"), steps=1, batch_norm="sync")
    with pytest.raises(ValueError, match="compression=: subnetwork"):
        dt.train(cluster2, task, "subnetwork", steps=1, compression="sign")
    with pytest.raises(Exception, match="Adafactor looks over a whole tensor"):
        dt.train(cluster2, task, "subnetwork", steps=1, optimizer=torch.optim.Adafactor)
    way = Subnetwork(by="block", masking="forward", blocks=["stem", "head"])
    with pytest.raises(Exception, match=r"stem (gives|left out).*must keep the shape"):
        dt.train(cluster2, task, way, steps=1)


def test_lack_of_memory_is_not_blamed_on_what_is_left_out() -> None:
    class Fails(nn.Linear):
        def forward(self, error: Any) -> Any:
            raise error

    model = nn.Sequential(nn.Linear(2, 2), Fails(2, 2))
    Masked(model, blocks=["0"], layers=(), factor=1.0).choose(["0"], {})
    for error, seen in (
        (torch.OutOfMemoryError("0"), torch.OutOfMemoryError),
        (RuntimeError("0"), ValueError),
    ):
        with pytest.raises(seen):
            model(error)
