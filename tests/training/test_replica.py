"""One rank's model: gradients as a flat vector, updates, evaluation."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.errors import ReplicaMismatch
from dtoolkit.training import Examples, Replica, Settings, Task
from dtoolkit.training.loaded import digest
from tests.training import cases


class Alone:
    """A context of one rank, without messages."""

    def __init__(self) -> None:
        self.rank, self.size, self.device = 0, 1, torch.device("cpu")
        self.comm = self

    def check(self) -> None:
        pass

    def all_gather_v(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor]


def replica(task: Task, **more: Any) -> Replica:
    return Replica(Alone(), task, Settings(5, **more))


def test_gradients_are_sums_over_samples() -> None:
    task = cases.task("tied")
    one = replica(task)
    ids = torch.tensor([3, 1, 4])
    total, count = one.backward(ids, step=0, micro=0)
    losses = task.loss(one.model, *task.train.take(ids))
    assert count == 3
    assert total == pytest.approx(float(losses.sum().detach()), rel=1e-12)
    want = torch.autograd.grad(losses.sum(), [value for _, value in one.parameters])
    for (_, value), grad in zip(one.parameters, want, strict=True):
        torch.testing.assert_close(value.grad, grad, rtol=1e-12, atol=1e-12)
    assert one.backward(ids[:0], step=0, micro=1) == (0.0, 0)
    names = [name for name, _ in one.parameters]
    assert names == ["inner.weight", "outer.bias", "last.weight", "last.bias"]


def test_flat_gradients_say_what_was_used() -> None:
    one = replica(cases.task("chosen"))
    names = [name for name, _ in one.parameters]
    assert not any(name.startswith("frozen") for name in names)
    one.backward(torch.arange(5), step=0, micro=0)
    flat, used = one.gradients()
    assert {n for n, u in zip(names, used.tolist(), strict=True) if not u} >= {"never.weight"}
    assert flat.shape == one.flat_parameters().shape
    one.zero_grad()
    one.load_gradients(2 * flat, used)
    again, still = one.gradients()
    assert torch.equal(again, 2 * flat)
    assert torch.equal(still, used)
    assert dict(one.parameters)["never.weight"].grad is None


def test_flat_parameters_come_back() -> None:
    one = replica(Task("mixed", cases.mixed, cases.examples(), cases.loss))
    flat = one.flat_parameters()
    assert flat.dtype == torch.float64
    one.load_parameters(flat * 0 + 1)
    assert all(bool((value == 1).all()) for _, value in one.parameters)
    one.load_parameters(flat)
    assert torch.equal(one.flat_parameters(), flat)
    flat.zero_()
    assert bool(one.flat_parameters().any())  # a copy


def test_updates_divide_penalise_and_step_the_schedule() -> None:
    one = replica(cases.task(schedule=True, penalty=True))
    other = replica(cases.task(schedule=True, penalty=True))
    one.backward(torch.arange(8), step=0, micro=0)
    one.update(8)
    other.backward(torch.arange(8), step=0, micro=0, weight=1 / 8)
    other.update(1)
    torch.testing.assert_close(
        one.flat_parameters(), other.flat_parameters(), rtol=1e-12, atol=1e-12
    )
    assert one.schedule.last_epoch == 1
    assert all(value.grad is None for _, value in one.parameters)
    before = one.flat_parameters()
    one.update(0)  # nothing was used: nothing is stepped
    assert torch.equal(one.flat_parameters(), before)
    assert one.schedule.last_epoch == 1


def test_state_goes_on_to_the_bit() -> None:
    one = replica(cases.task("batch norm", "adam", schedule=True))

    def step(this: Replica, number: int) -> None:
        this.backward(this.sampler.batch(number), step=number, micro=0)
        this.update(this.sampler.planned(number))

    step(one, 0)
    state = one.state()
    step(one, 1)
    other = replica(cases.task("batch norm", "adam", schedule=True), seed=3)
    other.sampler.seed = 0
    other.load_state(state)
    step(other, 1)
    for name, value in one.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], value)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(cases.INPUTS, cases.CLASSES)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(x))


def test_randomness_belongs_to_step_and_micro_batch() -> None:
    one = replica(Task("noisy", Noisy, cases.examples(torch.float32), cases.loss))
    ids = torch.arange(8)

    def loss(**where: int) -> float:
        torch.rand(3)  # what is drawn outside changes nothing
        return one.backward(ids, **where)[0]

    first = loss(step=0, micro=0)
    assert loss(step=0, micro=0) == first
    others = {loss(step=1, micro=0), loss(step=0, micro=1), loss(step=0, micro=0, item=1)}
    assert len(others | {first}) == 4


def evaluate(ctx: Any, task: Task) -> tuple[dict[str, float], dict[str, float], bool]:
    one = Replica(ctx, task, Settings(1))
    one.model.train()
    state = {name: torch.zeros_like(value) for name, value in one.model.state_dict().items()}
    before = one.flat_parameters()
    at_zero = one.evaluate(state)
    same = torch.equal(one.flat_parameters(), before) and one.model.training
    return one.evaluate(), at_zero, same


def test_evaluation_does_not_depend_on_the_workers(cluster_of: Any) -> None:
    base = cases.task()
    many = Examples(base.train.inputs.repeat(9, 1), base.train.targets.repeat(9))
    task = Task("many", base.model, base.train, base.loss, test=many, metrics=base.metrics)
    (want,) = cluster_of(1).run(evaluate, task)
    for got in cluster_of(3).run(evaluate, task):
        assert got == want
    figures, at_zero, same = want
    assert same
    assert set(figures) == {"test_loss", "test_accuracy"}
    assert at_zero["test_loss"] == pytest.approx(float(torch.tensor(cases.CLASSES).log()))


def test_a_model_without_parameters_can_be_stepped() -> None:
    task = Task("none", nn.Identity, cases.examples(), lambda m, x, y: m(x).sum(1))
    one = replica(task)
    one.backward(torch.arange(3), step=0, micro=0)
    assert one.gradients()[0].shape == (0,)
    one.update(3)
    assert one.flat_parameters().shape == (0,)


@pytest.mark.parametrize(
    ("words", "loss"),
    [
        ("gave .* for 4 samples", lambda m, x, y: cases.loss(m, x, y).mean()),
        ("one value a sample", lambda m, x, y: m(x)),
        ("one value a sample", lambda m, x, y: 3.0),
        ("depend on no learned parameter", lambda m, x, y: cases.loss(m, x, y).detach()),
    ],
)
def test_a_loss_must_be_one_value_a_sample(words: str, loss: Any) -> None:
    task = Task("odd", cases.plain, cases.examples(torch.float32), loss)
    with pytest.raises((ValueError, TypeError), match=words):
        replica(task).backward(torch.arange(4), step=0, micro=0)


class Sleepy:
    def pause(self, seed: int, rank: int, step: int, micro: int, took: float) -> float:
        return 0.12 if (rank, step, micro) == (0, 2, 1) else 0.0


def test_faults_make_it_slow_and_a_stop_is_heard() -> None:
    one = replica(cases.task(), faults=(Sleepy(), object()))
    heard: list[float] = []
    one.comm.check = lambda: heard.append(time.perf_counter())  # type: ignore[method-assign]
    one.backward(torch.arange(3), step=2, micro=0)
    assert not heard
    start = time.perf_counter()
    one.backward(torch.arange(3), step=2, micro=1)
    assert time.perf_counter() - start >= 0.12
    assert heard


def drawn() -> Examples:
    """Samples of the generators that are seeded."""
    rows = torch.from_numpy(np.random.permutation(len(cases.examples())))
    return Examples(*cases.examples(torch.float32).take(rows[torch.randperm(len(rows))]))


def unseeded() -> Examples:
    rows = torch.from_numpy(np.random.default_rng().permutation(len(cases.examples())))
    return Examples(*cases.examples(torch.float32).take(rows))


def loaded(ctx: Any, task: Task) -> list[torch.Tensor]:
    one = Replica(ctx, task, Settings(1))
    assert one.test is not None
    return [one.examples.inputs, one.test.inputs]


def test_examples_are_loaded_under_the_seed(cluster2: Any) -> None:
    task = Task("drawn", cases.plain, drawn, cases.loss, test=drawn)
    (train, test), others = cluster2.run(loaded, task)
    assert torch.equal(train, others[0])
    assert torch.equal(test, others[1])
    assert not torch.equal(train, test)
    assert torch.equal(cluster2.run(loaded, task)[0][0], train)
    assert torch.equal(replica(task).examples.inputs, train)
    assert not torch.equal(replica(task, seed=1).examples.inputs, train)


@pytest.mark.parametrize("name", ["train", "test"])
def test_examples_that_differ_are_noticed(cluster_of: Any, name: str) -> None:
    sets: dict[str, Any] = {"train": cases.examples(torch.float32), "test": None, name: unseeded}
    task = Task("odd", cases.plain, loss=cases.loss, **sets)
    with pytest.raises(ReplicaMismatch, match=rf"after 0 steps .* examples\.{name}") as got:
        dt.train(cluster_of(3), task, steps=1)
    assert got.value.fields == (f"examples.{name}",)
    assert got.value.ranks == (1, 2)


def test_a_digest_is_of_all_that_a_set_holds() -> None:
    x, y = torch.randn(40, 3), torch.zeros(40, dtype=torch.int64)
    other = x.clone()
    other[17, 1] += 1
    sets = [
        Examples(x, y),
        Examples(other, y),
        Examples(x, y.int()),
        Examples(x.bfloat16(), y > 0),
        Examples(x.reshape(40, 3, 1), y),
        Examples(x[:39], y[:39]),
    ]
    assert len({digest(one) for one in sets}) == len(sets)
    assert digest(Examples(x.clone(), y)) == digest(sets[0])
    last = x.clone()
    last[39] = 0
    few = 5 * (3 * 4 + 8)  # of a large set, samples alone
    assert digest(Examples(last, y), most=few) != digest(sets[0], most=few)
    assert digest(Examples(other, y), most=few) == digest(sets[0], most=few)


def in_eval_mode() -> nn.Module:
    return nn.Sequential(nn.Linear(cases.INPUTS, cases.CLASSES), nn.Dropout()).eval()


def in_part() -> nn.Module:
    model = in_eval_mode().train()
    model[1].eval()
    return model


def test_a_model_in_eval_mode_is_trained_in_train_mode() -> None:
    data = cases.examples(torch.float32)
    one = replica(Task("pretrained", in_eval_mode, data, cases.loss))
    assert one.model.training
    assert one.model[1].training
    part = replica(Task("in part", in_part, data, cases.loss))
    assert part.model.training
    assert not part.model[1].training  # as its maker wanted it
