"""Baselines in the same interface, and labels in all their forms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from dtoolkit.training.slide import FullLinear, RandomLinear, SampledLinear, as_labels
from tests.training.slide.cases import (
    CLASSES,
    FEATURES,
    batch,
    label_sets,
    mask_of,
    masked_losses,
)


def test_full_softmax_is_over_all():
    made, (hidden, labels) = FullLinear(FEATURES, CLASSES), batch()
    everything = torch.ones(len(hidden), CLASSES, dtype=torch.bool)
    wanted = masked_losses(hidden, made.weight, made.bias, labels, everything)
    torch.testing.assert_close(made.loss(hidden, labels), wanted)
    assert (made.active(hidden, labels).sizes == CLASSES).all()
    assert made.loss(hidden, labels)[7] == 0  # without labels


@pytest.mark.parametrize("kind", [RandomLinear, SampledLinear])
def test_random_sets_have_as_many_as_were_asked_for(kind):
    made, (hidden, labels) = kind(FEATURES, CLASSES, count=40, seed=2), batch()
    without, with_labels = made.active(hidden), made.active(hidden, labels)
    assert (without.sizes == 40).all()
    drawn = [set(without.of(sample).tolist()) for sample in range(30)]
    for sample, true in enumerate(label_sets(labels)):
        assert set(with_labels.of(sample).tolist()) == drawn[sample] | true
    assert (len(set(map(frozenset, drawn))) == 1) == (kind is SampledLinear)
    made.updates += 1
    assert set(made.active(hidden).of(0).tolist()) != drawn[0]
    mask = mask_of(with_labels)
    made.updates -= 1
    wanted = masked_losses(hidden, made.weight, made.bias, labels, mask)
    torch.testing.assert_close(made.loss(hidden, labels), wanted)
    for wrong in (0, CLASSES + 1):
        with pytest.raises(ValueError, match=f"count={wrong}"):
            kind(FEATURES, CLASSES, count=wrong)


def test_every_neuron_is_drawn_as_often():
    made = RandomLinear(FEATURES, 100, count=25)
    seen = np.zeros(100)
    for _ in range(20):
        made.updates += 1
        seen += mask_of(made.active(torch.zeros(100, FEATURES))).sum(0).numpy()
    share = seen / 2000
    assert seen.sum() == 25 * 2000
    assert np.abs(share - 0.25).max() < 4.5 * np.sqrt(0.25 * 0.75 / 2000)


def test_labels_come_in_many_forms():
    wanted = ([0, 2, 2, 3], [1, 4, 0])
    rows = torch.tensor([[4, 1, 4], [-1, -1, -1], [0, -1, -1]])
    marks = scipy.sparse.coo_array(([1, 1, 1, 0], ([0, 0, 2, 1], [4, 1, 0, 3])), shape=(3, 6))
    pair = (np.array([0, 3, 3, 4]), np.array([4, 1, 4, 0]))
    for form in (rows, rows.numpy(), marks, pair, [[4, 1, 4], [], [0]]):
        found = as_labels(form, classes=6)
        assert (found.indptr.tolist(), found.ids.tolist()) == wanted
    assert as_labels(torch.tensor([3, 0]), classes=6).ids.tolist() == [3, 0]
    indptr, ids = as_labels(rows, classes=6).within(1, 4)
    assert (indptr.tolist(), ids.tolist()) == ([0, 1, 1, 1], [0])
    with pytest.raises(ValueError, match="indptr must rise"):
        as_labels((np.array([0, 2]), np.array([1])), classes=6)
    with pytest.raises(ValueError, match=r"shape \(1, 1, 1\)"):
        as_labels(torch.zeros(1, 1, 1, dtype=torch.int64), classes=6)
    with pytest.raises(ValueError, match="from -1 to 0"):
        as_labels([[-1], [0]], classes=6)
