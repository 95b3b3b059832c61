"""What predictions add where it is known: launches, and computing that does not hide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dtoolkit.comm import Network, Phase, Traffic, predict

NETWORK = Network.flat(2, bandwidth=100.0, rate=10.0)


def traffic(nbytes: int = 400, work: float = 30.0, launches: int = 0) -> Traffic:
    sent = np.array([[0, nbytes], [0, 0]])
    phase = Phase("p", sent, np.array([work, 0.0]), np.array([5.0, 10.0]))
    return Traffic((phase,), launches=launches)


@pytest.mark.parametrize(
    ("overlap", "seconds"), [(1.0, 4.0 + 1.0), (0.0, 4.0 + 3.0 + 1.0), (0.5, 4.0 + 1.5 + 1.0)]
)
def test_what_does_not_hide_is_added(overlap: float, seconds: float) -> None:
    prediction = predict(traffic(), replace(NETWORK, overlap=overlap))
    assert prediction.seconds == pytest.approx(seconds)
    assert prediction.phases["seconds"].sum() == pytest.approx(seconds)


def test_the_shorter_of_the_two_is_what_hides() -> None:
    prediction = predict(traffic(work=100.0), replace(NETWORK, overlap=0.25))
    assert prediction.seconds == pytest.approx(10.0 + 0.75 * 4.0 + 1.0)


def test_launches_are_a_phase_of_their_own() -> None:
    network = replace(NETWORK, overhead=2.5)
    prediction = predict(traffic(launches=2), network)
    assert prediction.phases["phase"].tolist() == ["launch", "p"]
    assert prediction.phases["seconds"].tolist() == pytest.approx([5.0, 5.0])
    assert prediction.seconds == pytest.approx(10.0)
    assert "launch" in prediction.phases["bottleneck"][0]
    assert prediction.links.query("phase == 'launch'")["bytes"].sum() == 0
    assert "launch" in repr(prediction)


def test_traffic_without_launches_has_no_such_phase() -> None:
    assert predict(traffic(), replace(NETWORK, overhead=2.5)).seconds == pytest.approx(5.0)
    assert len(predict(traffic(launches=1), NETWORK).steps) == 1


def test_networks_of_all_kinds_keep_them_in_their_files() -> None:
    kinds = [
        NETWORK,
        Network.two_tier(nodes=2, ranks_per_node=1, inter=1.0, intra=2.0),
        Network.dims([("ring", 3, 5.0, 0.1)]),
        Network.measured(latency=np.zeros((2, 2)), bandwidth=np.ones((2, 2)), host_capacity=1.0),
    ]
    for network in kinds:
        assert Network.from_json(network.to_json()) == network
        known = replace(network, overhead=0.25, overlap=0.5)
        again = Network.from_json(known.to_json())
        assert (again.overhead, again.overlap) == (0.25, 0.5)
        assert again == known
        assert again != network


def test_times_in_files_may_have_units() -> None:
    text = NETWORK.to_json()[:-1] + ', "overhead": "1ms"}'
    assert Network.from_json(text).overhead == 1e-3


@pytest.mark.parametrize("field", ['"overhead": -1', '"overhead": "1"', '"overlap": 1.5'])
def test_files_with_something_else_are_refused(field: str) -> None:
    text = NETWORK.to_json()[:-1] + f", {field}}}"
    with pytest.raises(ValueError, match=r"overhead=|overlap="):
        Network.from_json(text)


def test_an_overlap_is_a_share() -> None:
    with pytest.raises(ValueError, match="overlap=2: wanted a share"):
        Network.measured(
            latency=np.zeros((1, 1)), bandwidth=np.ones((1, 1)), host_capacity=1.0, overlap=2
        )
