"""What a study plans to do with each setting, and the arguments that it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dtoolkit as dt
from dtoolkit.comm import Network
from dtoolkit.training.strategies import LocalSGD
from dtoolkit.training.study import ModelSize, plan_study, submit_study
from tests.training.study.toys import MODELLED, toy


def test_what_fits_the_workers_is_measured_and_the_rest_modelled(cluster2: dt.Cluster) -> None:
    plan = plan_study(
        cluster2,
        {"toy": toy(), "13B": "13B"},
        workers=[1, 2, 4],
        stages=(),
        strategies=["data-parallel", "local-sgd"],
        micro_batches=[8, 12],
        learning_rates=[0.1, 0.5],
        batch=32,
        scaling="strong",
        **MODELLED,
    )
    table = plan.table().set_index(["model", "workers", "strategy", "micro_batch"]).sort_index()
    measured = table[table["how"] == "measured"]
    assert set(measured.index) == {
        ("toy", workers, name, 8) for workers in (1, 2) for name in ("data-parallel", "local-sgd")
    }
    assert len(measured) == 2 * 4
    rest = table[table["how"] != "measured"]
    assert rest.loc[("toy", 4, "data-parallel", 8), "how"] == "modelled"
    assert rest.loc[("13B", 1, "data-parallel", 8), "how"] == "modelled"
    assert "the cluster has 2 workers" in rest.loc[("toy", 4, "data-parallel", 8), "why"]
    assert "ZeRO's stages alone" in rest.loc[("toy", 4, "local-sgd", 8), "why"]
    assert "no whole number of 1 x 12" in rest.loc[("toy", 1, "local-sgd", 12), "why"]
    big = rest.loc[("13B", 1, "data-parallel", 8)]
    assert "needs 2" in big["why"]
    assert "the A100 has 80 GB" in big["why"]
    assert not big["fits"]
    assert plan.trials == 4 * 3  # two learning rates, then one
    assert len(plan.groups) == 4
    assert "8 settings, at most 12 trainings" in repr(plan)
    assert "2310.05350" in plan.cite()


def test_a_plan_is_frozen_data() -> None:
    plan = plan_study(None, "580M", workers=[8], batch=64, **MODELLED)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.samples = 1
    assert plan == plan_study(None, "580M", workers=[8], batch=64, **MODELLED)


def test_batches_of_both_scalings_begin_alike() -> None:
    plan = plan_study(
        None, "580M", workers=[4, 8, 2], stages=[0], batch=64, micro_batches=4, **MODELLED
    )
    found = [(s.workers, s.batch, s.scaling, s.accumulate) for s in plan.modelled]
    assert found == [
        (2, 64, "both", 8),
        (4, 64, "strong", 4), (4, 128, "weak", 8),
        (8, 64, "strong", 2), (8, 256, "weak", 8),
    ]  # fmt: skip


def test_a_memory_limit_keeps_settings_from_being_measured(cluster2: dt.Cluster) -> None:
    plan = plan_study(
        cluster2,
        toy(hidden=1000),
        workers=[1],
        stages=(),
        strategies="data-parallel",
        memory_limit="100kB",
        **MODELLED,
    )
    (entry,) = plan.entries
    assert (entry.how, entry.fits) == ("modelled", False)
    assert "needs 1.2" in entry.why
    assert "memory_limit has 100 kB" in entry.why


def test_a_network_that_says_not_what_it_is_with_more_ranks() -> None:
    ring = Network.dims([("ring", 8, "1GB/s")])
    asked = {"batch": 64, "micro_batches": 4, "device": "A100", "network": ring}
    plan = plan_study(None, "580M", workers=[8, 16], **asked)
    assert {s.workers for s in plan.modelled} == {8}
    assert "does not say what it is with 16" in plan.left_out[0][1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": []}, "models is empty"),
        ({"models": "big"}, "models: 'big'"),
        ({"models": [3.5]}, "parameters=3.5"),
        ({"models": [object()]}, "models: <object"),
        ({"models": ["13B", "13B"]}, "13B names several"),
        ({"workers": []}, "workers is empty"),
        ({"workers": [0]}, "workers=0"),
        ({"workers": [1.5]}, "workers must be a whole number"),
        ({"stages": [4]}, "stages: 4"),
        ({"stages": ()}, "stages and strategies are both empty"),
        ({"strategies": ["zero-9"]}, "strategy='zero-9'"),
        ({"strategies": ["local-sgd", LocalSGD()]}, "name one twice"),
        ({"micro_batches": [0]}, "micro_batches=0"),
        ({"learning_rates": [-1.0]}, "learning_rates=-1"),
        ({"learning_rates": []}, "learning_rates is empty"),
        ({"batch": 0}, "batch=0"),
        ({"batch": None}, "batch=None: 580M"),
        ({"scaling": "up"}, "scaling='up'"),
        ({"samples": 0}, "samples=0"),
        ({"eta": 1}, "eta=1"),
        ({"device": "abacus"}, "device='abacus'"),
        ({"device": 3}, "device=3"),
        ({"network": "fast"}, "network is str"),
        ({"memory_limit": "lots"}, "memory_limit='lots'"),
        ({"precision": "half"}, "precision='half'"),
        ({"cluster": "mine"}, "cluster is str"),
        ({"device": None}, "to model it device= is needed"),
        ({"tokens": 0}, "tokens=0"),
    ],
)
def test_arguments_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    asked = {"cluster": None, "models": ["580M"], "workers": [8], "batch": 64, **MODELLED}
    asked |= changes
    with pytest.raises((TypeError, ValueError), match=words):
        plan_study(asked.pop("cluster"), asked.pop("models"), **asked)


def test_unknown_arguments_are_refused_by_python() -> None:
    with pytest.raises(TypeError, match="colour"):
        submit_study(None, "580M", workers=[8], batch=64, colour="red", **MODELLED)


def test_several_of_one_strategy_go_by_names_of_yours() -> None:
    ways = {"every 2": LocalSGD(), "every 9": "local-sgd", "plain": "data-parallel"}
    plan = plan_study(None, toy(), workers=[1], stages=[], strategies=ways, **MODELLED)
    assert [way.name for way in plan.axes.ways] == [*ways]
    assert [s.strategy for s in plan.modelled] == ["plain"]


def test_a_size_of_your_own() -> None:
    size = ModelSize("mine", 1000, flops=1e6, activation=10.0)
    plan = plan_study(None, [size, 1e6], workers=[2], batch=16, **MODELLED)
    assert [model.name for model in plan.axes.models] == ["mine", "1 M"]
    named = plan_study(None, {"other": size}, workers=[2], batch=16, **MODELLED)
    assert named.axes.models[0].name == "other"
