from __future__ import annotations

import itertools
import math

import numpy as np
import plotly.graph_objects as go
import pytest

from dtoolkit.figures import theme
from dtoolkit.figures.bins import bin_matrix, edges


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (1e-9, "1 ns"), (2.5e-7, "250 ns"), (1.234e-5, "12.3 µs"), (0.0123, "12.3 ms"),
        (0.9999, "1 s"), (1.5, "1.5 s"), (90, "1.5 min"), (7200, "2 h"), (360_000, "100 h"),
        (-0.002, "-2 ms"), (math.nan, "nan"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_seconds_text(seconds, text):
    assert theme.seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (65_536, "65.5 kB"), (999_999, "1 MB"),
        (1_234_567, "1.23 MB"), (123_456_789, "123 MB"), (5e9, "5 GB"), (2**63, "9.22 EB"),
    ],
)  # fmt: skip
def test_bytes_text(count, text):
    assert theme.bytes_text(count) == text


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (0, "rows", "0 rows"), (99_999, "", "99,999"), (100_000, "", "100 k"),
        (999_999, "", "1 M"), (1_234_567, "rows", "1.23 M rows"), (3.1e15, "", "3,100 T"),
    ],
)  # fmt: skip
def test_count_text(count, unit, text):
    assert theme.count_text(count, unit) == text


def test_plural():
    assert theme.plural(1, "row") == "1 row"
    assert theme.plural(0, "row") == "0 rows"
    assert theme.plural(2, "launch", "launches") == "2 launches"


@pytest.mark.parametrize("each", [True, False])
def test_ticks_state_their_mode(each):
    """A figure on a page keeps the mode that Plotly derived before, unless one is stated."""
    axis = go.layout.XAxis(theme.ticks(each, about=10))
    wanted = ("linear", 1, None) if each else ("auto", None, 10)
    assert (axis.tickmode, axis.dtick, axis.nticks) == wanted


def test_layouts_are_valid_and_merge_axes():
    layout = theme.base_layout(xaxis={"title": {"text": "time (s)"}, "dtick": 1}, width=300)
    figure = go.Figure(layout=layout)
    assert figure.layout.xaxis.title.text == "time (s)"
    assert figure.layout.xaxis.title.standoff == 8
    assert figure.layout.xaxis.dtick == 1
    assert figure.layout.width == 300
    assert list(figure.layout.modebar.remove) == ["sendChartToCloud"]
    with pytest.raises(ValueError, match="mode must be one of auto, light, dark, got 'sepia'"):
        theme.base_layout(mode="sepia")


def test_ink_reads_on_its_backgrounds():
    def ink(mode):
        return theme.base_layout(mode=mode)["font"]["color"]

    assert contrast(ink("auto"), "#ffffff") > 4
    assert contrast(ink("auto"), "#111111") > 4
    assert contrast(ink("light"), "#ffffff") > 7
    assert contrast(ink("dark"), "#111111") > 7


def test_categories_differ_for_the_colour_blind():
    # Each pair stays apart in lightness and hue under simulated lack of red, green or blue cones
    # (Vienot 1999 for the first two, Brettel's plane approximated for the third).
    simulations = {
        "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
        "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
        "tritan": [[1, 0.1446, -0.1446], [0, 0.8592, 0.1408], [0, 0.8592, 0.1408]],
    }
    for matrix in simulations.values():
        seen = [np.array(matrix) @ linear(colour) for colour in theme.CATEGORIES]
        for a, b in itertools.combinations(seen, 2):
            assert np.linalg.norm(lab(a) - lab(b)) > 7


def test_cividis_grows_lighter_and_meets_its_stops():
    lightness = [luminance(theme.cividis(share)) for share in np.linspace(0, 1, 64)]
    assert np.all(np.diff(lightness) > 0)
    assert theme.cividis(0) == theme.CIVIDIS[0]
    assert theme.cividis(1) == theme.CIVIDIS[-1]
    assert theme.cividis(-1) == theme.CIVIDIS[0]
    assert theme.cividis(9) == theme.CIVIDIS[-1]


def test_ink_on_a_colour_reads():
    for share in np.linspace(0, 1, 64):
        colour = theme.cividis(share)
        assert contrast(theme.ink_on(colour), colour) >= 4.4


def test_category_colours_depend_on_the_names_alone():
    assert theme.category_colours(["b", "a", "b"]) == theme.category_colours(["a", "b"])
    assert list(theme.category_colours(["b", "a"])) == ["a", "b"]
    assert len(theme.category_colours([str(i) for i in range(20)])) == 20


@pytest.mark.parametrize(("n", "bins"), [(7, 7), (7, 3), (1000, 24), (257, 256), (1, 1)])
def test_edges_and_bins_agree(n, bins):
    starts = edges(n, bins)
    item = np.arange(n)
    expected = np.searchsorted(starts, item, side="right") - 1
    np.testing.assert_array_equal(item * bins // n, expected)
    assert starts[0] == 0
    assert starts[-1] == n


def test_bin_matrix_keeps_the_sum_and_the_place():
    matrix = np.zeros((100, 100), dtype=np.int64)
    matrix[0, 99], matrix[50, 50] = 2**60, 7
    binned = bin_matrix(matrix, 10)
    assert binned.shape == (10, 10)
    assert binned[0, 9] == 2**60
    assert binned[5, 5] == 7
    assert binned.sum() == matrix.sum()
    assert bin_matrix(matrix, 100) is matrix
    assert bin_matrix(np.zeros((0, 0), dtype=np.int64), 10).shape == (0, 0)


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
