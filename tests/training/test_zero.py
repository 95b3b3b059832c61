"""ZeRO over workers.

=======================================  ============================================
equal weights after k steps              all stages: the same bits, and one process
bytes sent in a step                     2, 2, 2, 3 psi words x (P-1)/P, exactly
bytes held, Adam in single precision     16, 8 + 8/P, 4 + 12/P, 16/P psi, exactly
stop and resume                          the same bits; other workers, to rounding
=======================================  ============================================
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtoolkit as dt
from dtoolkit.training import Task
from dtoolkit.training.loop import Job, learn
from dtoolkit.training.settings import Settings
from dtoolkit.training.sharding import memory, words
from dtoolkit.training.sharding.elementwise import check_elementwise
from dtoolkit.training.strategies import Zero
from tests.training import cases
from tests.training.by_hand import close, same
from tests.training.reference import trained
from tests.training.toys import toy

STEPS = 4  # the third batch is a small one
STAGES = (0, 1, 2, 3)
Run = tuple[Task, dict[str, Any], dict[str, Any]]  # task, settings, options


class Reaching(nn.Module):
    """Attention, which reaches into its output layer; a tied head; a recomputed layer; a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.inner = nn.Linear(4, 4)
        self.last = nn.Linear(4, cases.CLASSES)
        self.scale = nn.Parameter(torch.ones(cases.CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x.unsqueeze(-1))
        h = h + self.attend(h, h, h, need_weights=False)[0]
        h = checkpoint(self.inner, h, use_reentrant=False)
        h = torch.tanh(self.inner(h)) @ self.embed.weight
        return self.last(h.expand(-1, -1, 4).mean(1)) * self.scale


MODELS = {**cases.MODELS, "reaching": Reaching}


def task_of(model: str, optimizer: str, **more: Any) -> Task:
    task = cases.task("plain", optimizer, **more)
    return replace(task, model=lambda: MODELS[model]().double())


def many(ctx: Any, runs: list[Run]) -> list[Any]:
    """Ends of all stages of some runs."""
    return [
        [
            learn(ctx, Job(task, Zero(stage, **options), Settings(**settings)))
            for stage in options.pop("stages", STAGES)
        ]
        for task, settings, options in runs
    ]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_all_stages_are_one_process(cluster_of: Any, workers: int) -> None:
    runs: list[Run] = []
    wants = []
    for number, (model, partition) in enumerate(product(MODELS, cases.PARTITIONS)):
        chosen = {1: number % 12 == 0, 2: number % 3 != 1, 4: number % 3 == 1}
        if not chosen[workers]:
            continue
        optimizer = list(cases.OPTIMIZERS)[number % 3]
        accumulate = 1 + number % 2
        task = task_of(model, optimizer, schedule=number % 2 == 0, penalty=number % 4 == 1)
        task = replace(task, batch=12 if model == "batch norm" else 9)
        settings = {
            "steps": STEPS,
            "seed": number,
            "accumulate": accumulate,
            "partition": cases.PARTITIONS[partition](workers),
        }
        runs.append((task, settings, {"megabytes": 1e-4} if number % 3 else {}))
        wants.append(trained(task, STEPS, seed=number, accumulate=accumulate))
    ended = cluster_of(workers).run(many, runs, timeout=120)[0]
    for (task, *_), stages, (model, optimizer) in zip(runs, ended, wants, strict=True):
        tolerance = 1e-9 if "batch norm" in task.name else 1e-10
        first = stages[0].state
        close(first.model, dict(model.state_dict()), tolerance)
        names = [name for name, value in model.named_parameters() if value.requires_grad]
        kept = {names[n]: fields for n, fields in optimizer.state_dict()["state"].items()}
        close_states(first.optimizer["state"], kept, tolerance)
        for other in stages[1:]:
            assert first.differs_from(other.state) == [], task.name


def close_states(got: dict[str, Any], want: dict[str, Any], tolerance: float) -> None:
    assert got.keys() == want.keys()
    for name, fields in want.items():
        for key, value in fields.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(got[name][key], value, rtol=tolerance, atol=tolerance)


def even() -> nn.Module:
    """164 parameters: pieces of 41 for four."""
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


@pytest.fixture(scope="module")
def measured(cluster_of: Any) -> dict[int, dt.training.Run]:
    task = replace(cases.task("plain", "adam", dtype=torch.float32), model=even)
    return {
        stage: dt.train(cluster_of(4), task, Zero(stage), steps=STEPS, accumulate=1 + stage % 2)
        for stage in STAGES
    }


@pytest.mark.parametrize("stage", STAGES)
def test_bytes_are_those_of_the_formula(measured: Any, stage: int) -> None:
    sent = measured[stage].trace.matrix(phase=["gradients", "parameters"]).sum(1)
    forwards = 1 + stage % 2 if stage == 3 else 1  # stage 3 gathers for each micro-batch
    extra = (forwards - 1) * 2 * 164 * 3 // 4
    assert (sent == STEPS * 4 * (words(164, 4, stage) + extra)).all()
    assert measured[stage].trace.filter(phase="used").total == STEPS * 4 * 3 * (6 + 1)


@pytest.mark.parametrize("stage", STAGES)
def test_memory_is_that_of_the_formula(measured: Any, stage: int) -> None:
    said = measured[stage].summary
    held = memory(164, 4, stage, precision="fp32")
    assert said["memory_bytes"] == [held] * 4
    parts = [said[f"{name}_bytes"] for name in ("parameter", "gradient", "optimizer")]
    shared = {0: [1, 1, 1], 1: [1, 1, 4], 2: [1, 4, 4], 3: [4, 4, 4]}[stage]
    for part, over, each in zip(parts, shared, (4, 4, 8), strict=True):
        assert part == [164 * each / over] * 4
    if stage == 3:  # one layer was whole at a time, and the pieces of all
        assert said["most_parameter_bytes"] == [4 * (41 + 72)] * 4


def test_nothing_is_padded(cluster2: dt.Cluster) -> None:
    task = cases.task("tied", "sgd", dtype=torch.float32)  # 36 + 6 + 21 numbers: an odd count
    for stage in STAGES:
        run = dt.train(cluster2, task, Zero(stage), steps=1)
        sent = run.trace.filter(phase=["gradients", "parameters"]).total
        assert sent == 2 * 4 * words(63, 2, stage)
        assert sum(run.summary["memory_bytes"]) == 2 * memory(
            63, 2, stage, precision="fp32", state_words=1
        )


@pytest.mark.parametrize("stage", STAGES)
def test_resume_to_the_bit(cluster_of: Any, stage: int, tmp_path: Any) -> None:
    whole = dt.train(cluster_of(2), toy(), Zero(stage), steps=5, evaluate_every=2)
    first = dt.train(cluster_of(2), toy(), Zero(stage), steps=3)
    assert first.state.own == ()
    first.save(tmp_path / "run")
    again = dt.train(cluster_of(2), toy(), Zero(stage), steps=5, resume=tmp_path / "run")
    same(again, whole)
    assert again.history["test_loss"].iloc[-1] == whole.history["test_loss"].iloc[-1]
    if stage == 3:
        other = dt.train(cluster_of(4), plain_toy(), Zero(3), steps=4)
        two = dt.train(cluster_of(2), plain_toy(), Zero(3), steps=6, resume=other)
        close(two.state.model, dt.train(cluster_of(4), plain_toy(), steps=6).state.model, 1e-5)


def plain_toy() -> Task:
    return toy(model=lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))


class Normed(torch.optim.SGD):
    """Steps by the direction of a whole tensor."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    value.grad /= value.grad.norm()
        super().step()


def test_what_looks_over_a_whole_tensor_is_refused(cluster2: dt.Cluster) -> None:
    square = toy(model=lambda: nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2)))
    for optimizer, told in (
        (Normed, r"Normed looks over a whole tensor, of which a rank of zero"),
        (torch.optim.Adafactor, r"Adafactor looks over a whole tensor"),
        (torch.optim.LBFGS, r"LBFGS.step needs 'closure'"),
        (lambda p: torch.optim.Muon([p[0]]), r"Muon cannot step a flat piece of a tensor"),
    ):
        task = replace(square, optimizer=optimizer, schedule=None)
        with pytest.raises(Exception, match=told):
            dt.train(cluster2, task, Zero(1), steps=1)
    kept = torch.optim.Adagrad([nn.Parameter(torch.ones(3))], lr=0.1)
    state, lr = kept.state, kept.param_groups[0]["lr"]
    check_elementwise(kept, "a test")
    assert kept.state is state
    assert (lr, len(kept.param_groups[0]["params"])) == (0.1, 1)


class Growing(nn.Module):
    """Uses a layer twice while it learns, and once in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        return self.last(self.first(h) if self.training else h)


def test_what_makes_no_sense_is_refused(cluster2: dt.Cluster) -> None:
    for wrong in (4, -1, True, 1.5):
        with pytest.raises(ValueError, match="stage="):
            Zero(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="megabytes=0"):
        Zero(megabytes=0)
    with pytest.raises(ValueError, match="compression=: zero sends gradients whole"):
        dt.train(cluster2, toy(), "zero", steps=1, compression="sign")
    with pytest.raises(Exception, match=r"first asks for it again.*wanted Zero\(stage=2\)"):
        dt.train(cluster2, toy(model=Growing), Zero(3), steps=1)
    assert dt.train(cluster2, toy(model=Growing), Zero(2), steps=1).state.step == 1
    nan = dt.faults.Corrupt(1, at_step=0, what="parameters", kind="nan")
    with pytest.raises(Exception, match=r"faults: .* stage 3 gives them back"):
        dt.train(cluster2, toy(), Zero(3), steps=1, faults=nan)


def test_formulas() -> None:
    psi, n = 1e6, 8
    mixed = [16 * psi, 4 * psi + 12 * psi / n, 2 * psi + 14 * psi / n, 16 * psi / n]
    assert [memory(psi, n, stage) for stage in STAGES] == pytest.approx(mixed)
    assert [memory(psi, 1, stage, precision="fp32") for stage in STAGES] == [16 * psi] * 4
    assert memory(psi, 2, 0, precision="fp32", state_words=0) == 8 * psi
    assert [words(psi, n, stage) / psi for stage in STAGES] == [1.75, 1.75, 1.75, 2.625]
    for wrong in ({"psi": -1}, {"n": 0}, {"stage": 5}, {"precision": "fp8"}, {"state_words": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
            memory(**{"psi": 1, "n": 1, "stage": 1, **wrong})  # type: ignore[arg-type]
