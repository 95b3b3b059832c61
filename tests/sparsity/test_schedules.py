from __future__ import annotations

import pytest

from dtoolkit.sparsity import Constant, Cosine, Cubic
from dtoolkit.sparsity.schedules import as_schedule


def test_cosine_by_hand():
    schedule = Cosine(every=10, stop=100, share=0.3)
    for step, share in ((0, 0.3), (50, 0.15), (100, 0.0), (200, 0.0)):
        assert schedule.fraction(step) == pytest.approx(share)


def test_cubic_by_hand():
    schedule = Cubic(every=10, start=100, stop=200)
    # Zhu and Gupta, equation 1: sparsity 0.9 (1 - (1 - t)^3).
    for step, density in ((0, 1.0), (100, 1.0), (150, 1 - 0.9 * 0.875), (200, 0.1), (999, 0.1)):
        assert schedule.density(step, 0.1) == pytest.approx(density)


def test_constant_is_at_once_and_for_ever():
    schedule = Constant(every=7, share=0.2)
    assert schedule.density(0, 0.1) == 0.1
    assert schedule.fraction(10**6) == 0.2
    assert [step for step in range(30) if schedule.due(step)] == [7, 14, 21, 28]


def test_updates_end_at_the_stop_step_and_come_there():
    schedule = Cubic(every=10, start=5, stop=32)
    assert [step for step in range(60) if schedule.due(step)] == [15, 25, 32]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Cosine(), "stop is not given: Cosine"),
        (lambda: Constant(every=0), "every=0"),
        (lambda: Cubic(start=5, stop=5), "stop=5: wanted more than start=5"),
        (lambda: Constant(share=1.5), "share=1.5"),
        (lambda: Constant(start=-1), "start=-1"),
        (lambda: as_schedule("linear"), "wanted one of 'constant'"),
    ],
)
def test_nonsense_is_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()
