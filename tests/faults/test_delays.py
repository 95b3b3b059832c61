"""Distributions of delays: the numbers asked for, and the same ones wherever they are drawn."""

import math

import numpy as np
import pytest

from dtoolkit.faults.delays import Constant, Delay, Exponential, HeavyTail, LogNormal, Normal

KINDS = [
    Constant(0.02),
    Normal(1.0, 0.3),
    Exponential(0.5),
    LogNormal(2.0, 0.5),
    HeavyTail(0.5),
]


def named(delay: Delay) -> str:
    return type(delay).__name__


@pytest.mark.parametrize("delay", KINDS, ids=named)
def test_mean_and_deviation_are_those_asked_for(delay):
    drawn = delay.table(0, workers=8, steps=400, micro_batches=12)
    assert drawn.shape == (8, 400, 12)
    assert drawn.dtype == np.float64
    assert drawn.min() >= 0
    assert drawn.mean() == pytest.approx(delay.mean, rel=0.02)
    assert drawn.std() == pytest.approx(delay.std, rel=0.05, abs=1e-9)


@pytest.mark.parametrize("delay", KINDS, ids=named)
def test_a_number_depends_on_its_place_alone(delay):
    table = delay.table(7, workers=3, steps=4, micro_batches=9)
    larger = delay.table(7, workers=5, steps=6, micro_batches=17)
    later = delay.table(7, workers=3, steps=2, micro_batches=9, first_step=2)
    assert (larger[:3, :4, :9] == table).all()
    assert (later == table[:, 2:]).all()
    for rank, step, micro in ((0, 0, 0), (2, 3, 8), (1, 2, 5), (2, 0, 4)):
        assert delay.draw(7, rank=rank, step=step, micro=micro) == table[rank, step, micro]


def test_places_and_seeds_give_different_numbers():
    table = Exponential(1.0).table(0, workers=4, steps=50, micro_batches=12)
    assert len(np.unique(table)) == table.size
    assert not np.isin(
        Exponential(1.0).table(1, workers=4, steps=50, micro_batches=12), table
    ).any()
    neighbours = np.corrcoef(
        table.reshape(-1, 12)[:, :-1].ravel(), table.reshape(-1, 12)[:, 1:].ravel()
    )
    assert abs(neighbours[0, 1]) < 0.1


def test_the_numbers_of_a_seed_stay_what_they_were():
    assert Exponential(1.0).draw(0, rank=0, step=0, micro=0) == pytest.approx(0.7271444363294678)
    assert HeavyTail(1.0).draw(3, rank=2, step=5, micro=7) == pytest.approx(0.46785322056896417)


def test_the_heavy_tail_is_the_one_of_the_paper():
    lengths = np.arange(1, 1000)
    share = np.exp(-((np.log(lengths) - 4) ** 2) / 2) / lengths
    share /= share.sum()
    multiples = lengths / (share @ lengths)
    drawn = HeavyTail(1.0).table(0, workers=20, steps=500, micro_batches=20)
    assert np.isin(drawn, multiples).all()
    for length in (10, 50, 100, 400):
        expected = share[:length].sum()
        assert (drawn <= multiples[length - 1]).mean() == pytest.approx(expected, abs=0.005)
    assert HeavyTail(2.0).std == pytest.approx(2 * math.sqrt(share @ multiples**2 - 1))


def test_extreme_probabilities_give_numbers():
    edge = np.array([2.0**-53, 1 - 2.0**-53])
    for delay in KINDS:
        assert np.isfinite(delay.quantile(edge)).all()


def test_normal_delays_are_cut_at_zero():
    assert Normal(0.0, 1.0).table(0, workers=1, steps=1, micro_batches=100).min() == 0.0


def test_ones_own_distribution():
    class Uniform(Delay):
        def quantile(self, probability):
            return 2 * probability

    table = Uniform().table(0, workers=2, steps=100, micro_batches=10)
    assert table.mean() == pytest.approx(1.0, abs=0.05)
    assert table.max() < 2


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Constant(-1.0), ValueError, "Constant: seconds=-1.0"),
        (lambda: Normal(1.0, float("nan")), ValueError, "Normal: std=nan"),
        (lambda: Exponential("slow"), TypeError, "Exponential: mean='slow'"),
        (lambda: LogNormal(float("inf")), ValueError, "LogNormal: mean=inf"),
        (lambda: HeavyTail(True), TypeError, "HeavyTail: mean=True"),
        (lambda: Constant(1.0).draw(0.5, rank=0, step=0, micro=0), TypeError, "seed=0.5"),
        (lambda: Constant(1.0).draw(0, rank=-1, step=0, micro=0), ValueError, "rank=-1"),
        (lambda: Constant(1.0).draw(0, rank=0, step=1.5, micro=0), TypeError, "step=1.5"),
        (
            lambda: Constant(1.0).table(0, workers=-1, steps=1, micro_batches=1),
            ValueError,
            "workers=-1",
        ),
    ],
)
def test_what_is_refused(make, error, words):
    with pytest.raises(error, match=words.replace("[", r"\[")):
        make()


def test_empty_tables():
    assert HeavyTail(1.0).table(0, workers=0, steps=3, micro_batches=2).shape == (0, 3, 2)
    assert HeavyTail(1.0).table(0, workers=2, steps=3, micro_batches=0).shape == (2, 3, 0)
