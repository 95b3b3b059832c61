from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.comm.trace import Trace
from dtoolkit.figures import compare, traffic
from dtoolkit.spmm.plan import Plan, plan
from tests.figures.checks import check_figure
from tests.figures.conftest import random_matrix, random_trace


def test_a_plan_is_drawn_in_rows(joint):
    figure = traffic(joint)
    check_figure(figure)
    heat = figure.data[0]
    np.testing.assert_array_equal(heat.z, joint.traffic)
    assert figure.layout.title.text == f"Planned traffic: {joint.volume} rows in all"
    assert f"largest pair {joint.traffic.max()} rows" in figure.layout.title.subtitle.text
    assert figure.layout.xaxis.title.text == "target (rank number)"
    assert figure.layout.yaxis.title.text == "source (rank number)"
    assert figure.layout.yaxis.autorange == "reversed"
    assert heat.colorbar.title.text == "rows"
    assert [list(row) for row in heat.text] == [
        [str(n) if n else "" for n in row] for row in joint.traffic.tolist()
    ]


def test_a_plan_is_drawn_in_bytes(joint):
    figure = traffic(joint, k=64, dtype=np.float64)
    check_figure(figure)
    np.testing.assert_array_equal(figure.data[0].z, joint.traffic * 64 * 8)
    assert figure.layout.title.text.startswith("Planned traffic: ")
    assert figure.data[0].colorbar.title.text == "bytes"
    np.testing.assert_array_equal(traffic(joint, k=2).data[0].z, joint.traffic * 2 * 4)
    np.testing.assert_array_equal(traffic(joint, dtype="float64").data[0].z, joint.traffic * 8)


def test_a_trace_is_drawn_in_bytes(small_trace):
    figure = traffic(small_trace)
    check_figure(figure)
    np.testing.assert_array_equal(figure.data[0].z, small_trace.matrix())
    assert figure.layout.title.text.startswith("Measured traffic: ")


def test_an_array_is_drawn_as_it_is():
    matrix = np.array([[0, 3], [2**40, 0]])
    figure = traffic(matrix, unit="messages")
    check_figure(figure)
    np.testing.assert_array_equal(figure.data[0].z, matrix)
    assert "messages" in figure.layout.title.text
    assert "messages" in figure.data[0].hovertemplate
    assert traffic(matrix).data[0].colorbar.title.text == "bytes"


def test_above_256_ranks_neighbours_are_summed(wide):
    figure = traffic(wide)
    check_figure(figure)
    heat = figure.data[0]
    assert np.shape(heat.z) == (256, 256)
    assert np.sum(heat.z) == wide.volume
    assert heat.z[0][1] == wide.traffic[:4, 4:8].sum()
    assert heat.x[1] == "4–7"
    assert "a cell sums 4 × 4 ranks" in figure.layout.title.subtitle.text
    assert heat.text is None


@pytest.mark.parametrize(
    ("ranks", "step"), [(1, 1), (16, 1), (17, 2), (64, 10), (128, 20), (256, 50), (1024, 52)]
)
def test_axes_leave_nothing_to_plotly(ranks, step):
    """It would stay as it was when a figure on a page is brought up to date."""
    figure = traffic(np.full((ranks, ranks), 9))
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert (axis.type, axis.tickmode, axis.tick0, axis.dtick) == ("category", "linear", 0, step)
    assert figure.layout.yaxis.autorange == "reversed"
    assert figure.data[0].colorbar.tickmode == "auto"
    assert traffic(np.full((4, 4), 8)).data[0].colorbar.tickmode == "linear"


def test_text_in_cells_up_to_16_ranks():
    assert traffic(np.ones((16, 16), int)).data[0].text is not None
    assert traffic(np.ones((17, 17), int)).data[0].text is None


def test_nothing_moves():
    check_figure(traffic(np.zeros((1, 1), int)))
    check_figure(traffic(Trace()))
    check_figure(traffic(plan(random_matrix(10, 10), parts=1)))


def test_wrong_arguments_are_refused(small_trace):
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        traffic(np.zeros((2, 3), int))
    with pytest.raises(ValueError, match="this is not a plan"):
        traffic(small_trace, k=4)
    with pytest.raises(ValueError, match="mode"):
        traffic(small_trace, mode="pink")


def test_compare_draws_all_strategies_of_a_plan(joint):
    figure = compare(joint)
    check_figure(figure)
    bar = figure.data[0]
    table = joint.compare()["volume"]
    assert list(bar.x) == ["oblivious", "column", "row", "joint", "1.5d", "2d"]
    assert list(bar.y) == [table[name] for name in bar.x]
    assert figure.layout.yaxis.title.text == "rows sent in all (rows)"
    colours = dict(zip(bar.x, bar.marker.color, strict=True))
    assert colours["joint"] != colours["row"] == colours["column"]
    assert "fewest rows: joint" in figure.layout.title.subtitle.text


def test_compare_plans_the_joint_strategy_where_it_can(matrix, tmp_path):
    column = plan(matrix, parts=4, strategy="column")
    assert "joint" in compare(column).data[0].x
    column.save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")  # has no matrix to plan from
    check_figure(compare(loaded))


def test_compare_draws_several_plans(matrix, joint):
    row = plan(matrix, parts=4, strategy="row")
    assert list(compare([joint, row]).data[0].y) == [joint.volume, row.volume]
    other = plan(matrix, parts=3)
    assert list(compare([joint, other]).data[0].x) == ["joint, 4 parts", "joint, 3 parts"]
    assert len(set(compare([joint, joint]).data[0].x)) == 2
    assert list(compare({"mine": joint, "yours": row}).data[0].x) == ["mine", "yours"]


def test_compare_says_that_weights_count(matrix):
    weighted = plan(matrix, parts=4, b_dtype="float32", c_dtype="float64")
    assert "B to C as 1 to 2" in compare(weighted).layout.title.subtitle.text


def test_same_input_same_figure(joint):
    assert traffic(joint).to_json() == traffic(joint).to_json()
    a, b = (traffic(random_trace(50, 5)).to_json() for _ in range(2))
    assert a == b


def test_cells_may_be_fewer(wide):
    whole = traffic(wide, max_ranks=10)
    assert np.shape(whole.data[0].z) == (10, 10)
    assert int(np.sum(whole.data[0].z)) == wide.volume
    with pytest.raises(ValueError, match="max_ranks must be 1 or more, got 0"):
        traffic(wide, max_ranks=0)
