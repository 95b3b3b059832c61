"""A layer in pieces: the sets, the loss and the weights do not depend on who holds which rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from dtoolkit.training.slide import FullLinear, RandomLinear, RowSparseAdam, SampledLinear
from tests.training.slide.cases import CLASSES, FEATURES, Recorded, batch, layer

SPLITS = [(0, 150, 300), (0, 75, 150, 225, 300), (0, 1, 1, 290, 300)]


def pieces(make, bounds):
    return [make(rows=part) for part in pairwise(bounds)]


@pytest.mark.parametrize("bounds", SPLITS)
@pytest.mark.parametrize("family", ["dwta", "simhash"])
def test_pieces_hold_exactly_their_rows_of_the_whole(bounds, family):
    def make(**more):
        return layer(family=family, **more)

    whole, parts = make(), pieces(make, bounds)
    hidden, labels = batch()
    for name, axis in (("weight", 0), ("bias", 0), ("codes", 1)):
        joined = torch.cat([getattr(one, name) for one in parts], axis)
        assert torch.equal(joined, getattr(whole, name))
    for given in (labels, None):
        sets, apart = whole.active(hidden, given), [one.active(hidden, given) for one in parts]
        values = whole.logits(hidden, sets)
        for sample in range(len(sets)):
            ids = [one.of(sample) + part.start for one, part in zip(apart, parts, strict=True)]
            assert np.concatenate(ids).tolist() == sets.of(sample).tolist()
        parted = [part.logits(hidden, one) for part, one in zip(parts, apart, strict=True)]
        for sample in range(len(sets)):
            own = [
                one[slice(*some.indptr[sample : sample + 2].tolist())]
                for one, some in zip(parted, apart, strict=True)
            ]
            mine = values[slice(*sets.indptr[sample : sample + 2].tolist())]
            assert torch.equal(torch.cat(own), mine)  # a logit has the same bits wherever it is


@pytest.mark.parametrize("bounds", SPLITS)
def test_pieces_learn_as_the_whole_does(bounds):
    """Five updates and a refresh, with the exchanges of all pieces made by hand."""

    def make(**more):
        return layer(refresh=(2, 0), **more)

    whole, parts = make(), pieces(make, bounds)
    optimizers = [RowSparseAdam(one.parameters(), lr=0.05) for one in (whole, *parts)]
    for step in range(5):
        hidden, labels = batch(step)
        own = hidden.clone().requires_grad_()
        losses = whole.loss(own, labels)
        losses.mean().backward()
        shares, pulled, said = exchange(parts, hidden, labels)
        torch.testing.assert_close(shares, losses.detach())
        torch.testing.assert_close(pulled, own.grad)
        assert [one.shape for one in said] == [(30,), (30,), (30, FEATURES)]
        assert all(one.dtype == torch.float32 for one in said)
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(torch.cat([one.weight for one in parts]), whole.weight)
        torch.testing.assert_close(torch.cat([one.bias for one in parts]), whole.bias)
        assert torch.equal(torch.cat([one.codes for one in parts], 1), whole.codes)


def exchange(parts, hidden, labels):
    """Loss and gradient of all pieces, each told what all of them say; what one piece says."""
    answers = []
    for _ in range(3):  # each pass learns one more of the exchanges
        peers, inputs, losses = [], [], []
        for part in parts:
            peers.append(Recorded(answers))
            inputs.append(hidden.clone().requires_grad_())
            part.weight.row_gradient = part.bias.row_gradient = None
            losses.append(part.loss(inputs[-1], labels, peers=peers[-1]))
            losses[-1].mean().backward()
        said = torch.stack([one.said[len(answers)] for one in peers])
        answers.append(said.amax(0) if not answers else said.sum(0))
    assert all(len(one.said) == 3 for one in peers)
    return sum(one.detach() for one in losses), answers[-1], peers[0].said


@pytest.mark.parametrize(
    ("kind", "more"),
    [(FullLinear, {}), (RandomLinear, {"count": 40}), (SampledLinear, {"count": 40})],
)
def test_baselines_have_the_same_sets_in_pieces(kind, more):
    def make(**some):
        return kind(FEATURES, CLASSES, seed=4, **more, **some)

    whole, parts = make(), pieces(make, SPLITS[1])
    hidden, labels = batch()
    sets, apart = whole.active(hidden, labels), [one.active(hidden, labels) for one in parts]
    for sample in range(len(sets)):
        ids = [one.of(sample) + part.start for one, part in zip(apart, parts, strict=True)]
        assert np.concatenate(ids).tolist() == sets.of(sample).tolist()
    own = hidden.clone().requires_grad_()
    losses = whole.loss(own, labels)
    losses.mean().backward()
    shares, pulled, _ = exchange(parts, hidden, labels)
    torch.testing.assert_close(shares, losses.detach())
    torch.testing.assert_close(pulled, own.grad)


def test_a_layer_that_holds_no_rows_takes_part():
    made = layer(rows=(300, 300))
    hidden, labels = batch()
    peers = Recorded([torch.zeros(30), torch.ones(30), torch.ones(30, FEATURES)])
    own = hidden.clone().requires_grad_()
    losses = made.loss(own, labels, peers=peers)
    losses.sum().backward()
    RowSparseAdam(made.parameters()).step()
    assert losses.abs().max() == 0
    assert (own.grad == 1).all()
    assert (peers.said[0] == -torch.inf).all()
    assert peers.said[1].abs().max() == 0 == peers.said[2].abs().max()
    assert made.predict(hidden, 2).ids.tolist() == [[-1, -1]] * 30


def test_results_do_not_depend_on_the_number_of_threads():
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            made = layer(refresh=(1, 0))
            optimizer = RowSparseAdam(made.parameters(), lr=0.1)
            for step in range(3):
                hidden, labels = batch(step)
                own = hidden.requires_grad_()
                made.loss(own, labels).mean().backward()
                optimizer.step()
            found.append((made.weight.detach(), made.codes, own.grad))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
