"""Sparse training over workers: equal masks, few bytes, exact resume; channels that go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.sparsity import Constant, Cubic, Sparsifier
from dtoolkit.training import Task
from dtoolkit.training.sparse import Recipe, recipe_of
from tests.training.cases import loss

STEPS, BATCH, SAMPLES = 6, 16, 40
RECIPES: dict[str, dict[str, Any]] = {
    "static": {"method": "static", "density": 0.2, "distribution": "erk"},
    "snip": {"method": "snip", "density": 0.2},
    "magnitude": {"method": "magnitude", "density": 0.2, "schedule": Cubic(every=2, stop=5)},
    "set": {"method": "set", "density": 0.2, "schedule": Constant(every=2)},
    "rigl": {"method": "rigl", "density": 0.2, "schedule": Constant(every=2)},
}
RANKED = {"rigl": {1, 3, 5}, "snip": {0}}  # steps that rank weights by gradients
WIDTHS = (20, 40, 30, 4)


def layers() -> nn.Module:
    a, b, c, d = WIDTHS
    made = nn.Sequential(nn.Linear(a, b), nn.Tanh(), nn.Linear(b, c), nn.Tanh(), nn.Linear(c, d))
    return made.double()


def task(model: Callable[[], nn.Module] = layers) -> Task:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, WIDTHS[0], generator=generator, dtype=torch.float64)
    targets = torch.randint(0, WIDTHS[-1], (SAMPLES,), generator=generator)
    made = partial(torch.optim.Adam, lr=0.01)
    return Task.of(model, (inputs, targets), loss, optimizer=made, batch=BATCH)


def by_hand(recipe: dict[str, Any]) -> Sparsifier:
    """One process, in plain torch."""
    run, learned = dt.training.Sampler(SAMPLES, BATCH, seed=0, ranks=1), task()
    with dt.training.replica.seeded(0, "model"):
        model = layers()
    optimizer = learned.optimizer(list(model.parameters()))
    sparsifier = Sparsifier(model, optimizer, **recipe)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model, *learned.train.take(run.batch(step))).mean().backward()
        optimizer.step()
        sparsifier.step()
    return sparsifier


@pytest.mark.parametrize("name", RECIPES)
def test_masks_and_weights_are_those_of_one_process(name: str, cluster4: dt.Cluster) -> None:
    run = dt.train(cluster4, task(), steps=STEPS, sparsity=RECIPES[name])
    wanted = by_hand(RECIPES[name])
    assert run.state.masks.keys() == wanted.masks.keys()
    for key, mask in wanted.masks.items():
        assert torch.equal(run.state.masks[key], mask)
    for key, value in wanted.model.named_parameters():
        torch.testing.assert_close(run.state.model[key], value.detach(), rtol=0, atol=1e-9)
        if key in run.state.masks:
            assert not run.state.model[key][~run.state.masks[key]].any()
    assert not any("mask" in key for key in run.state.model)
    layers().load_state_dict(run.state.model)  # an ordinary model takes it


ALL_SEND = 2 * (4 - 1) * 8  # bytes that 4 ranks send for one number that is summed
SMALL = 3 * 32  # of a rank: counts and flags, to the three others


def summed(run: dt.training.Run) -> list[tuple[str, int]]:
    """Phase and bytes of all ranks of each sum, in order; one bucket is one sum a step."""
    events = run.trace.frame()
    events = events[events["operation"] == "all_reduce"]
    by_rank = [one for _, one in events.groupby("rank")]
    sent = sum(one["bytes_sent"].to_numpy() for one in by_rank)
    return list(zip(by_rank[0]["phase"], sent.tolist(), strict=True))


@pytest.mark.parametrize("name", RECIPES)
def test_bytes_are_those_of_live_values(name: str, cluster4: dt.Cluster) -> None:
    run = dt.train(cluster4, task(), steps=STEPS, sparsity=RECIPES[name])
    dense = sum(value.numel() for value in run.state.model.values())
    ranked = RANKED.get(name, set())
    live = run.history["live_parameters"].tolist()
    numbers = [dense if step in ranked else count for step, count in enumerate(live)]
    phases = ["scores" if step in ranked else "gradients" for step in range(STEPS)]
    assert summed(run) == [
        (phase, ALL_SEND * number) for phase, number in zip(phases, numbers, strict=True)
    ]
    # Beside them there is one small message a step, and nothing for masks.
    events = run.trace.frame()
    small = events[(events["rank"] == 0) & (events["operation"] == "all_gather")]
    small = small[small["phase"].isin(["gradients", "scores"])]
    assert small["bytes_sent"].tolist() == [SMALL] * STEPS
    assert set(events["phase"]) <= {
        *("setup", "gradients", "scores", "comparison", "agreement", "state")
    }
    assert events["bytes_sent"].where(events["phase"] == "setup").sum() == 4 * 2 * 3 * 16


def test_history_says_what_is_alive(cluster2: dt.Cluster) -> None:
    history = dt.train(cluster2, task(), steps=STEPS, sparsity=RECIPES["magnitude"]).history
    live, density = history["live_parameters"], history["density"]
    assert live.dtype == "int64"
    assert live.is_monotonic_decreasing
    assert live.iloc[-1] < live.iloc[0] / 2
    assert density.iloc[0] == 1
    assert density.iloc[-1] == pytest.approx(0.2, abs=0.01)
    assert history["bytes"].corr(live) > 0.999


@pytest.mark.parametrize("name", ["snip", "magnitude", "rigl"])
@pytest.mark.parametrize("at", [1, 4])
def test_resume_is_bit_equal(name: str, at: int, cluster2: dt.Cluster, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    whole = dt.train(cluster2, task(), steps=STEPS, sparsity=recipe)
    dt.train(cluster2, task(), steps=at, sparsity=recipe).save(tmp_path / "run")
    again = dt.train(cluster2, task(), steps=STEPS, sparsity=recipe, resume=tmp_path / "run")
    assert again.state.differs_from(whole.state) == []
    assert again.history["bytes"].tolist() == whole.history["bytes"].tolist()[at:]


def test_masks_are_part_of_the_digest(cluster2: dt.Cluster) -> None:
    state = dt.train(cluster2, task(), steps=1, sparsity=RECIPES["static"]).state
    assert "masks.0.weight" in state.fields()
    assert "sparsity.steps" in state.fields()


@pytest.mark.parametrize("strategy", ["ordered", "drop-compute"])
def test_other_strategies_that_update_alike(strategy: str, cluster2: dt.Cluster) -> None:
    recipe, accumulate = RECIPES["rigl"], 2 if strategy == "drop-compute" else 1
    if strategy == "drop-compute":
        strategy = dt.training.strategies.DropCompute(threshold=60.0)
    more = {"steps": STEPS, "sparsity": recipe, "accumulate": accumulate}
    run = dt.train(cluster2, task(), strategy, **more)
    for key, mask in by_hand(recipe).masks.items():
        assert torch.equal(run.state.masks[key], mask)
    half = dt.train(cluster2, task(), strategy, **{**more, "steps": 3})
    again = dt.train(cluster2, task(), strategy, **more, resume=half)
    assert again.state.differs_from(run.state) == []


PROGRAM = """
import torch, dtoolkit as dt
from tests.training.test_sparse_training import RECIPES, STEPS, task
if __name__ == "__main__":
    with dt.Cluster(2) as cluster:
        print(dt.train(cluster, task(), steps=STEPS, sparsity=RECIPES["set"]).state.digest())
"""


def test_hash_seeds_do_not_matter(tmp_path: Path, cluster2: dt.Cluster) -> None:
    here = dt.train(cluster2, task(), steps=STEPS, sparsity=RECIPES["set"]).state.digest()
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.getcwd()}
    said = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert said.stdout.split() == [here]


# ------------------------------------------------------------------------------- PruneTrain


def narrowing() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (5, 2, 2)),
        nn.Conv2d(5, 12, 2, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 16, 2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, WIDTHS[-1]),
    ).double()


PRUNETRAIN = {"method": "prunetrain", "every": 1, "ratio": 0.8, "threshold": 0.1}
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
EPOCHS = {"steps": 9, "batch": 14, "optimizer": MOMENTUM}  # of three steps


def shapes(run: dt.training.Run) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in run.state.model.items()}


@pytest.mark.parametrize("batch_norm", ["sync", "local"])
def test_prunetrain_sends_less_with_every_cut(batch_norm: str, cluster4: dt.Cluster) -> None:
    more = {**EPOCHS, "sparsity": PRUNETRAIN, "batch_norm": batch_norm}
    run = dt.train(cluster4, task(narrowing), **more)
    live = run.history["live_parameters"].tolist()
    assert live[0] > live[3] > live[6]
    assert summed(run) == [("gradients", ALL_SEND * count) for count in live]
    before = {name: tuple(value.shape) for name, value in narrowing().state_dict().items()}
    assert shapes(run).keys() == before.keys()
    assert shapes(run) != before
    assert run.history["density"].iloc[-1] == live[-1] / live[0]


def test_prunetrain_cuts_alike_on_any_number_of_workers(
    cluster_of: Callable[[int], dt.Cluster],
) -> None:
    one, *others = [
        dt.train(cluster_of(workers), task(narrowing), **EPOCHS, sparsity=PRUNETRAIN)
        for workers in (1, 2, 4)
    ]
    for run in others:
        assert shapes(run) == shapes(one)
        for name, value in one.state.model.items():
            torch.testing.assert_close(run.state.model[name], value, rtol=0, atol=1e-9)


@pytest.mark.parametrize("at", [2, 3, 7])
def test_resume_after_a_cut(at: int, cluster2: dt.Cluster, tmp_path: Path) -> None:
    more = {**EPOCHS, "sparsity": PRUNETRAIN}
    whole = dt.train(cluster2, task(narrowing), **more)
    dt.train(cluster2, task(narrowing), **{**more, "steps": at}).save(tmp_path / "run")
    again = dt.train(cluster2, task(narrowing), **more, resume=tmp_path / "run")
    assert again.state.differs_from(whole.state) == []
    assert again.history["bytes"].tolist()[1:] == whole.history["bytes"].tolist()[at + 1 :]


@pytest.mark.parametrize("name", ["cubic", "cosine"])
def test_a_schedule_by_name_ends_within_the_run(
    name: str, cluster2: dt.Cluster, tmp_path: Path
) -> None:
    recipe = {"method": "magnitude", "density": 0.2, "schedule": name}
    run = dt.train(cluster2, task(), steps=4, sparsity=recipe)
    density = run.history["density"]
    assert density.iloc[0] == 1
    assert density.iloc[-1] == pytest.approx(0.2, abs=0.01)
    assert "stop=3" in run.settings["sparsity"]
    part = dt.train(cluster2, task(), steps=2, sparsity=recipe)
    assert "stop=1" in part.settings["sparsity"]
    part.save(tmp_path / "run")
    again = dt.train(cluster2, task(), steps=4, sparsity=recipe, resume=tmp_path / "run")
    assert "stop=1" in again.settings["sparsity"]  # as the run began


def test_a_schedule_of_an_earlier_state_stops_where_it_did() -> None:
    recipe = recipe_of({"schedule": "cubic"})
    assert recipe is not None
    assert recipe.over(8, {"settings": {"schedule": "cubic"}}) == recipe
    given = recipe_of({"schedule": Cubic(stop=5)})
    assert given is not None
    assert given.over(4) == given
    with pytest.raises(ValueError, match="schedule='cubc': wanted one of"):
        Recipe(False, {"schedule": "cubc"}).over(8)


# --------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sparsity": "rigl"}, "sparsity is str: every worker makes one of its own model"),
        ({"sparsity": {"densty": 0.1}}, r"sparsity\['densty'\]: wanted keywords of .*density"),
        ({"sparsity": {"method": "set", "reduce": max}}, r"sparsity\['reduce'\]"),
        ({"sparsity": {"density": 2}}, "density=2: wanted more than 0"),
        ({"sparsity": {"method": "prunetrain", "batch": 8}}, "the batch of a run over workers"),
        ({"strategy": "local-sgd"}, "wanted strategy='data-parallel' or 'ordered'"),
        ({"strategy": "ordered", "sparsity": PRUNETRAIN}, "cuts channels, which all workers"),
        ({"compression": "top-k"}, "wanted one of the two"),
        ({"recovery": "shrink"}, "wanted recovery='abort' or 'restart'"),
    ],
)
def test_refused_before_anything_is_sent(
    changes: dict[str, Any], match: str, nothing_runs: dt.Cluster
) -> None:
    asked = {"strategy": "data-parallel", "sparsity": RECIPES["static"], **changes}
    with pytest.raises((TypeError, ValueError), match=match):
        dt.train(nothing_runs, task(), steps=1, **asked)


def test_a_run_goes_on_with_its_sparsity(cluster2: dt.Cluster) -> None:
    run = dt.train(cluster2, task(), steps=1, sparsity=RECIPES["static"])
    for other in (None, {**RECIPES["static"], "density": 0.3}):
        with pytest.raises(ValueError, match="resume: sparsity of the saved run is Sparsifier"):
            dt.train(cluster2, task(), steps=2, sparsity=other, resume=run)


def test_a_trial_leaves_a_model_as_it_was(cluster2: dt.Cluster) -> None:
    model = layers()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    dt.train(cluster2, task(lambda: model), steps=1, sparsity=RECIPES["static"])
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
