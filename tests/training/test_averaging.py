"""The mean of models: parameters, statistics, counters, weights; here and over ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dtoolkit.training.averaging import (
    average,
    average_model,
    average_over,
    batch_statistics,
    load_average,
    whole_state,
)


class Net(nn.Module):
    """Everything that is not plain: statistics, counters, tied and frozen weights, odd dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.frozen = nn.Linear(3, 2)
        self.frozen.requires_grad_(False)
        self.register_buffer("count", torch.tensor(3, dtype=torch.int32))
        self.register_buffer("seen", torch.tensor([True, False]))
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.register_buffer("scratch", torch.zeros(5), persistent=False)
        self.narrow = nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
        self.wave = nn.Parameter(torch.ones(2, dtype=torch.complex64))


def net(rank: int) -> Net:
    """The model of a rank, changed by it."""
    torch.manual_seed(rank)
    model = Net()
    with torch.no_grad():
        model.wave += complex(rank, -rank)
        model.narrow += rank
        model.norm.running_mean += torch.randn(3)
        model.norm.running_var *= torch.rand(3)
        model.norm.num_batches_tracked += 10 - rank
        model.count -= rank
        model.seen[1] = rank == 1
        model.scratch += rank
        for value in model.frozen.parameters():
            value.fill_(0.5)
    return model


def test_worked_numbers():
    a = {"w": torch.tensor([1.0, 0.0]), "bn.running_mean": torch.tensor([0.0])}
    b = {"w": torch.tensor([5.0, 4.0]), "bn.running_mean": torch.tensor([4.0])}
    a |= {"bn.running_var": torch.tensor([1.0]), "n": torch.tensor(2), "on": torch.tensor(False)}
    b |= {"bn.running_var": torch.tensor([2.0]), "n": torch.tensor(1), "on": torch.tensor(True)}
    mean = average([a, b], [3, 1])
    assert mean["w"].tolist() == [2, 1]
    assert mean["bn.running_mean"].tolist() == [1]
    assert mean["bn.running_var"].tolist() == [(3 * 1 + 2) / 4 + 3 * 1 * 16 / 16]
    assert int(mean["n"]) == 2
    assert bool(mean["on"])
    assert list(mean) == list(a)


def test_statistics_are_those_of_all_samples_together():
    rng = np.random.default_rng(0)
    sets = [rng.normal(3 * k, 1 + k, size=(5 * (k + 1), 4)) for k in range(3)]
    states = [
        {"running_mean": torch.tensor(x.mean(0)), "running_var": torch.tensor(x.var(0))}
        for x in sets
    ]
    mean = average(states, [len(x) for x in sets])
    whole = np.concatenate(sets)
    np.testing.assert_allclose(mean["running_mean"], whole.mean(0), rtol=1e-12)
    np.testing.assert_allclose(mean["running_var"], whole.var(0), rtol=1e-12)


def test_without_samples_weighs_nothing():
    bad = {"w": torch.tensor([9.0]), "n": torch.tensor(99), "on": torch.tensor(True)}
    good = {"w": torch.tensor([1.0]), "n": torch.tensor(7), "on": torch.tensor(False)}
    mean = average([bad, good], [0, 5])
    assert (float(mean["w"]), int(mean["n"]), bool(mean["on"])) == (1, 7, False)
    even = average([bad, good], [0, 0])
    assert (float(even["w"]), int(even["n"])) == (5, 99)


def test_negative_counters_and_small_integers():
    states = [{"n": torch.tensor([-5], dtype=torch.int8)}, {"n": torch.tensor([-3]).to(torch.int8)}]
    assert average(states, [1, 1])["n"].tolist() == [-3]
    assert average(states, [1, 0])["n"].tolist() == [-5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_equal_models_give_themselves(dtype, samples):
    torch.manual_seed(1)
    state = {
        "w": torch.randn(20).to(dtype),
        "running_mean": torch.randn(9).to(dtype),
        "running_var": torch.rand(9).to(dtype) * 1e-6,
        "mask": torch.tensor([0, float("-inf")]).to(dtype),
        "z": torch.randn(4, dtype=torch.complex64),
    }
    mean = average([state] * len(samples), samples)
    assert all(torch.equal(mean[name], value) for name, value in state.items())


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=5),
    st.lists(st.integers(0, 50), min_size=5, max_size=5),
)
def test_variances_are_never_negative(means, samples):
    states = [
        {"running_mean": torch.tensor([m]), "running_var": torch.tensor([1e-30 if k else 0.0])}
        for k, m in enumerate(means)
    ]
    mean = average(states, samples[: len(means)])
    assert float(mean["running_var"]) >= 0
    assert min(means) - 1 <= float(mean["running_mean"]) <= max(means) + 1


def test_a_lone_variance_is_averaged():
    states = [{"x.running_var": torch.tensor([1.0])}, {"x.running_var": torch.tensor([3.0])}]
    assert average(states, [1, 1])["x.running_var"].tolist() == [2]


def test_what_does_not_match_is_refused():
    one = {"w": torch.zeros(2)}
    with pytest.raises(ValueError, match="do not both have v"):
        average([one, {"w": torch.zeros(2), "v": torch.zeros(1)}], [1, 1])
    with pytest.raises(ValueError, match=r"states\[1\]\['w'\] is \(3,\)"):
        average([one, {"w": torch.zeros(3)}], [1, 1])
    with pytest.raises(ValueError, match="2 models for 1 numbers"):
        average([one, one], [1])
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="samples of model 1"):
            average([one, one], [1, wrong])


SAMPLES = {1: [[4]], 2: [[3, 1], [0, 2]], 4: [[1, 2, 3, 4], [0, 5, 0, 1], [0, 0, 0, 0]]}


def over_ranks(ctx, samples):
    model = net(ctx.rank)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = average_over(ctx.comm, dict(model.state_dict()), samples[ctx.rank])
    mean = average_model(ctx.comm, model, samples[ctx.rank])
    whole = whole_state(model, mean)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    known = average_model(ctx.comm, model, samples)
    assert all(torch.equal(known[name], value) for name, value in mean.items())
    load_average(model, mean)
    return plain, mean, whole, {k: v.clone() for k, v in model.state_dict().items()}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_over_ranks_the_same_bits_as_in_one_place(cluster_of, workers):
    for samples in SAMPLES[workers]:
        states = [dict(net(rank).state_dict()) for rank in range(workers)]
        want = average(states, samples)
        for plain, mean, whole, loaded in cluster_of(workers).run(over_ranks, samples, timeout=60):
            assert all(torch.equal(plain[name], value) for name, value in want.items())
            assert all(torch.equal(mean[name], want[name]) for name in mean)
            assert "tied.weight" not in mean
            assert not any(name.startswith("frozen") or name == "scratch" for name in mean)
            assert whole.keys() == want.keys() == loaded.keys()
            assert all(torch.equal(whole[name], value) for name, value in loaded.items())
            assert torch.equal(whole["tied.weight"], whole["first.weight"])
            assert torch.equal(whole["tied.weight"], want["first.weight"])


def test_one_message_a_dtype(cluster4):
    before = len(cluster4.trace)
    cluster4.run(over_dict, timeout=60)
    events = [event for event in list(cluster4.trace)[before:] if event.rank == 1]
    kinds = [event.operation for event in events]
    assert kinds == ["all_gather", "all_to_all", "all_gather_v", "all_reduce"]
    # 400 and 2 x 40 elements of 4 bytes, 3/4 of them there and 3/4 of them back
    assert sum(events[1].sent) == sum(events[2].sent) == 480 * 3
    assert sum(events[3].sent) == 2 * 3 * 2 * 8


def over_dict(ctx):
    state = {
        "w": torch.zeros(300),
        "bn.running_mean": torch.zeros(40),
        "v": torch.zeros(100),
        "bn.running_var": torch.zeros(40),
        "n": torch.zeros(8, dtype=torch.int64),
    }
    average_over(ctx.comm, state, 1)


def test_variances_of_instances_are_averaged_as_they_are():
    model = nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True), nn.BatchNorm1d(2))
    names = batch_statistics(model)
    assert names == {"1.running_mean"}
    assert batch_statistics(nn.BatchNorm1d(2)) == {"running_mean"}
    states = [{name: value.clone() for name, value in model.state_dict().items()} for _ in "ab"]
    for layer in "01":
        states[1][f"{layer}.running_mean"] += 4
        states[1][f"{layer}.running_var"] += 2
    mean = average(states, [1, 1], statistics=names)
    assert mean["0.running_mean"].tolist() == mean["1.running_mean"].tolist() == [2, 2]
    assert mean["0.running_var"].tolist() == [2, 2]
    assert mean["1.running_var"].tolist() == [6, 6]
