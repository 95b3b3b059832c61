"""The cost model: worked numbers for memory and words, and what must follow from them."""

from __future__ import annotations

import pytest

import dtoolkit as dt
from dtoolkit.comm import Network
from dtoolkit.training.sharding import memory, words
from dtoolkit.training.study import (
    DEVICES,
    Device,
    ModelSize,
    estimate,
    plan_study,
)

P = 1_000_000


@pytest.mark.parametrize(
    ("workers", "stage", "expected"),
    [
        (1, 0, 16 * P), (1, 1, 16 * P), (1, 2, 16 * P), (1, 3, 16 * P),
        (4, 0, 16 * P), (4, 1, 4 * P + 3 * P), (4, 2, 2 * P + 3.5 * P), (4, 3, 4 * P),
        (16, 1, 4.75 * P), (16, 2, 2.875 * P), (16, 3, P),
    ],
)  # fmt: skip
def test_memory_in_mixed_precision(workers: int, stage: int, expected: float) -> None:
    assert memory(P, workers, stage) == expected


def test_the_papers_own_example() -> None:
    found = [round(memory(7_500_000_000, 64, stage) / 1e9, 1) for stage in (0, 1, 2, 3)]
    assert found == [120.0, 31.4, 16.6, 1.9]


def test_memory_in_single_precision() -> None:
    found = [memory(P, 4, stage, precision="fp32") for stage in (0, 1, 2, 3)]
    assert found == [16 * P, 10 * P, 7 * P, 4 * P]


@pytest.mark.parametrize(("stage", "times"), [(0, 2), (1, 2), (2, 2), (3, 3)])
@pytest.mark.parametrize("workers", [1, 2, 8, 1000])
def test_words(workers: int, stage: int, times: int) -> None:
    assert words(P, workers, stage) == pytest.approx(times * P * (workers - 1) / workers, rel=1e-12)


def test_weights_that_are_shared_out_are_gathered_for_every_micro_batch() -> None:
    made = {"workers": 2, "micro_batch": 1, "device": Device(1e6, "1GB")}
    network = Network.flat(2, bandwidth="1MB/s")
    size = ModelSize("m", P, flops=1.0, activation=0.0)
    found = [
        [
            estimate(size, stage=stage, accumulate=many, network=network, **made).bytes
            for stage in (0, 1, 2, 3)
        ]
        for many in (1, 4)
    ]
    assert found == [[2 * P, 2 * P, 2 * P, 3 * P], [2 * P, 2 * P, 2 * P, 9 * P]]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Device(0, "1GB"), "flops=0"),
        (lambda: Device(1e12, "1 potato"), "memory="),
        (lambda: Device(1e12, "1GB", efficiency=1.5), "efficiency=1.5"),
        (lambda: ModelSize.transformer(0), "parameters=0"),
        (lambda: ModelSize.transformer(P, tokens=0), "tokens=0"),
    ],
)
def test_arguments_are_named(call, name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        call()


def test_a_step_by_hand() -> None:
    """4 workers, 2 micro-batches of 3 samples, 8 MB of half-precision weights over 1 MB/s."""
    model = ModelSize("m", 4 * P, flops=2e6, activation=1000.0)
    device = Device(1e6, "1GB", efficiency=0.5, overhead=0.25)
    network = Network.flat(4, bandwidth="1MB/s")
    made = {"workers": 4, "micro_batch": 3, "accumulate": 2, "device": device, "network": network}
    plain = estimate(model, stage=0, **made)
    assert plain.compute == 6 * 2e6 / 0.5e6 + 2 * 0.25  # 24.5 s
    assert plain.exchange == pytest.approx(2 * 3 * 2.0)  # two passes of three hops of 2 MB
    assert plain.bytes == 2 * words(4 * P, 4, 0) == 12e6
    assert plain.seconds == plain.compute  # the exchange hides behind it
    assert plain.samples_per_second == 24 / 24.5
    assert (plain.state, plain.activations) == (64e6, 3000)
    shared = estimate(model, stage=3, **made)
    assert shared.exchange == pytest.approx(5 * 3 * 2.0)
    assert shared.seconds == shared.exchange


def test_what_the_network_does_not_hide_is_added() -> None:
    measured = Network.measured(
        latency=[[0.0, 0.0], [0.0, 0.0]],
        bandwidth=[[0.0, 1e6], [1e6, 0.0]],
        host_capacity=1e9,
        overlap=0.25,
    )
    found = estimate(
        ModelSize("m", P, flops=1e6, activation=0.0),
        workers=2,
        stage=0,
        micro_batch=1,
        accumulate=1,
        device=Device(1e6, "1GB", efficiency=1.0),
        network=measured,
    )
    longer, shorter = sorted([found.compute, found.exchange], reverse=True)
    assert found.seconds == pytest.approx(longer + 0.75 * shorter)


def test_known_sizes_and_what_tasks_count() -> None:
    plan = plan_study(
        None, ["580M", "13B", 1e9, "2.5B"], workers=[8], batch=64, device="V100", network=FLAT
    )
    sizes = plan.axes.models
    assert [m.name for m in sizes] == ["580M", "13B", "1 G", "2.5B"]
    assert [m.parameters for m in sizes] == [580e6, 13e9, 1e9, 2.5e9]
    assert sizes[1].flops == 6 * 13e9 * 512
    assert sizes[1].activation == 34 * 512 * 4096 * 48
    task = dt.training.tasks.digits(hidden=50)
    found = ModelSize.of_task(task)
    assert found.parameters == 64 * 50 + 50 + 50 * 10 + 10
    # Forward, and backward without the gradient of the pixels, of two products.
    assert found.flops == 2 * (2 * 64 * 50) + 3 * (2 * 50 * 10)
    assert found.activation >= 4 * 50


def test_the_formula_of_transformers_is_near_what_one_computes() -> None:
    task = dt.training.tasks.text(width=64, layers=2, context=64, train_bytes=1000, test_bytes=500)
    counted = ModelSize.of_task(task)
    formula = ModelSize.transformer(counted.parameters, tokens=64, width=64, layers=2)
    assert counted.flops == pytest.approx(formula.flops, rel=0.15)


FLAT = Network.flat(8, bandwidth="10GB/s", latency="5us")
TIERS = Network.two_tier(
    nodes=128, ranks_per_node=8, inter="25GB/s", intra="300GB/s", inter_latency="5us"
)


@pytest.mark.parametrize("network", [FLAT, TIERS], ids=["flat", "two tiers"])
@pytest.mark.parametrize("device", ["V100", "A100"])
def test_stage_3_only_where_memory_forces_it(network: Network, device: str) -> None:
    study = dt.study(
        None,
        ["580M", "1.2B", "3.7B", "13B"],
        workers=[2**n for n in range(11)],
        micro_batches=1,
        batch=1024,
        device=device,
        network=network,
    )
    table = study.results
    forced = 0
    assert set(table["workers"]) >= {1, 1024}
    for _, best in study.best_by_workers().iterrows():
        alike = table[
            (table["model"] == best["model"])
            & (table["workers"] == best["workers"])
            & (table["batch"] == best["batch"])
        ]
        lower = alike[alike["stage"] < best["stage"]]
        forced += best["stage"] == 3
        if best["stage"] == 3:
            assert (lower["memory"] > float(DEVICES[device].memory)).all()
        assert (alike[alike["fits"]]["samples_per_second"] <= best["samples_per_second"]).all()
    # What 13 billion parameters and their activations need at stage 2 fits no V100 of 32 GB
    # before there are many of them.
    assert forced == 0 if device == "A100" else forced > 0


def test_speed_grows_with_workers_and_never_with_the_stage() -> None:
    study = dt.study(
        None, "3.7B", workers=[8, 64, 512], batch=512, micro_batches=1, device="A100", network=TIERS
    )
    table = study.results
    for _, own in table[table["scaling"] != "strong"].groupby("stage"):
        rates = own.sort_values("workers")["samples_per_second"]
        assert rates.is_monotonic_increasing
    for _, own in table.groupby(["workers", "batch"]):
        ordered = own.sort_values("stage")
        assert ordered["samples_per_second"].is_monotonic_decreasing
        assert ordered["memory"].is_monotonic_decreasing
        assert ordered["bytes_per_step"].is_monotonic_increasing
