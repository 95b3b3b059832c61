"""Training steps: shapes by formula, clocks by hand, and what Themis gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dtoolkit as dt
from dtoolkit.comm import Network, iteration, iteration_gains, topology
from dtoolkit.comm.collectives import carve
from dtoolkit.comm.workloads import (
    PAPER_GAINS,
    WORKLOADS,
    Layer,
    Workload,
    dlrm,
    gnmt,
    resnet152,
    transformer,
)

PAIR = Network.dims([("switch", 2, 1.0)])  # a byte a second: an all-reduce of n bytes takes n


def test_resnet152_has_the_parameters_of_the_published_model() -> None:
    model = resnet152(batch=1, rate=1.0)
    assert model.gradient == 2 * 60_192_808
    assert len(model.layers) == 156  # 151 convolutions in depth, 4 beside them, and one dense layer
    forward = sum(layer.forward for layer in model.layers)
    assert forward == pytest.approx(2 * 11.51e9, rel=0.01)  # 11.5 G multiplications an image
    assert model.compute == pytest.approx(3 * forward)


def test_transformer_has_a_trillion_parameters() -> None:
    model = transformer()
    assert model.gradient * 128 / 2 == pytest.approx(1.008e12, rel=0.001)
    # The usual count of operations, 6 a parameter and token, on 128 ranks.
    assert model.compute == pytest.approx(6 * 1.008e12 * 16 * 2048 / 128 / 234e12, rel=0.03)
    assert {layer.activation for layer in model.layers[1:]} == {16 * 2048 * 25_600 * 2}


def test_gnmt_and_dlrm() -> None:
    assert gnmt().gradient == pytest.approx(2 * 278.8e6, rel=0.001)
    assert dlrm().layers[0].exchange == 512 * 128 * 128 * 2
    assert [layer.name for layer in dlrm().layers if layer.joins] == ["top.0"]
    assert set(WORKLOADS) == set(PAPER_GAINS)


def test_a_dimension_of_one_rank_neither_takes_time_nor_counts_as_bandwidth() -> None:
    made = Workload("one", (Layer("a", 1, 2, gradient=3),))
    wide = Network.dims([("ring", 1, 1000.0, 1.0), ("switch", 2, 1.0)])
    for policy in ("baseline", "themis", "ideal"):
        assert iteration(made, wide, policy, chunks=1, bucket=0).time == 6.0
    step = iteration(made, wide, chunks=1, bucket=0)
    assert step.utilisation == 0.5  # 3 s of 6
    alone = iteration(made, Network.dims([("ring", 1, 1.0)]), chunks=1, bucket=0)
    assert (alone.time, alone.utilisation) == (3.0, 0.0)
    assert "on 1 rank, baseline" in repr(alone)


def test_more_chunks_than_can_be_simulated() -> None:
    layers = (Layer("a", 1, 2, gradient=3, exchange=4), Layer("b", 1, 2, activation=3))
    made = Workload("one", layers)
    step = iteration(made, PAIR, chunks=5)
    # An all-reduce of gradients, none of activations on one rank, and two exchanges.
    assert len(step.bars) == 5 * (2 + 2 * 1)
    with pytest.raises(ValueError, match=r"chunks=125001 makes 500,004 stages"):
        iteration(made, PAIR, chunks=125_001)
    assert iteration(made, PAIR, "ideal", chunks=10**6).chunks == 10**6


def test_gradients_hide_behind_the_backward_pass() -> None:
    """Two layers of 1 s forward and 2 s backward, 3 bytes each: the second's hides 2 s of 3."""
    layers = (Layer("a", 1, 2, gradient=3), Layer("b", 1, 2, gradient=3))
    step = iteration(Workload("two", layers), PAIR, chunks=1, bucket=0)
    # Forward until 2, b backward until 4, its gradients until 7; a backward until 6, until 10.
    assert step.time == 10.0
    assert step.exposed == 4.0
    assert step.compute == 6.0
    assert step.waits.to_dict("records") == [
        {"layer": "a", "reason": "gradient", "start": 6.0, "end": 10.0}
    ]
    together = iteration(Workload("two", layers), PAIR, chunks=1, bucket=6)
    assert together.time == 12.0  # all 6 bytes once the backward pass is over
    assert iteration(Workload("two", layers), PAIR, chunks=1, bucket="1GB").time == 12.0


def test_activations_stop_the_computation() -> None:
    layers = (Layer("a", 1, 2, activation=3), Layer("b", 1, 2, activation=3))
    step = iteration(Workload("two", layers, model_ranks=2), PAIR, chunks=1)
    assert step.time == 6 + 4 * 3
    assert (step.waits["reason"] == "activation").all()


def test_exchanges_hide_until_they_are_joined() -> None:
    """An all-to-all of 4 bytes takes 2 s: one is computed meanwhile, one is waited for."""
    layers = (
        Layer("table", 0, 0, exchange=4),
        Layer("bottom", 1, 1),
        Layer("top", 1, 1, joins=True),
    )
    step = iteration(Workload("three", layers), PAIR, chunks=1)
    assert step.waits["reason"].tolist() == ["exchange", "exchange"]
    assert step.time == 2 + 1 + 1 + 2  # top after 2; then its backward, and 2 more for the table
    assert step.bars["operation"].tolist() == ["all_to_all", "all_to_all"]
    alone = iteration(Workload("alone", layers[:2]), PAIR, chunks=1)
    assert (
        alone.time == 2 + 1 + 2
    )  # nothing joins: the pass ends with it, and waits on its way back


def test_each_exchange_is_joined_once() -> None:
    layers = (
        Layer("a", 0, 0, exchange=4),
        Layer("b", 0, 0, exchange=8, joins=True),
        Layer("c", 0, 0, joins=True),
        Layer("d", 0, 0, exchange=2),
    )
    step = iteration(Workload("joins", layers), PAIR, chunks=1)
    assert step.bars["bytes"].tolist() == [2, 4, 1, 1, 4, 2]


def test_copies_are_reduced_over_the_ranks_beside_them() -> None:
    dimensions = topology("2D-SW_SW").dimensions
    assert carve(dimensions, 128) == (((0, 16), (1, 8)), ((1, 8),))
    assert carve(dimensions, 1) == ((), ((0, 16), (1, 64)))
    assert carve(dimensions, 1024) == (((0, 16), (1, 64)), ())
    assert carve(topology("3D-homo").dimensions, 128) == (((0, 16), (1, 8)), ((2, 8),))
    for ranks in (3, 24, 2048):
        with pytest.raises(ValueError, match=f"model_ranks={ranks} fill no whole part"):
            carve(dimensions, ranks)


def test_what_is_reduced_has_the_bytes_of_the_formula() -> None:
    step = iteration("GNMT", topology("3D-hetero"), "themis", "scf", bucket=0)
    want = 2 * gnmt().gradient * (1 - 1 / 1024)
    assert step.bars["bytes"].sum() == pytest.approx(want)
    assert step.by_dimension["bytes"].sum() == pytest.approx(want)
    assert 0 < step.utilisation < 1


@pytest.mark.parametrize("workload", ["ResNet-152", "GNMT", "DLRM"])
def test_between_the_baseline_and_the_bound(workload: str) -> None:
    gains = iteration_gains({"homo": topology("3D-homo")}, [workload])
    (row,) = gains.to_dict("records")
    assert row["ideal"] <= row["policy"] < row["baseline"]
    assert row["gain"] == row["baseline"] / row["policy"] <= row["bound"]
    assert row["paper"] == PAPER_GAINS[workload]
    compute = WORKLOADS[workload]().compute
    assert row["ideal"] > compute


def test_transformer_gains_on_every_network_that_holds_it() -> None:
    small = replace(transformer(layers=2, hidden=4096), name="small")
    gains = iteration_gains(workloads=[small], chunks=16)
    assert len(gains) == 6
    assert (gains["gain"] > 1).all()
    assert gains["paper"].isna().all()
    assert (gains["ideal"] <= gains["policy"]).all()


def test_without_communication_nothing_is_waited_for() -> None:
    alone = Network.flat(1, bandwidth=1e9)
    for policy in ("baseline", "themis", "ideal"):
        step = iteration("ResNet-152", alone, policy)
        assert step.time == pytest.approx(resnet152().compute, rel=1e-6)
        assert step.exposed == 0
        assert len(step.bars) == 0


def test_latency_counts_unless_it_is_told_not_to() -> None:
    slow = topology("3D-homo", latency="50us")
    late = iteration("DLRM", slow)
    assert late.time > iteration("DLRM", slow, latency=False).time
    assert (
        iteration("DLRM", slow, latency=False).time == iteration("DLRM", topology("3D-homo")).time
    )


def test_errors_in_words() -> None:
    with pytest.raises(ValueError, match="workload must be one of ResNet-152, GNMT"):
        iteration("BERT", PAIR)
    with pytest.raises(ValueError, match="bucket"):
        iteration("GNMT", PAIR, bucket="1Gb")
    with pytest.raises(ValueError, match="order must be"):
        iteration("GNMT", PAIR, order="lifo")
    with pytest.raises(ValueError, match="policy must be"):
        iteration("GNMT", PAIR, "best")
    with pytest.raises(ValueError, match="chunks must be"):
        iteration("GNMT", PAIR, chunks=0)
    with pytest.raises(ValueError, match="latency must be True or False"):
        iteration("GNMT", PAIR, latency=1e-6)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model_ranks=128 fill no whole part of a grid of 2 ranks"):
        iteration("Transformer-1T", PAIR)
    with pytest.raises(ValueError, match="has no layers"):
        Workload("none", ())
    with pytest.raises(ValueError, match="model_ranks must be"):
        Workload("none", (Layer("a", 1, 1),), model_ranks=0)
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="layer 'a': gradient must be at least 0"):
            Layer("a", 1, 1, gradient=value)


def test_words() -> None:
    step = iteration("DLRM", topology("3D-hetero"), "themis", "scf")
    assert repr(step).startswith(
        "<Iteration (modelled): step of DLRM, reconstructed, on 16 x 8 x 8 ranks, themis, SCF: "
    )
    assert "2110.04478" in step.cite()
    assert np.isnan(iteration("DLRM", topology("3D-hetero"), "ideal").utilisation)
    assert isinstance(step, dt.comm.Iteration)
