"""Networks in files: what comes back, and what is refused in words."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtoolkit.comm import Network
from tests.comm.networks import KINDS, all_kinds, two_tier


@pytest.mark.parametrize("kind", KINDS)
def test_json_pickle_and_files_bring_the_same_network(kind, tmp_path):
    network = all_kinds()[kind]
    for again in (Network.from_json(network.to_json()), pickle.loads(pickle.dumps(network))):
        assert again == network
        assert hash(again) == hash(network)
    network.save(tmp_path / "network.json")
    assert Network.load(tmp_path / "network.json") == network
    json.loads(network.to_json(), parse_constant=pytest.fail)  # no Infinity, no NaN
    rated = Network.from_json(
        network.to_json().replace('"kind"', '"rate": {"float32": 1e9}, "kind"')
    )
    assert rated != network
    assert Network.from_json(rated.to_json()) == rated
    assert repr(network) == f"<Network: {network.name}>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "does not say"),
        ('{"format": "dtoolkit trace"}', "does not say"),
        ('{"format": "dtoolkit network", "version": 99}', "version 99"),
        ('{"format": "dtoolkit network", "version": 1, "kind": "x"}', "kind='x'"),
        ('{"format": "dtoolkit network", "version": true, "kind": "flat"}', "version True"),
        ('{"format": "dtoolkit network", "version": 1, "kind": ["flat"], "ranks": 4}', r"\['flat'"),
        ('{"format": "dtoolkit network", "version": 1, "kind": "flat"}', "not a whole flat"),
        (
            '{"format": "dtoolkit network", "version": 1, "kind": "dims", "dimensions": null}',
            "dimensions=None",
        ),
        ("[" * 100_000, "not JSON"),
        (
            '{"format": "dtoolkit network", "version": 1, "kind": "flat", "ranks": 2, '
            '"bandwidth": 0}',
            "bandwidth=0",
        ),
    ],
)
def test_broken_json_is_refused_in_words(text, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        Network.from_json(text)
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"broken\.json"):
        Network.load(path)
    with pytest.raises(FileNotFoundError):
        Network.load(tmp_path / "none.json")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 10**30, 10**400, 1e308, 5e-324])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["float32", "ring", "5us", "1GB/s", "1e999GB/s", "flat", "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@st.composite
def damaged(draw):
    """A network's JSON in which some values have gone, or have come to be others."""
    network = draw(st.sampled_from([*all_kinds().values(), two_tier(rate={"float32": 1e9})]))
    document = {"overhead": 1e-3, "overlap": 0.5, "rate": 1e9, **json.loads(network.to_json())}
    for _ in range(draw(st.integers(1, 3))):
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = draw(st.sampled_from(keys))
            deeper = isinstance(place[key], dict | list) and place[key]
            if not deeper or draw(st.booleans()):
                break
            place = place[key]
        if draw(st.integers(0, 4)) == 0 and len(place) > 1:
            del place[key]
        else:
            place[key] = draw(JSON)
    return json.dumps(document)


@settings(max_examples=300)
@given(damaged())
def test_json_of_wrong_kinds_is_refused_in_words_or_is_a_network(text):
    try:
        network = Network.from_json(text)
    except ValueError:
        return
    assert Network.from_json(network.to_json()) == network
    assert repr(network)
    assert len(network.shape) >= 1


@given(JSON)
def test_any_json_is_no_network(value):
    with pytest.raises(ValueError, match="not a network"):
        Network.from_json(json.dumps(value))
    with pytest.raises(ValueError, match=r"kind=|missing|wanted|unexpected"):
        Network.from_json(
            json.dumps({"format": "dtoolkit network", "version": 1, "kind": value, "ranks": 4})
        )
