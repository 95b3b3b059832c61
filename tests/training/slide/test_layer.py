"""SlideLinear: unions of buckets, a softmax over them, gradients of what was active."""

from __future__ import annotations

import copy

import pytest
import scipy.sparse
import torch

import dtoolkit as dt
from dtoolkit.training.slide import RowSparseAdam, SlideLinear, precision
from tests.figures.checks import check_card, words
from tests.training.slide.cases import (
    CLASSES,
    FEATURES,
    SAMPLES,
    batch,
    label_sets,
    layer,
    mask_of,
    masked_losses,
)

FAMILIES = [{"family": "dwta", "hashes": 2}, {"family": "simhash", "hashes": 5}]


@pytest.mark.parametrize("settings", FAMILIES)
@pytest.mark.parametrize("by_torch", [False, True])
def test_active_sets_are_unions_of_buckets_and_labels(settings, by_torch):
    made, (hidden, labels) = layer(**settings), batch()
    made.by_torch = by_torch
    codes = made.hashing.codes(hidden)
    without, with_labels = made.active(hidden), made.active(hidden, labels)
    found = 0
    for sample, true in enumerate(label_sets(labels)):
        buckets = [made.tables.bucket(t, int(codes[t, sample])).tolist() for t in range(8)]
        union = set().union(*buckets)
        assert without.of(sample).tolist() == sorted(union)  # labels are not added
        assert with_labels.of(sample).tolist() == sorted(union | true)
        assert with_labels.found[sample] == len(union & true)
        found += len(union & true)
    assert 0 < found < sum(map(len, label_sets(labels)))
    assert with_labels.label_counts.tolist() == [len(one) for one in label_sets(labels)]


def test_sparse_inputs_have_the_same_sets():
    made, (hidden, labels) = layer(), batch()
    hidden = hidden * (torch.rand(hidden.shape, generator=torch.Generator()) < 0.3)
    wanted = made.active(hidden, labels)
    for same in (scipy.sparse.csr_array(hidden.numpy()), hidden.to_sparse_csr()):
        sets = made.active(same, labels)
        assert (sets.ids == wanted.ids).all()
        assert torch.equal(made.loss(same, labels), made.loss(hidden, labels))


@pytest.mark.parametrize("settings", FAMILIES)
@pytest.mark.parametrize("by_torch", [False, True])
def test_loss_and_gradients_are_those_of_a_softmax_over_the_active(settings, by_torch):
    made, (hidden, labels) = layer(**settings), batch()
    made.by_torch = by_torch
    mask = mask_of(made.active(hidden, labels))
    own, other = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    weight, bias = (x.detach().clone().requires_grad_() for x in (made.weight, made.bias))
    weights = torch.rand(SAMPLES)
    wanted = masked_losses(other, weight, bias, labels, mask)
    losses = made.loss(own, labels)
    torch.testing.assert_close(losses, wanted)
    (losses * weights).sum().backward()
    (wanted * weights).sum().backward()
    torch.testing.assert_close(own.grad, other.grad)
    gradient = made.weight.row_gradient
    assert made.weight.grad is None
    for got, dense in zip(gradient.sparse(), (weight.grad, bias.grad), strict=True):
        torch.testing.assert_close(got.to_dense(), dense)
    assert gradient.rows.tolist() == mask.any(0).nonzero().ravel().tolist()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("settings", FAMILIES)
def test_a_gpu_has_the_same_sets_and_learns_the_same(settings):
    made, there = layer(**settings, refresh=(2, 0)), layer(**settings, refresh=(2, 0)).cuda()
    optimizers = [RowSparseAdam(one.parameters(), lr=0.05) for one in (made, there)]
    for step in range(3):
        hidden, labels = batch(step)
        sets, other = made.active(hidden, labels), there.active(hidden.cuda(), labels)
        assert (sets.ids == other.ids).all()
        assert (sets.indptr == other.indptr).all()
        losses = made.loss(hidden, labels), there.loss(hidden.cuda(), labels)
        torch.testing.assert_close(losses[1].cpu(), losses[0])
        for one, optimizer in zip(losses, optimizers, strict=True):
            one.mean().backward()
            optimizer.step()
        torch.testing.assert_close(there.weight.cpu(), made.weight, rtol=1e-3, atol=1e-4)


def test_delta_is_p_less_the_label_shares():
    made, (hidden, labels) = layer(), batch()
    sets, kernels = made.active(hidden, labels), made.kernels
    values = made.logits(hidden, sets)
    largest = kernels.maxima(sets, values)
    total = kernels.sums(sets, values, largest)
    delta, _ = kernels.deltas(sets, values, largest, total)
    for sample, true in enumerate(label_sets(labels)):
        part = slice(*sets.indptr[sample : sample + 2].tolist())
        p = torch.softmax(values[part], 0)
        share = torch.tensor([(one in true) / max(1, len(true)) for one in sets.ids[part].tolist()])
        torch.testing.assert_close(delta[part], (p - share) * bool(true), atol=1e-6, rtol=1e-5)


def test_weights_can_be_learned_without_a_gradient_by_the_inputs():
    made, (hidden, labels) = layer(), batch()
    before = made.weight.detach().clone()
    made.loss(hidden, labels).mean().backward()
    RowSparseAdam(made.parameters()).step()
    assert not torch.equal(made.weight, before)


def test_gradients_of_two_batches_add_up():
    made, whole = layer(), layer()
    optimizers = [RowSparseAdam(one.parameters(), lr=0.1) for one in (made, whole)]
    hidden, labels = batch()
    for some in (slice(0, 11), slice(11, 30)):
        (made.loss(hidden[some], labels[some]).sum() / SAMPLES).backward()
    whole.loss(hidden, labels).mean().backward()
    for optimizer in optimizers:
        optimizer.step()
    assert int(made.updates) == 1
    torch.testing.assert_close(made.weight, whole.weight)
    torch.testing.assert_close(made.bias, whole.bias)


def test_tables_are_made_anew_when_the_schedule_says_and_part_of_the_state():
    made = layer(refresh=(3, 0.2))
    optimizer = RowSparseAdam(made.parameters(), lr=0.2)
    stale = []
    for step in range(1, 9):
        before = made.codes.clone()
        made.loss(*batch(step)).mean().backward()
        optimizer.step()
        stale.append(torch.equal(made.codes, before))
        assert stale[-1] != made.refresh_due(step)
        if not stale[-1]:
            assert torch.equal(made.codes, made.hashing.codes(made.weight))
    assert [step for step, same in enumerate(stale, 1) if not same] == [3, 7]
    loaded = layer(refresh=(3, 0.2))
    loaded.active(*batch())
    loaded.load_state_dict(made.state_dict())
    copied = copy.deepcopy(made)
    hidden, labels = batch(20)
    for other in (loaded, copied):
        assert (other.active(hidden, labels).ids == made.active(hidden, labels).ids).all()
        assert int(other.updates) == 8
    assert not torch.equal(made.codes, made.hashing.codes(made.weight))
    made.refresh()
    assert torch.equal(made.codes, made.hashing.codes(made.weight))


def test_prediction_by_all_and_by_hash():
    made, (hidden, labels) = layer(), batch()
    logits = hidden @ made.weight.T + made.bias
    torch.testing.assert_close(made(hidden), logits)
    scores, ids = logits.topk(5)
    best = made.predict(hidden, 5)
    assert torch.equal(best.ids, ids)
    torch.testing.assert_close(best.scores, scores)
    some = made.predict(hidden, 60, hashed=True)
    mask = mask_of(made.active(hidden))
    for sample in range(SAMPLES):
        active = int(mask[sample].sum())
        assert active > 0
        wanted = logits[sample].masked_fill(~mask[sample], -torch.inf).topk(60)
        assert torch.equal(some.ids[sample, :active], wanted.indices[:active][:60])
        assert (some.ids[sample, active:] == -1).all()
        torch.testing.assert_close(some.scores[sample], wanted.values)
    assert (
        made.predict(hidden[:0], 3).ids.shape == made.predict(hidden[:0], 3, hashed=True).ids.shape
    )
    shares = precision(best.ids, labels, classes=CLASSES)
    wanted = [len(set(i) & t) / 5 for i, t in zip(ids.tolist(), label_sets(labels), strict=True)]
    torch.testing.assert_close(shares, torch.tensor(wanted))
    assert precision(torch.tensor([[-1], [4]]), [[1], [4]], classes=9).tolist() == [0, 1]


def test_what_was_retrieved_is_counted_and_shown():
    made, (hidden, labels) = layer(capacity=3, policy="reservoir"), batch()
    assert "nothing retrieved yet" in words(check_card(made.card())[0])
    sets = made.active(hidden, labels)
    made.active(hidden)  # a prediction does not count
    made.loss(*batch(1)).mean().backward()
    seen = made.retrieval
    assert (seen.batches, seen.samples) == (2, 60)
    assert seen.labels == sum(len(one) for k in (0, 1) for one in label_sets(batch(k)[1]))
    assert seen.smallest <= sets.sizes.min() <= sets.sizes.max() <= seen.largest
    assert 0 < seen.label_share < 1
    shown = words(check_card(made._repr_html_())[0])
    for part in ("dwta, K = 2, L = 8", "reservoir", f"{seen.mean:,.1f}", "60 samples", "300"):
        assert part in shown
    seen.reset()
    assert seen.samples == 0


def test_refusals_name_what_is_wrong():
    made, (hidden, labels) = layer(), batch()
    with pytest.raises(ValueError, match=r"shape \(30, 23\)"):
        made.loss(hidden[:, 1:], labels)
    with pytest.raises(ValueError, match="labels are for 29 samples, hidden has 30"):
        made.loss(hidden, labels[1:])
    with pytest.raises(ValueError, match="from 0 to 300: wanted 0 to 299"):
        made.loss(hidden[:1], [[0, 300]])
    with pytest.raises(TypeError, match="whole numbers"):
        made.loss(hidden[:1], torch.tensor([0.5]))
    with pytest.raises(ValueError, match="k=0"):
        made.predict(hidden, 0)
    for name, value in {"capacity": 0, "policy": "lifo", "rows": (5, 301), "tables": 0}.items():
        with pytest.raises(ValueError, match=name):
            layer(**{name: value})
    with pytest.raises(ValueError, match="out_features=0"):
        SlideLinear(FEATURES, 0)
    assert dt.training.SlideLinear is SlideLinear
    assert "family='dwta', tables=8, hashes=2" in repr(made)
