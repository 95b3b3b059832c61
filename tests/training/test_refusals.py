"""What makes no sense is refused on the client, before anything is sent, naming the argument."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.training import Examples, Strategy
from dtoolkit.training.strategies import STRATEGIES, DataParallel
from tests.training.toys import SAMPLES, examples, model, toy

ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"steps": 0}, ValueError, "steps=0: wanted an integer of at least 1"),
    ({"steps": -3}, ValueError, "steps=-3"),
    ({"steps": 2.5}, TypeError, "steps=2.5: wanted an integer"),
    ({"steps": True}, ValueError, "steps=True"),
    ({"steps": "10"}, TypeError, "steps='10'"),
    ({"seed": 1.5}, TypeError, "seed=1.5: wanted an integer"),
    ({"seed": "a"}, TypeError, "seed='a'"),
    ({"batch": 0}, ValueError, "batch=0"),
    ({"batch": 2.0}, TypeError, "batch=2.0"),
    ({"accumulate": 0}, ValueError, "accumulate=0"),
    ({"accumulate": 9}, ValueError, "accumulate=9: a batch of 8 samples cannot be cut"),
    ({"evaluate_every": 0}, ValueError, "evaluate_every=0"),
    ({"partition": [0, 1]}, ValueError, "partition"),
    ({"partition": [2] * SAMPLES}, ValueError, "partition"),
    ({"optimizer": "adam"}, TypeError, "optimizer is 'adam': wanted a callable"),
    ({"optimizer": lambda p: 3}, TypeError, "optimizer gave int: wanted a torch.optim.Optimizer"),
    ({"schedule": 3}, TypeError, "schedule is 3: wanted a callable"),
    ({"schedule": lambda o: None}, TypeError, r"schedule gave NoneType, which has no step\(\)"),
    ({"compression": "zip"}, ValueError, "compression='zip'"),
    ({"compression": 3}, TypeError, "compression=3"),
    ({"batch_norm": "global"}, ValueError, "batch_norm='global': wanted 'sync' .*, 'local'"),
    ({"batch_norm": True}, ValueError, "batch_norm=True: wanted"),
    *(
        (
            {"batch_norm": "sync", "strategy": name, "accumulate": 4},
            ValueError,
            f"batch_norm='sync'.*{name}.*'local' alone|dropcompute has 'local' alone",
        )
        for name in ("local-sgd", "gossip", "oscars", "dropcompute")
        if name in STRATEGIES
    ),
    ({"batch_norm": "local", "strategy": "ordered"}, ValueError, "ordered has 'shard' alone"),
    ({"faults": [3]}, TypeError, "faults: 3 is no fault"),
    ({"faults": "kill"}, TypeError, "faults: 'kill' is no fault"),
    ({"faults": [dt.faults.Slow(rank=5, seconds=1)]}, ValueError, "rank=5"),
    ({"checkpoint": 3}, TypeError, "checkpoint is int"),
    ({"checkpoint": "/nowhere/at/all/run.pt"}, OSError, "there is no folder /nowhere/at/all"),
    ({"checkpoint": "/"}, IsADirectoryError, "checkpoint: / is a folder"),
    ({"checkpoint": "/dev/null"}, FileExistsError, "checkpoint: /dev/null is no regular file"),
    ({"checkpoint": "/dev/fd/none"}, OSError, "checkpoint: nothing can be written in /dev/fd"),
    ({"resume": 3}, TypeError, "resume is int: wanted a Run"),
    ({"resume": "/nowhere/run.pt"}, FileNotFoundError, "there is no file /nowhere/run.pt"),
    ({"timeout": -5}, ValueError, "timeout must be"),
    ({"strategy": "data-paralel"}, ValueError, "no such strategy; wanted one of data-parallel"),
    ({"strategy": 3}, TypeError, "strategy is 3: wanted one of data-parallel"),
    ({"strategy": DataParallel}, TypeError, r"make one of it: DataParallel\(\)"),
    ({"task": None}, TypeError, "task .NoneType. has no attribute 'model'"),
    ({"task": toy(model=3)}, TypeError, "task.model is 3"),
    ({"task": toy(model=lambda: 3)}, TypeError, "gave 3: wanted an nn.Module"),
    ({"task": toy(metrics={"a": 3})}, TypeError, r"task.metrics\['a'\] is 3"),
]


@pytest.mark.parametrize(("changes", "kind", "words"), ARGUMENTS, ids=lambda one: str(one)[:40])
def test_arguments(
    changes: dict[str, Any], kind: type[Exception], words: str, nothing_runs: dt.Cluster
) -> None:
    asked = {"task": toy(), "strategy": "data-parallel", "steps": 2, **changes}
    with pytest.raises(kind, match=words):
        dt.train(nothing_runs, **asked)


class Forgetful:
    """A schedule whose state is no plain content."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        """Nothing."""

    def state_dict(self) -> dict[str, Any]:
        return {"seen": {1, 2}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""


class Extra(nn.Linear):
    """A module with a state beside tensors that cannot be kept."""

    def get_extra_state(self) -> Any:
        return {1, 2}

    def set_extra_state(self, state: Any) -> None:
        """Nothing."""


def test_what_cannot_be_kept_is_told_before_it_is_learned(nothing_runs: dt.Cluster) -> None:
    with pytest.raises(TypeError, match=r"the state of the schedule \(Forgetful\)\.seen is set"):
        dt.train(nothing_runs, toy(), steps=2, schedule=Forgetful)
    with pytest.raises(TypeError, match=r"task\.model.*_extra_state.* is set"):
        dt.train(nothing_runs, toy(model=lambda: Extra(4, 2)), steps=2)
    masked = model()
    dt.sparsity.Sparsifier(masked, torch.optim.SGD(masked.parameters(), 0.1), density=0.5)
    with pytest.raises(ValueError, match=r"carries masks of a Sparsifier \(0\.weight"):
        dt.train(nothing_runs, toy(model=lambda: masked), steps=2)
    with pytest.raises(TypeError, match=r"task\.train gave list: wanted dt\.training\.Examples"):
        dt.train(nothing_runs, toy(train=[torch.ones(2, 4), torch.ones(2)]), steps=2)
    with pytest.raises(TypeError, match=r"cluster is str: wanted a dtoolkit\.Cluster"):
        dt.train("here", toy(), steps=2)  # type: ignore[arg-type]


def test_all_strategies_are_listed(nothing_runs: dt.Cluster) -> None:
    with pytest.raises(ValueError, match="no such strategy") as refused:
        dt.train(nothing_runs, toy(), "sgd", steps=2)
    assert all(name in str(refused.value) for name in STRATEGIES)


def test_a_loss_that_is_a_mean_is_refused_with_what_to_do(nothing_runs: dt.Cluster) -> None:
    def mean(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), y)

    with pytest.raises(ValueError, match=r"task.loss gave \(\) for 2 samples.*reduction='none'"):
        dt.train(nothing_runs, toy(loss=mean), steps=2)
    with pytest.raises(ValueError, match=r"task.accuracy gave \(\) for 2 samples"):
        dt.train(nothing_runs, toy(metrics={"accuracy": mean}), steps=2)


def test_a_loss_that_is_a_mean_is_found_on_the_workers_too(cluster2: dt.Cluster) -> None:
    def mean(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), y)

    with pytest.raises(dt.errors.RankError, match=r"task.loss gave \(\).*reduction='none'"):
        dt.train(cluster2, toy(loss=mean, train=examples, test=None), steps=2)


def test_what_a_task_raises_comes_as_it_is_with_a_note(nothing_runs: dt.Cluster) -> None:
    wrong = toy(model=lambda: nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as raised:
        dt.train(nothing_runs, wrong, steps=2)
    assert "tried on two samples of 'train', raised this on the client" in raised.value.__notes__[0]


def test_an_optimizer_of_another_model_is_refused(nothing_runs: dt.Cluster) -> None:
    other = model()
    with pytest.raises(ValueError, match="optimizer holds parameters that it was not called with"):
        dt.train(
            nothing_runs, toy(), steps=2, optimizer=lambda _: torch.optim.SGD(other.parameters())
        )


def test_a_trial_leaves_the_generators_alone(cluster1: dt.Cluster) -> None:
    torch.manual_seed(11)
    wanted = torch.rand(3)
    torch.manual_seed(11)
    dt.train(cluster1, toy(), steps=1)
    assert torch.equal(torch.rand(3), wanted)


class Bare:
    """Samples that cannot be brought to a device."""

    def __len__(self) -> int:
        return SAMPLES

    def take(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return examples().take(ids)


def mean_loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x), y)


ONE = Examples(torch.ones(1, 4), torch.ones(1, dtype=torch.int64))
schedules = torch.optim.lr_scheduler
one_cycle = partial(schedules.OneCycleLR, max_lr=0.1, total_steps=3)
words = toy(
    model=lambda: nn.Sequential(nn.Embedding(9, 2, sparse=True), nn.Flatten()),
    train=(torch.zeros(5, 1, dtype=torch.int64), torch.zeros(5, dtype=torch.int64)),
    test=None,
)

TRIED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"optimizer": torch.optim.LBFGS}, ValueError, "optimizer: LBFGS.step needs 'closure'"),
    (
        {"schedule": schedules.ReduceLROnPlateau},
        ValueError,
        "schedule: ReduceLROnPlateau.step needs 'metrics'",
    ),
    ({"schedule": one_cycle}, ValueError, "schedule: OneCycleLR .* total_steps=3, and steps=4"),
    (
        {"task": toy(penalty=lambda model: model[0].weight.abs())},
        ValueError,
        r"task.penalty gave a tensor of shape \(6, 4\): wanted one value",
    ),
    ({"task": toy(penalty=lambda model: 0.5)}, TypeError, "task.penalty gave float"),
    ({"task": words}, ValueError, "task.model: 0 is an embedding with sparse=True"),
    ({"task": toy(train=ONE, loss=mean_loss)}, ValueError, r"task.loss gave \(\) for 2 samples"),
    ({"task": toy(train=Bare())}, TypeError, r"task.train is Bare, which has no to\(device\)"),
    ({"task": toy(test=Bare())}, TypeError, r"task.test is Bare, which has no to\(device\)"),
    ({"task": toy(train=[1, 2])}, TypeError, "task.train gave list: wanted dt.training.Examples"),
    ({"task": toy(test=[1, 2])}, TypeError, "task.test gave list: wanted dt.training.Examples"),
    (
        {"task": toy(test=Examples(torch.ones(9, 3), torch.ones(9, dtype=torch.int64)))},
        RuntimeError,
        "shapes cannot be multiplied",
    ),
    (
        {"task": toy(train=examples, metrics={"accuracy": mean_loss})},
        ValueError,
        r"task.accuracy gave \(\) for 2 samples",
    ),
]


@pytest.mark.parametrize(("changes", "kind", "words"), TRIED, ids=[one[2][:30] for one in TRIED])
def test_what_a_trial_finds(
    changes: dict[str, Any], kind: type[Exception], words: str, nothing_runs: dt.Cluster
) -> None:
    with pytest.raises(kind, match=words):
        dt.train(nothing_runs, **{"task": toy(), "steps": 4, **changes})


def test_what_a_trial_lets_pass(cluster1: dt.Cluster) -> None:
    exact = partial(schedules.OneCycleLR, max_lr=0.1, total_steps=4)
    dt.train(cluster1, toy(), steps=4, schedule=exact, optimizer=torch.optim.SGD)
    one = toy(train=ONE, model=lambda: nn.Linear(4, 2), test=ONE)
    assert dt.train(cluster1, one, steps=2).state.step == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_trial_leaves_a_users_model_as_it_was(cluster1: dt.Cluster, fails: bool) -> None:
    class Seen(nn.Linear):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = super().forward(x)
            return self.last

    def loss(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        losses = nn.functional.cross_entropy(net(x), y, reduction="none")
        if torch.is_grad_enabled():
            losses.sum().backward()
            net[0].weight.requires_grad_(False).mul_(2)
        torch.rand(3)
        return losses.mean() if fails else losses.detach()

    net = nn.Sequential(Seen(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    net[0].bias.grad = torch.ones(6)
    net[1].eval()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    generator = torch.get_rng_state()
    with pytest.raises(ValueError if fails else dt.errors.RankError, match=r"task\.loss gave"):
        dt.train(cluster1, toy(model=partial(lambda one: one, net), loss=loss), steps=2)
    assert torch.equal(torch.get_rng_state(), generator)
    for name, value in net.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert [module.training for module in net] == [True, False, True]
    assert all(value.requires_grad for value in net.parameters())
    assert torch.equal(net[0].bias.grad, torch.ones(6))
    assert net[2].weight.grad is None
    assert net[0].calls == 0
    assert not hasattr(net[0], "last")


class Picky(DataParallel):
    """Takes no accumulation."""

    name = "picky"

    def check(self, settings: Any) -> None:
        if settings.accumulate > 1:
            raise ValueError("picky takes no accumulate=")


def test_a_strategy_refuses_settings_before_anything_is_sent(nothing_runs: dt.Cluster) -> None:
    with pytest.raises(ValueError, match="picky takes no accumulate="):
        dt.train(nothing_runs, toy(), Picky(), steps=2, accumulate=2)


def test_a_strategy_must_say_how_it_steps() -> None:
    class Idle(Strategy):
        name = "idle"

    with pytest.raises(TypeError, match="abstract"):
        Idle()  # type: ignore[abstract]
