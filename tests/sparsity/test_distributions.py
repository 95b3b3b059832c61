from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtoolkit.sparsity import Explicit
from dtoolkit.sparsity.distributions import as_distribution

RESNET = {
    "conv1": (16, 3, 3, 3),
    "conv2": (32, 16, 3, 3),
    "conv3": (64, 32, 3, 3),
    "fc": (10, 64),
}


def whole(shapes, densities):
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    return sum(densities[name] * sizes[name] for name in shapes) / sum(sizes.values())


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["uniform", "er", "erk"]),
    density=st.floats(0.001, 1.0),
    limit=st.sampled_from([1.0, 0.5]),
    shapes=st.lists(
        st.tuples(*[st.integers(1, 40)] * 2, st.integers(1, 3), st.integers(1, 3)),
        min_size=1,
        max_size=6,
    ),
)
def test_the_whole_is_as_asked_and_no_layer_above_the_limit(name, density, limit, shapes):
    named = {f"l{i}": shape for i, shape in enumerate(shapes)}
    if limit < density < 1:
        with pytest.raises(ValueError, match=r"allows at most 0\.5"):
            as_distribution(name).densities(named, density, limit=limit)
        return
    got = as_distribution(name).densities(named, density, limit=limit)
    assert whole(named, got) == pytest.approx(density, rel=1e-9)
    assert all(0 < value <= (limit if density < 1 else 1) for value in got.values())


def test_erk_by_hand():
    # raw: 25/432, 54/4608, 102/18432, 74/640. With density 0.3 the factor exceeds 1/raw for conv1
    # and fc, which become dense; the rest shares 0.3 * 24112 - 1072 = 6161.6 over 54 + 102.
    got = as_distribution("erk").densities(RESNET, 0.3)
    factor = 6161.6 / 156
    assert got["conv1"] == got["fc"] == 1.0
    assert got["conv2"] == pytest.approx(factor * 54 / 4608)
    assert got["conv3"] == pytest.approx(factor * 102 / 18432)


def test_er_counts_no_kernels():
    got = as_distribution("er").densities({"a": (8, 4, 3, 3), "b": (16, 8)}, 0.1)
    assert got["a"] / got["b"] == pytest.approx((12 / 32) / (24 / 128))
    linear = {"a": (100, 40), "b": (30, 100)}
    assert as_distribution("er").densities(linear, 0.1) == as_distribution("erk").densities(
        linear, 0.1
    )


def test_erk_plus_leaves_the_last_layer_dense_and_rescales_the_rest():
    got = as_distribution("erk+").densities(RESNET, 0.1)
    assert got["fc"] == 1.0
    assert whole(RESNET, got) == pytest.approx(0.1)
    rest = {name: RESNET[name] for name in ("conv1", "conv2", "conv3")}
    sizes = sum(math.prod(shape) for shape in rest.values())
    alone = as_distribution("erk").densities(rest, (0.1 * (sizes + 640) - 640) / sizes)
    assert {name: got[name] for name in rest} == pytest.approx(alone)


def test_uniform_plus_leaves_the_first_dense_and_a_fifth_of_the_last():
    got = as_distribution("uniform+").densities(RESNET, 0.1)
    assert got["conv1"] == 1.0
    assert got["fc"] == 0.2
    assert got["conv2"] == got["conv3"]
    assert whole(RESNET, got) == pytest.approx(0.1)
    high = as_distribution("uniform+").densities(RESNET, 0.5)
    assert high["fc"] == high["conv2"] > 0.2


def test_what_cannot_be_met_is_refused_with_the_share():
    with pytest.raises(ValueError, match=r"erk\+.*'fc' at 1, which alone is 0\.0265"):
        as_distribution("erk+").densities(RESNET, 0.02)
    for name in ("erk+", "uniform+"):
        with pytest.raises(ValueError, match="alone is 1 of all"):
            as_distribution(name).densities({"only": (4, 4)}, 0.5)


def test_explicit_takes_names_modules_and_patterns():
    shapes = {"stem.weight": (8, 3), "blocks.0.weight": (8, 8), "blocks.1.weight": (8, 8)}
    given_ = {"stem": 1, "blocks.*": 0.25, "blocks.1.weight": 0.0}
    got = as_distribution(given_).densities(shapes, None)
    assert got == {"stem.weight": 1.0, "blocks.0.weight": 0.25, "blocks.1.weight": 0.0}
    assert Explicit({"stem": 0.5}).densities(shapes, 0.1)["blocks.0.weight"] == 0.1
    for bad, match in (
        ({"head": 0.5}, "'head' is none of the sparse layers"),
        ({"stem": 1.5}, "wanted 0 to 1"),
        ({"stem": 0.5}, "names no density for 'blocks.0.weight'"),
    ):
        with pytest.raises(ValueError, match=match):
            as_distribution(bad).densities(shapes, None)


def test_names_are_read_leniently_and_unknown_ones_refused():
    assert as_distribution("ERK_plus").name == "erk+"
    with pytest.raises(ValueError, match="wanted one of 'uniform', 'er'"):
        as_distribution("lamp")
    with pytest.raises(ValueError, match="needs the densities"):
        as_distribution("explicit")
    with pytest.raises(TypeError, match="wanted a name or a"):
        as_distribution(0.5)
