"""D-SLIDE against one process: active sets, losses, weights, bytes; stop and resume."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import RankError
from dtoolkit.training import Run, Task, tasks
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.seeds import seeded
from dtoolkit.training.slide import RowSparseAdam
from dtoolkit.training.slide.layer import SlideLinear
from dtoolkit.training.slide.model import SlideModel
from dtoolkit.training.slide.sharing import traffic
from dtoolkit.training.strategies import DSlide

STEPS, SEED, BATCH, HIDDEN = 13, 1, 33, 18  # 160 samples: batches of 33 and of 28
LAYER: dict[str, Any] = {"tables": 5, "hashes": 2, "refresh": (3, 0.2)}


def data() -> dt.data.LabelledSamples:
    return dt.data.extreme(301, 90, 200, seed=0, labels=2)


def task(**changes: Any) -> Task:
    return tasks.extreme(data(), **{"hidden": HIDDEN, "batch": BATCH, **LAYER, **changes})


class Watched(DSlide):
    """Tells which neurons each step has computed."""

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "sets": self.sets}

    def configure(self, replica: Any) -> None:
        super().configure(replica)
        self.sets: list[list[Any]] = []
        output, find = self._output, self._output.active

        def noted(hidden: Any, labels: Any = None) -> Any:
            found = find(hidden, labels)
            sample = np.repeat(np.arange(len(found)), found.sizes)
            local = torch.from_numpy(np.stack([sample, found.ids + output.start]))
            each = replica.comm.all_gather_v(local)
            whole = torch.cat(each, dim=1).numpy()
            self.sets.append(whole[:, np.lexsort(whole[::-1])].tolist())
            return found

        output.active = noted  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def runs(cluster_of: Callable[[int], dt.Cluster]) -> dict[int, Run]:
    """The same run on 1, 2 and 4 workers."""
    return {n: dt.train(cluster_of(n), task(), DSlide(), steps=STEPS, seed=SEED) for n in (1, 2, 4)}


def by_hand(made: Task) -> tuple[SlideModel, list[float], list[list[Any]]]:
    """One process: the layers' own loss, torch's graph, the same batches."""
    with seeded(SEED, "model"):
        model: Any = made.model()
    optimizer = made.optimizer(list(model.parameters()))
    sampler = Sampler(len(made.train), BATCH, seed=SEED, ranks=1)  # type: ignore[arg-type]
    losses, sets = [], []
    for step in range(STEPS):
        inputs, labels = made.train.take(sampler.batch(step))  # type: ignore[union-attr]
        found = model.output.active(torch.relu(model.hidden.pool(inputs)), tuple(labels[:2]))
        sample = np.repeat(np.arange(len(found)), found.sizes)
        sets.append(np.stack([sample, found.ids]).tolist())
        loss = made.loss(model, inputs, labels).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return model, losses, sets


@pytest.fixture(scope="module")
def alone() -> tuple[SlideModel, list[float], list[list[Any]]]:
    return by_hand(task())


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_it_is_one_process(runs: dict[int, Run], alone: Any, workers: int) -> None:
    model, losses, _ = alone
    run = runs[workers]
    assert np.allclose(run.history["loss"], losses, rtol=1e-6)
    for name, value in model.state_dict().items():
        here = run.state.model[name]
        assert here.shape == value.shape, name
        assert here.dtype == value.dtype, name
        # A millionth of a step of Adam, for each: 0.003.
        assert torch.allclose(here.double(), value.double(), atol=2e-6, rtol=0), name
    assert torch.equal(run.state.model["output.codes"], model.output.codes)  # type: ignore[union-attr]
    assert int(run.state.model["output.updates"]) == STEPS
    learned = [value for value in model.parameters() if value.requires_grad]
    assert sum(float((value - value.mean()).detach().abs().max()) > 0 for value in learned) == 4
    assert run.history["test_precision"].iloc[-1] == runs[1].history["test_precision"].iloc[-1]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("workers", [2, 4])
def test_the_active_sets_are_those_of_one_process(
    cluster_of: Callable[[int], dt.Cluster], alone: Any, workers: int
) -> None:
    run = dt.train(cluster_of(workers), task(), Watched(), steps=STEPS, seed=SEED)
    assert run.summary["sets"] == alone[2]
    sizes = np.bincount(alone[2][-1][0])
    assert 2 < sizes.min() <= sizes.max() < 250  # neither nothing nor all


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_bytes_are_those_of_the_formula(runs: dict[int, Run], workers: int) -> None:
    run, sampler = runs[workers], Sampler(160, BATCH, seed=SEED, ranks=1)
    sizes = [sampler.planned(step) for step in range(STEPS)]
    assert set(sizes) == {33, 28}
    want = sum(traffic(batch=size, hidden=HIDDEN, ranks=workers) for size in sizes)
    sent = np.zeros(workers, np.int64)
    for phase in ("hidden", "normaliser", "deltas"):
        counted = run.trace.filter(phase=phase).matrix()
        sent += counted.sum(1)[:workers] if workers > 1 else 0
    assert np.array_equal(sent, want)
    assert run.history["bytes"].sum() == want.sum()  # and nothing else
    assert run.summary["bytes_a_step"] == traffic(batch=33, hidden=HIDDEN, ranks=workers).sum()


def test_the_formula_is_the_paper_shape() -> None:
    each = traffic(batch=256, hidden=128, ranks=4)
    assert each.tolist() == [196_608 + 3_072] * 4
    assert traffic(batch=256, hidden=128, ranks=1).tolist() == [0]
    for batch, hidden, ranks in ((33, 18, 4), (3, 7, 4), (10, 5, 2)):
        units = [len(one) for one in np.array_split(np.arange(hidden), ranks)]
        samples = [len(one) for one in np.array_split(np.arange(batch), ranks)]
        want = [
            4 * batch * (u * (ranks - 1) + hidden - u) + 8 * (batch - s + s * (ranks - 1))
            for u, s in zip(units, samples, strict=True)
        ]
        assert traffic(batch=batch, hidden=hidden, ranks=ranks).tolist() == want


HASHED = {"hash_hidden": {"tables": 3, "hashes": 1, "refresh": (4, 0.0)}, "hidden": 40}


def test_a_hashed_hidden_layer_sends_numbers_and_values(
    cluster_of: Callable[[int], dt.Cluster],
) -> None:
    made = task(**HASHED)
    model, losses, _ = by_hand(made)
    for workers in (1, 2, 4):
        run = dt.train(cluster_of(workers), made, DSlide(), steps=STEPS, seed=SEED)
        assert np.allclose(run.history["loss"], losses, rtol=1e-6)
        for name, value in model.state_dict().items():
            here = run.state.model[name].double()
            assert torch.allclose(here, value.double(), atol=2e-6, rtol=0), name
        assert torch.equal(run.state.model["hidden.codes"], model.hidden.codes)  # type: ignore[arg-type]
        sizes = [33, 33, 33, 33, 28]
        assert 1 < run.history["active_hidden"].mean() * workers < 30  # of 40
        want = 0
        for step in range(STEPS):
            batch = sizes[step % 5]
            shares = [run.history[f"active_hidden_{rank}"].iloc[step] for rank in range(workers)]
            active = [round(share * batch) for share in shares]
            want += traffic(batch=batch, hidden=40, ranks=workers, active=active).sum()
        assert run.history["bytes"].sum() == want


def test_a_batch_smaller_than_the_workers(cluster_of: Callable[[int], dt.Cluster]) -> None:
    small = [dt.train(cluster_of(n), task(batch=3), DSlide(), steps=2, seed=SEED) for n in (1, 4)]
    for name, value in small[0].state.model.items():
        assert torch.allclose(value.double(), small[1].state.model[name].double(), atol=2e-6)


def test_stop_and_resume_are_bit_equal(cluster_of: Callable[[int], dt.Cluster]) -> None:
    cluster = cluster_of(2)
    halving = partial(torch.optim.lr_scheduler.StepLR, step_size=4, gamma=0.5)
    asked: dict[str, Any] = {"seed": SEED, "schedule": halving}
    whole = dt.train(cluster, task(), "dslide", steps=STEPS, **asked)
    first = dt.train(cluster, task(), "dslide", steps=5, **asked)
    second = dt.train(cluster, task(), "dslide", steps=STEPS, resume=first, **asked)
    assert second.state.digest() == whole.state.digest()
    assert set(whole.history["lr"]) == {0.003, 0.0015, 0.00075, 0.000375}
    own = first.state.own
    assert [one["optimizer"]["state"]["output.weight"]["exp_avg"].shape for one in own] == [
        (151, HIDDEN),
        (150, HIDDEN),
    ]
    with pytest.raises(ValueError, match="made by 2 workers, this cluster has 4"):
        dt.train(cluster_of(4), task(), "dslide", steps=9, resume=first, **asked)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compression": "top-k"}, "compression=.*every worker reads the whole batch"),
        ({"partition": "cyclic"}, "partition='cyclic'"),
        ({"accumulate": 2}, "accumulate=2: dslide has 1 alone"),
        ({"optimizer": torch.optim.Adam}, "the optimizer is Adam: wanted .*RowSparseAdam"),
        (
            {"task": tasks.extreme(data(), output="full")},
            "SlideModel with Linear: wanted a SlideModel",
        ),
        ({"task": task(hidden=1, family="simhash")}, "2 workers for 1 hidden units"),
    ],
)
def test_what_does_not_fit_is_refused(cluster2: dt.Cluster, changes: Any, words: str) -> None:
    asked = {"task": task(), "strategy": "dslide", "steps": 1, **changes}
    with pytest.raises((ValueError, TypeError, RankError), match=words):
        dt.train(cluster2, asked.pop("task"), **asked)


def test_a_rate_that_is_too_large_is_told(cluster2: dt.Cluster) -> None:
    far = partial(RowSparseAdam, lr=1e30)
    with pytest.raises(FloatingPointError, match=r"the loss is (inf|nan) on rank \d at step \d"):
        dt.train(cluster2, task(), "dslide", steps=4, optimizer=far)


def test_a_part_is_a_part_of_the_whole() -> None:
    torch.manual_seed(0)
    model: Any = task().model()
    assert isinstance(model.output, SlideLinear)
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    parts = [model.part(rank, 4) for rank in range(4)]
    joined = model.joined([part.state_dict() for part in parts])
    assert all(torch.equal(joined[name], value) for name, value in whole.items())
    inputs, _ = task().train.take(torch.arange(9))  # type: ignore[union-attr]
    columns = torch.cat([part.hidden.pool(inputs) for part in parts], dim=1)
    assert torch.equal(columns, model.hidden.pool(inputs))
    model.empty()
    assert sum(value.numel() for value in model.parameters()) == 0
    model.load_state_dict(whole)
    assert all(torch.equal(value, whole[name]) for name, value in model.state_dict().items())
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.load_state_dict({**whole, "hidden.bias": torch.zeros(3)})


@pytest.mark.parametrize("ways", [{}, {"recovery": "replica"}])
def test_strategies_that_would_leave_its_gradients_out_are_refused(
    cluster2: dt.Cluster, ways: dict[str, str]
) -> None:
    with pytest.raises(RankError, match="RowSparseAdam, whose gradients by rows it does not send"):
        dt.train(cluster2, task(), "data-parallel", steps=2, **ways)
