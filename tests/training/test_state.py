"""The state of a run: what its digest tells apart, and the file that it is kept in."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.training import Run, RunState
from dtoolkit.training.optimizer_state import load_optimizer, optimizer_state
from dtoolkit.training.plain import digest_of, plain
from dtoolkit.training.statefile import FORMAT, write_parts
from tests.training.toys import toy


def a_state(**changes: Any) -> RunState:
    state = RunState(
        step=5,
        strategy="data-parallel",
        workers=4,
        seed=3,
        model={"0.weight": torch.arange(6.0).reshape(2, 3), "0.bias": torch.zeros(2)},
        optimizer={
            "state": {"0.weight": {"step": torch.tensor(5.0), "exp_avg": torch.ones(2, 3)}},
            "groups": [{"params": ["0.weight", "0.bias"], "lr": 0.1}],
        },
        schedule={"last_epoch": 5, "milestones": Counter({3: 1})},
        sampler={"samples": 23, "batch": 9, "accumulate": 1},
    )
    return replace(state, **changes)


def test_the_same_content_has_the_same_digest_whatever_its_order_and_workers() -> None:
    state = a_state()
    other = a_state(
        workers=1,
        model=dict(reversed(state.model.items())),
        own=({}, {}),
        terms={"accumulate": 1},
        schedule={
            "milestones": {3: 1},
            "last_epoch": 5,
        },
    )
    assert state.digest() == other.digest()
    assert state.differs_from(other) == []
    assert len(state.digest()) == 32


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"step": 6}, ["step"]),
        ({"seed": 4}, ["seed"]),
        ({"strategy": "gossip"}, ["strategy"]),
        ({"sampler": {"samples": 23, "batch": 8, "accumulate": 1}}, ["sampler"]),
        ({"schedule": None}, ["schedule"]),
        ({"masks": {"0.weight": torch.ones(2, 3)}}, ["masks.0.weight"]),
        ({"random": {"torch": torch.ones(3)}}, ["random"]),
        ({"own": ({"residual": torch.ones(2)}, {})}, ["own.0.residual"]),
    ],
)
def test_every_part_is_in_the_digest(changes: dict[str, Any], names: list[str]) -> None:
    state, other = a_state(), a_state(**changes)
    assert state.digest() != other.digest()
    assert state.differs_from(other) == names


def test_a_difference_is_named_to_the_tensor() -> None:
    state, other = a_state(), copy.deepcopy(a_state())
    other.model["0.weight"][1, 2] = torch.nextafter(torch.tensor(5.0), torch.tensor(6.0))
    other.optimizer["state"]["0.weight"]["exp_avg"][0, 0] = 2
    other.optimizer["groups"][0]["lr"] = 0.2
    assert state.differs_from(other) == [
        "model.0.weight",
        "optimizer.0.weight.exp_avg",
        "optimizer.groups",
    ]


def test_kinds_dtypes_and_shapes_are_told_apart() -> None:
    values = [1, 1.0, True, "1", None, [1], {"1": 1}, {1: 1}, 0.0, -0.0, float("nan")]
    values += [torch.tensor([1]), torch.tensor([1.0]), torch.tensor([[1]]), torch.tensor(1)]
    values += [torch.tensor([True]), torch.tensor([1.0], dtype=torch.bfloat16), [], [[]], ""]
    digests = [digest_of(value) for value in values]
    assert len(set(digests)) == len(values)
    assert digest_of((1, "a")) == digest_of([1, "a"])
    spread = torch.arange(12.0).reshape(3, 4).T
    assert digest_of(spread) == digest_of(spread.contiguous())
    assert digest_of(torch.empty(0, 3)) != digest_of(torch.empty(3, 0))


def test_the_digest_is_that_of_any_process() -> None:
    program = "from tests.training.test_state import a_state; print(a_state().digest())"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == a_state().digest()


def test_only_plain_content_is_taken_and_nobody_else_can_change_it() -> None:
    source = {"a": torch.ones(2), "b": [np.float32(2), np.arange(2)], 3: (True, None)}
    taken = plain(source, "it")
    source["a"].zero_()
    assert digest_of(taken) == digest_of(
        {"a": torch.ones(2), "b": [2.0, torch.arange(2)], 3: [True, None]}
    )
    with pytest.raises(TypeError, match=r"the state\.a\[1\] is set"):
        plain({"a": [0, {1}]}, "the state")
    with pytest.raises(TypeError, match="names in a state are text or integers"):
        plain({(1, 2): 0}, "the state")


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "plain sgd": partial(torch.optim.SGD, lr=0.1),
    "adam": partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "adamw": partial(torch.optim.AdamW, lr=torch.tensor(0.01)),
    "nadam": partial(torch.optim.NAdam, lr=0.01),
    "rprop": partial(torch.optim.Rprop, lr=0.01),
    "lbfgs": partial(torch.optim.LBFGS, lr=0.1),
    "adagrad": partial(torch.optim.Adagrad, lr=0.1),
}


def two_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    x = torch.linspace(-1, 1, 15).reshape(5, 3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = (model(x) - 1).square().mean()
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_goes_on_to_the_bit(name: str) -> None:
    model = two_layers()
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    learn(model, optimizer, 3)
    weights = copy.deepcopy(model.state_dict())
    saved = optimizer_state(optimizer, list(model.named_parameters()))
    learn(model, optimizer, 4)

    again = two_layers()
    again.load_state_dict(weights)
    other = OPTIMIZERS[name](list(again.parameters()))
    load_optimizer(other, saved, list(again.named_parameters()))
    assert digest_of(optimizer_state(other, list(again.named_parameters()))) == digest_of(saved)
    learn(again, other, 4)
    assert digest_of(plain(again.state_dict(), "")) == digest_of(plain(model.state_dict(), ""))
    if name == "nadam":
        assert set(saved["state"]["2.weight"]) == {"step", "mu_product", "exp_avg", "exp_avg_sq"}


def test_an_optimizer_of_other_parameters_is_refused() -> None:
    model = two_layers()
    named = list(model.named_parameters())
    saved = optimizer_state(torch.optim.SGD(model.parameters()), named)
    half = torch.optim.SGD([p for n, p in named if n.endswith("weight")])
    with pytest.raises(ValueError, match=r"\['0.weight', '2.weight'\].* and the saved state"):
        load_optimizer(half, saved, named)


def test_a_state_comes_back_from_its_file(tmp_path: Path) -> None:
    own = ({"clock": 1.5, "names": ["a", "b"]}, {"residual": torch.ones(2, dtype=torch.bfloat16)})
    state = a_state(own=own, terms={"schedule": None, "accumulate": 1})
    state.save(tmp_path / "state")
    again = RunState.load(tmp_path / "state")
    assert again.digest() == state.digest()
    assert again.differs_from(state) == []
    assert (again.workers, again.own[0]) == (4, own[0])
    assert again.terms == state.terms
    assert os.listdir(tmp_path) == ["state"]


def test_a_file_is_replaced_only_by_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    a_state().save(path)

    def fail(content: Any, file: Any) -> None:
        file.write(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="no space"):
        a_state(step=6).save(path)
    monkeypatch.undo()
    assert RunState.load(path).step == 5
    assert os.listdir(tmp_path) == ["state"]


def test_files_that_are_something_else_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def refused(words: str, kind: type[Exception] = ValueError) -> None:
        with pytest.raises(kind, match=words):
            RunState.load(path)

    refused("there is no file", FileNotFoundError)
    path.write_bytes(b"")
    refused("is no file of a training run, is damaged, or is cut short")
    path.write_text("a,b\n1,2\n" * 1000)
    refused("is no file of a training run")
    torch.save({"weights": torch.ones(3)}, path)
    refused("holds something else than a training run")
    torch.save({"format": FORMAT, "version": 99}, path)
    refused("is of version 99 of the format.* update dtoolkit")
    torch.save(Unsafe(), path)
    refused("is no file of a training run")
    write_parts(path, {"other": 1})
    refused("holds no state")
    with pytest.raises(ValueError, match="is a folder"):
        RunState.load(tmp_path)


def test_a_file_of_the_first_version_is_read_and_not_resumed(
    tmp_path: Path, cluster1: dt.Cluster
) -> None:
    path = tmp_path / "run"
    dt.train(cluster1, toy(), steps=2).save(path)
    content = torch.load(path, weights_only=True)
    del content["parts"]["state"]["terms"]
    content |= {"version": 1, "digest": digest_of(content["parts"])}
    torch.save(content, path)
    assert len(Run.load(path).history) == 2
    assert RunState.load(path).terms == {}
    with pytest.raises(ValueError, match="is of an earlier version, which did not keep what it"):
        dt.train(cluster1, toy(), steps=4, resume=path)


class Unsafe:
    """Runs something when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


def test_damage_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state"
    a_state().save(path)
    whole = path.read_bytes()
    for length in (10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged"):
            RunState.load(path)
    at = whole.index(torch.arange(6.0).numpy().tobytes()) + 2
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
    with pytest.raises(ValueError, match="damaged"):
        RunState.load(path)


def test_text_says_what_it_is() -> None:
    text = repr(a_state())
    assert "data-parallel, step 5, seed 3, 8 numbers in the model, digest" in text
    assert a_state().nbytes == 8 * 4 + 4 + 24
