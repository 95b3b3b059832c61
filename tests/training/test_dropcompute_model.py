"""DropCompute without workers: the model, the choice of a threshold, simulations.

Reference figures: 12 micro-batches, overhead 0.5, 400 steps; normal times of mean 1 and deviation
0.3, and times of 1 + X/2 with the heavy-tailed X of mean 1.
"""

import copy
import json
import pickle

import numpy as np
import pytest

from dtoolkit.faults.delays import HeavyTail, Normal
from dtoolkit.training.dropcompute import (
    Threshold,
    best_threshold,
    expected_done,
    expected_speedup,
    expected_step,
    expected_threshold,
    threshold_scores,
)
from dtoolkit.training.dropsimulation import best_simulated, simulate

M, OVERHEAD, STEPS = 12, 0.5, 400
MEAN = {"normal": 1.0, "heavy": 1.5}
STD = {"normal": 0.3, "heavy": HeavyTail(0.5).std}


def drawn(kind: str, workers: int, seed: int = 0) -> np.ndarray:
    shape = {"workers": workers, "steps": STEPS, "micro_batches": M}
    if kind == "normal":
        return Normal(1.0, 0.3).table(seed, **shape)
    return 1.0 + HeavyTail(0.5).table(seed, **shape)


def as_released(times: np.ndarray, overhead: float) -> tuple[float, float]:
    """The rule, written down word for word: threshold and score."""
    acc = times.cumsum(2)
    best = (0.0, -np.inf)
    for tau in np.linspace(acc[:, :, 5:].min(), acc.max(), 200):
        scores = []
        for i in range(times.shape[1]):
            below = acc[:, i][acc[:, i] < tau]
            gain = acc[:, i].max() - (below.max() if len(below) else 0.0)
            drop = (acc[:, i] >= tau).mean()
            raw = acc[:, i, -1].max() + overhead
            scores.append((1 - drop) / (1 - gain / raw) - 1 if gain < raw else -1.0)
        if np.mean(scores) > best[1]:
            best = (tau, np.mean(scores))
    return best


# ------------------------------------------------------------------------------- closed form


@pytest.mark.parametrize(("workers", "time"), [(8, 13.47), (64, 14.45), (200, 14.87)])
def test_time_of_a_step(workers, time):
    assert expected_step(workers, M, 1.0, 0.3) == pytest.approx(time, rel=0.01)
    slowest = drawn("normal", workers).sum(2).max(0).mean()
    assert slowest == pytest.approx(time, rel=0.02)
    assert expected_step(workers, M, 1.0, 0.3) == pytest.approx(slowest, rel=0.01)


def test_time_of_a_step_of_few_workers():
    assert expected_step(1, M, 1.0, 0.3) == 12.0
    assert expected_step(5, M, 2.0, 0.0) == 24.0
    two = expected_step(2, M, 1.0, 0.3)  # the mean of the larger of two: sigma / sqrt(pi)
    assert two == pytest.approx(12 + 0.3 * np.sqrt(12 / np.pi), rel=0.01)
    steps = [expected_step(workers, M, 1.0, 0.3) for workers in (1, 2, 4, 8, 64, 200, 10**6)]
    assert steps == sorted(steps)


@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_micro_batches_done_at_a_threshold(kind):
    ends = drawn(kind, 50).cumsum(2)
    for threshold in (5.0, 12.0, 16.0, 20.0):
        done = (ends <= threshold).sum(2).mean()
        expected = expected_done(threshold, M, MEAN[kind], STD[kind])
        assert expected == pytest.approx(done, rel=0.01 if kind == "normal" else 0.05)
    assert expected_done(float("inf"), M, 1.0, 0.3) == M
    assert expected_done(0.0, M, 1.0, 0.3) == pytest.approx(0, abs=1e-3)
    assert expected_done(4.0, M, 1.0, 0.0) == 4


@pytest.mark.parametrize(("workers", "best"), [(8, 1.063), (64, 1.138), (200, 1.171)])
def test_best_speedup_of_normal_times(workers, best):
    closed = expected_threshold(workers, M, 1.0, 0.3, overhead=OVERHEAD)
    assert 1 + closed.gain == pytest.approx(best, rel=0.01)
    found = best_simulated(drawn("normal", workers), rule="at", overhead=OVERHEAD)
    assert found.speedup == pytest.approx(best, rel=0.02)
    assert 1 + closed.gain == pytest.approx(found.speedup, rel=0.01)
    assert float(closed) == pytest.approx(found.threshold, rel=0.05)
    assert closed.dropped == pytest.approx(found.dropped, abs=0.04)


@pytest.mark.parametrize(("workers", "best"), [(8, 1.125), (64, 1.273), (200, 1.346)])
def test_best_speedup_of_heavy_tails_is_above_the_formula(workers, best):
    found = best_simulated(drawn("heavy", workers), rule="at", overhead=OVERHEAD)
    assert found.speedup == pytest.approx(best, rel=0.02)
    formula = expected_threshold(workers, M, MEAN["heavy"], STD["heavy"], overhead=OVERHEAD)
    assert found.speedup > 1 + formula.gain


@pytest.mark.parametrize(
    ("kind", "workers", "best"),
    [
        ("normal", 8, 1.06),
        ("normal", 64, 1.10),
        ("normal", 200, 1.12),
        ("heavy", 8, 1.10),
        ("heavy", 64, 1.14),
        ("heavy", 200, 1.16),
    ],
)
def test_best_speedup_when_workers_look_after_a_micro_batch(kind, workers, best):
    found = best_simulated(drawn(kind, workers), rule="after", overhead=OVERHEAD)
    assert found.speedup == pytest.approx(best, rel=0.02)


def test_four_workers_of_heavy_tails():
    found = best_simulated(drawn("heavy", 4), rule="at", overhead=OVERHEAD)
    assert found.speedup == pytest.approx(1.07, rel=0.02)
    assert found.dropped == pytest.approx(0.14, abs=0.03)


def test_the_closed_form_finds_its_own_best():
    for workers, std, overhead in ((2, 0.1, 0.0), (8, 0.3, 0.5), (500, 0.5, 3.0)):
        found = expected_threshold(workers, M, 1.0, std, overhead=overhead)
        at = expected_speedup(found, workers, M, 1.0, std, overhead=overhead)
        assert at == 1 + found.gain
        for other in np.linspace(0.5, 30, 500):
            assert expected_speedup(other, workers, M, 1.0, std, overhead=overhead) <= at + 1e-6
    assert expected_speedup(float("inf"), 8, M, 1.0, 0.3, overhead=0.5) == pytest.approx(1.0)


def test_without_variance_nothing_is_gained():
    found = expected_threshold(8, M, 1.0, 0.0, overhead=0.5)
    assert found.gain == pytest.approx(0, abs=1e-12)
    assert found.dropped == 0


# ----------------------------------------------------------------------- the rule, as released


@pytest.mark.parametrize("kind", ["normal", "heavy"])
@pytest.mark.parametrize(("workers", "overhead"), [(1, 0.5), (4, 0.5), (8, 0.0)])
def test_the_rule_is_the_released_one(kind, workers, overhead):
    times = drawn(kind, workers)[:, :30]
    threshold, score = as_released(times, overhead)
    found = best_threshold(times, overhead=overhead)
    assert found == threshold
    assert found.gain == pytest.approx(score, abs=1e-12)
    mean = times.sum(2).max(0).mean() + overhead
    assert best_threshold(times, iteration_time=mean) == pytest.approx(threshold)
    assert best_threshold(times, iteration_time=np.full(30, mean)) == pytest.approx(threshold)


def test_the_rule_by_hand():
    # Ends 1 to 6, and 1 to 5 and 10. At 6 both last ones count as dropped, and 5 is the last end
    # before: 10 of 12 micro-batches in half of the time.
    times = np.ones((2, 1, 6))
    times[1, 0, 5] = 5.0
    found = best_threshold(times)
    assert found == 6.0
    assert found.gain == pytest.approx((10 / 12) / (5 / 10) - 1)
    assert found.dropped == pytest.approx(2 / 12)
    # With an overhead of 10, above 6: only the late one is dropped, 16 of 20 of the time are left.
    slow = best_threshold(times, overhead=10.0)
    assert 6.0 < slow < 6.1
    assert slow.gain == pytest.approx((11 / 12) / (16 / 20) - 1)
    assert slow.dropped == pytest.approx(1 / 12)


def test_an_iteration_in_which_nothing_would_be_done():
    times = np.ones((2, 2, 6))
    times[:, 1] = 100.0
    scores = threshold_scores(times)
    assert np.isfinite(scores.gains).all()
    assert scores.gains[0] == pytest.approx((10 / 12 / (5 / 6) - 1 - 1) / 2)
    assert scores.thresholds[[0, -1]].tolist() == [6.0, 600.0]
    assert len(scores.thresholds) == 200


def test_the_rules_threshold_is_near_the_best_of_the_simulation():
    for kind in ("normal", "heavy"):
        for workers in (8, 64):
            times = drawn(kind, workers)
            found = simulate(times, best_threshold(times, overhead=OVERHEAD), overhead=OVERHEAD)
            best = best_simulated(times, overhead=OVERHEAD)
            assert found.speedup == pytest.approx(best.speedup, rel=0.005)


def test_a_threshold_is_a_number():
    found = best_threshold(drawn("heavy", 4), overhead=OVERHEAD)
    assert isinstance(found, float)
    assert isinstance(found, Threshold)
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert (again, again.gain, again.dropped) == (found, found.gain, found.dropped)
    assert json.loads(json.dumps(found)) == float(found)
    assert f"{found:.2f}" == f"{float(found):.2f}"


# -------------------------------------------------------------------------------- simulation


def test_simulation_by_hand():
    times = np.array([[[1.0, 1.0, 1.0]], [[2.0, 2.0, 2.0]]])  # ends 1 2 3 and 2 4 6
    at = simulate(times, 3.0, rule="at", overhead=1.0)
    assert at.done.tolist() == [[3], [1]]
    assert (at.seconds, at.synchronous, at.dropped) == (4.0, 7.0, pytest.approx(2 / 6))
    assert at.speedup == pytest.approx(7 / 4 * 4 / 6)
    after = simulate(times, 3.0, rule="after", overhead=1.0)
    assert after.done.tolist() == [[3], [2]]
    assert (after.seconds, after.speedup) == (5.0, pytest.approx(7 / 5 * 5 / 6))
    on_the_dot = simulate(times, 2.0, rule="after")  # an end at the threshold is not over it
    assert on_the_dot.done.tolist() == [[3], [2]]
    at_once = simulate(times, 0.0, rule="after")
    assert at_once.done.tolist() == [[1], [1]]


@pytest.mark.parametrize("rule", ["at", "after"])
def test_an_infinite_threshold_drops_nothing(rule):
    found = simulate(drawn("heavy", 4), float("inf"), rule=rule, overhead=OVERHEAD)
    assert (found.speedup, found.dropped) == (1.0, 0.0)
    assert found.seconds == found.synchronous


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: best_threshold(np.ones((2, 3, 5))), "5 micro-batches an iteration, wanted more"),
        (
            lambda: best_threshold(np.ones((3, 6))),
            "wanted \\(workers, iterations, micro-batches\\)",
        ),
        (lambda: best_threshold(np.ones((2, 0, 6))), "at least one of each"),
        (lambda: best_threshold(-np.ones((2, 3, 6))), "negative or not finite"),
        (lambda: best_threshold(np.full((2, 3, 6), np.nan)), "negative or not finite"),
        (lambda: best_threshold(np.zeros((2, 3, 6))), "no worker took any time"),
        (
            lambda: best_threshold(np.ones((2, 3, 6)), iteration_time=5.0),
            "iteration_time=5 is less",
        ),
        (
            lambda: best_threshold(np.ones((2, 3, 6)), iteration_time=7.0, overhead=1.0),
            "give one of them",
        ),
        (lambda: best_threshold(np.ones((2, 3, 6)), overhead=-1.0), "overhead=-1.0"),
        (lambda: expected_step(0, M, 1.0, 0.3), "workers=0"),
        (lambda: expected_step(8, M, 0.0, 0.3), "mean=0"),
        (lambda: expected_step(8, M, 1.0, -0.3), "std=-0.3"),
        (lambda: expected_step(8, M, float("inf"), 0.3), "mean=inf"),
        (lambda: expected_done(-1.0, M, 1.0, 0.3), "threshold=-1.0"),
        (lambda: expected_threshold(8, M, 1.0, 0.3, overhead=float("nan")), "overhead=nan"),
        (lambda: simulate(np.ones((1, 1, 1)), 1.0, rule="during"), "rule='during'"),
        (lambda: simulate(np.ones((1, 1, 1)), float("nan")), "threshold=nan"),
        (lambda: best_simulated(np.ones((1, 1, 1)), candidates=0), "candidates=0"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_count_that_is_no_integer():
    with pytest.raises(TypeError, match=r"workers=8\.5"):
        expected_step(8.5, M, 1.0, 0.3)
