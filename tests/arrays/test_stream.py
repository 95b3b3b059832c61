"""STREAM is exact for every number of workers and every map, and sends nothing while timed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dtoolkit.arrays import StreamResult, stream
from dtoolkit.arrays.stream import KERNELS, Q, run_kernel
from tests.arrays.helpers import layouts


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_exact_for_every_number_of_workers_and_map(cluster_of, workers):
    n = workers << 6
    for layout in ("block", "cyclic", *layouts(n, workers)):
        result = stream(cluster_of(workers), lg=6, trials=5, layout=layout)
        assert result.error <= 4e-16 * 6 == result.tolerance
        assert result.elements == n
        assert result.bytes_sent == 0
        assert result.exact


def test_the_table_states_bytes_and_rates(cluster2):
    result = stream(cluster2, lg=8, trials=3)
    frame = result.frame
    assert sorted(set(frame["kernel"])) == sorted(KERNELS)
    assert len(frame) == 8
    assert len(result.samples) == 8 * 3
    nominal = dict(zip(frame["kernel"], frame["nominal bytes"], strict=True))
    assert nominal == {"copy": 16 << 8, "scale": 16 << 8, "add": 24 << 8, "triad": 24 << 8}
    rates = frame["nominal bytes"] / frame["seconds"] / 1e9
    np.testing.assert_allclose(frame["GB/s"], rates)
    assert (frame["seconds"] <= frame["median seconds"]).all()
    assert result.bandwidth("worker").shape == (2, 4)
    assert result.bandwidth("device").shape == (1, 4)
    assert result.bandwidth("node").shape == (1, 4)
    together = result.bandwidth("cluster").loc["all"]
    assert (together <= result.bandwidth("worker").sum() * 1.0001).all()
    with pytest.raises(ValueError, match="by="):
        result.bandwidth("rack")


def test_narrow_dtypes_have_their_own_tolerance(cluster2):
    for dtype in ("float32", "bfloat16"):
        result = stream(cluster2, lg=6, trials=4, dtype=dtype)
        assert result.exact
        assert result.tolerance > 1e-8


def test_results_show_themselves_and_cannot_be_changed(cluster2):
    result = stream(cluster2, lg=4, trials=1)
    assert isinstance(result, StreamResult)
    text, html = repr(result), result._repr_html_()
    for shown in ("worker 0", "node", "cluster all", "triad", "measured", "exact"):
        assert shown in text
        assert shown in html
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.trials = 2
    wrong = dataclasses.replace(result, error=1.0)
    assert not wrong.exact
    assert "NOT EXACT" in repr(wrong)


def test_wrong_arguments_are_refused(cluster2):
    for argument in ({"lg": -1}, {"lg": 2.5}, {"trials": 0}):
        with pytest.raises(ValueError, match=next(iter(argument))):
            stream(cluster2, **argument)
    with pytest.raises(TypeError, match="floating"):
        stream(cluster2, dtype="complex64")
    with pytest.raises(MemoryError, match="STREAM"):
        stream(cluster2, lg=36)


def test_kernels_are_what_their_names_say(cluster2):
    import torch

    A, B, C = (torch.full((8,), value, dtype=torch.float64) for value in (1.0, 2.0, 3.0))
    run_kernel("copy", A, B, C, Q)
    assert torch.equal(C, A)
    assert C.data_ptr() != A.data_ptr()
    run_kernel("scale", A, B, C, Q)
    assert torch.equal(B, Q * C)
    run_kernel("add", A, B, C, Q)
    assert torch.equal(C, A + B)
    want = B + Q * C
    run_kernel("triad", A, B, C, Q)
    torch.testing.assert_close(A, want, rtol=2e-16, atol=0)
