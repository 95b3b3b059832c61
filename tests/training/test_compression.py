"""Compressors on vectors: exact counts, exact bytes, nothing lost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtoolkit.training.compression import (
    COMPRESSORS,
    ErrorFeedback,
    RandomK,
    Sign,
    TopK,
    as_compressor,
)

ALL = [TopK(share=0.25), TopK(k=3), RandomK(share=0.25), RandomK(k=3), Sign()]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def vector(n: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)).to(dtype)


def through(coder, flat, key=7):
    """What comes out at the other end of a wire."""
    message = coder.pack(coder.compress(flat, key=key))
    assert message.dtype == torch.uint8
    assert message.numel() == coder.payload_bytes(flat.numel(), flat.dtype)
    return coder.expand(coder.unpack(message, flat.numel(), flat.dtype), flat.numel(), key=key)


def test_worked_numbers():
    flat = torch.tensor([1.0, -4.0, 0.5, 3.0, -2.0])
    assert through(TopK(k=2), flat).tolist() == [0, -4, 0, 3, 0]
    assert through(Sign(), flat).tolist() == pytest.approx([2.1, -2.1, 2.1, 2.1, -2.1])
    values, places = TopK(k=2).compress(flat)
    assert values.tolist() == [-4, 3]
    assert places.tolist() == [1, 3]
    scale, signs = Sign().compress(flat)
    assert scale.tolist() == pytest.approx([2.1])
    assert signs.tolist() == [0b10110000]


@pytest.mark.parametrize(
    ("coder", "n", "dtype", "want"),
    [
        (TopK(share=0.01), 1000, torch.float32, 10 * (4 + 4)),
        (TopK(share=0.01), 1000, torch.float64, 10 * (8 + 4)),
        (TopK(share=0.01), 2**31 + 1, torch.float32, round(0.01 * (2**31 + 1)) * (4 + 8)),
        (TopK(k=5), 3, torch.float32, 3 * 8),
        (RandomK(share=0.01), 1000, torch.float32, 10 * 4),
        (RandomK(share=0.01), 1000, torch.bfloat16, 10 * 2),
        (Sign(), 1000, torch.float32, 125 + 4),
        (Sign(), 1001, torch.float64, 126 + 8),
        (TopK(), 10, torch.float32, 8),
        (TopK(), 0, torch.float32, 0),
    ],
)
def test_bytes_on_the_wire(coder, n, dtype, want):
    assert coder.payload_bytes(n, dtype) == want


@pytest.mark.parametrize("coder", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 100])
def test_sizes_and_dtypes(coder, dtype, n):
    out = through(coder, vector(n, dtype=dtype))
    assert out.shape == (n,)
    assert out.dtype == dtype


@pytest.mark.parametrize("kind", [TopK, RandomK])
@pytest.mark.parametrize(
    "flat",
    [
        torch.zeros(50),
        torch.ones(50),
        -torch.ones(50),
        torch.tensor([1.0, -1.0] * 25),
        torch.tensor([2.0] * 3 + [1.0] * 47),
    ],
    ids=["zeros", "equal", "negative", "both signs", "ties at the edge"],
)
@pytest.mark.parametrize("k", [1, 5, 49, 50])
def test_exactly_k_with_ties(kind, flat, k):
    payload = kind(k=k).compress(flat, key=3)
    assert all(part.numel() == k for part in payload)
    if kind is TopK:
        places = payload[1].long()
        assert len(set(places.tolist())) == k
        assert flat.abs()[places].min() >= flat.abs().sort(descending=True).values[k - 1]
        first = (flat.abs() == flat.abs()[places].min()).nonzero().flatten()
        tied = [p for p in places.tolist() if p in first.tolist()]
        assert tied == first[: len(tied)].tolist()  # of equal ones those that come first


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 40))
def test_top_k_keeps_the_largest(numbers, k):
    flat = torch.tensor(numbers, dtype=torch.float32)
    out = through(TopK(k=k), flat)
    kept = sorted((abs(v) for v in numbers), reverse=True)[:k]
    assert float(out.abs().sum()) == sum(kept)
    assert set(out.tolist()) <= {*flat.tolist(), 0.0}


def test_all_of_it_is_the_vector_itself():
    flat = vector(33)
    for coder in (TopK(share=1), RandomK(share=1), RandomK(share=1, error_feedback=False)):
        assert torch.equal(through(coder, flat), flat)


def test_sign_of_zeros_is_zeros():
    assert torch.equal(through(Sign(), torch.zeros(11)), torch.zeros(11))


def test_sign_scale_does_not_overflow():
    flat = torch.full((100,), 6e4, dtype=torch.float16)
    assert torch.equal(through(Sign(), flat), flat)
    huge = torch.full((4,), 3e38)
    assert torch.equal(through(Sign(), huge), huge)


def test_random_places_follow_from_the_key():
    coder = RandomK(k=5)
    assert torch.equal(coder.places(100, 1), coder.places(100, 1))
    assert not torch.equal(coder.places(100, 1), coder.places(100, 2))
    drawn = torch.stack([coder.places(20, key) for key in range(2000)])
    assert all(len(set(row.tolist())) == 5 for row in drawn[:50])
    shares = torch.bincount(drawn.flatten(), minlength=20) / 2000
    assert float((shares - 0.25).abs().max()) < 0.05


def test_random_k_without_feedback_is_unbiased():
    flat, coder = vector(20, dtype=torch.float64), RandomK(k=5, error_feedback=False)
    mean = sum(through(coder, flat, key=key) for key in range(4000)) / 4000
    assert float((mean - flat).abs().max()) < 0.15
    assert float(through(coder, flat).abs().sum()) > float(
        through(RandomK(k=5), flat).abs().sum()
    )  # n / k times as much


@pytest.mark.parametrize("coder", [TopK(k=3), RandomK(k=3), TopK(share=1), RandomK(share=1)])
def test_sent_and_kept_are_the_vector_exactly(coder):
    feedback = ErrorFeedback()
    for step in range(20):
        flat = vector(17, seed=step) * 10 ** ((step % 5) - 2)
        before = torch.zeros(17) if feedback.residual is None else feedback.residual.clone()
        sent = coder.expand(feedback.compress(coder, flat, key=step), 17, key=step)
        assert torch.equal(sent + feedback.residual, flat + before)
        assert not bool(((sent != 0) & (feedback.residual != 0)).any())


def test_signs_sent_and_kept_are_the_vector_to_rounding():
    feedback, coder = ErrorFeedback(), Sign()
    for step in range(50):
        flat = vector(17, seed=step)
        before = torch.zeros(17) if feedback.residual is None else feedback.residual.clone()
        sent = coder.expand(feedback.compress(coder, flat), 17)
        torch.testing.assert_close(
            sent + feedback.residual, flat + before, rtol=0, atol=float(sent.abs().max()) * 3e-7
        )


@pytest.mark.parametrize("coder", ALL)
def test_nothing_is_lost_over_many_steps(coder):
    feedback = ErrorFeedback()
    given_, sent = torch.zeros(40, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    for step in range(30):
        flat = vector(40, seed=step, dtype=torch.float64)
        given_ += flat
        sent += coder.expand(feedback.compress(coder, flat, key=step), 40, key=step)
    torch.testing.assert_close(sent + feedback.residual, given_, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("coder", [TopK(k=3), RandomK(k=3), Sign()])
def test_what_takes_no_part_stays_owed(coder):
    feedback, flat = ErrorFeedback(), vector(12)
    feedback.compress(coder, flat, key=1)
    owed = feedback.residual.clone()
    where = torch.arange(12) < 5
    more = torch.where(where, vector(12, seed=1), 0.0)
    payload = feedback.compress(coder, more, key=2, where=where)
    assert [len(part) for part in payload] == [n for _, n in coder.layout(5, torch.float32)]
    sent = torch.zeros(12)
    sent[where] = coder.expand(payload, 5, key=2)
    torch.testing.assert_close(sent + feedback.residual, more + owed)
    assert torch.equal(feedback.residual[5:], owed[5:])
    nothing = feedback.compress(coder, more, key=3, where=torch.zeros(12, dtype=torch.bool))
    assert all(not bool(part.any()) for part in nothing)


def test_without_feedback_nothing_is_kept():
    feedback = ErrorFeedback(enabled=False)
    feedback.compress(TopK(k=1), vector(9))
    assert feedback.residual is None
    assert feedback.own_state() == {}


@pytest.mark.parametrize("coder", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_not_finite_is_refused(coder, bad):
    flat, feedback = vector(20), ErrorFeedback()
    feedback.compress(coder, flat, key=1)
    owed = feedback.residual.clone()
    flat[[4, 6]] = bad
    with pytest.raises(FloatingPointError, match=r"2 of 20 elements are not finite.*at 4"):
        feedback.compress(coder, flat, key=2)
    assert torch.equal(feedback.residual, owed)


@pytest.mark.parametrize("coder", ALL)
def test_what_is_no_vector_is_refused(coder):
    for wrong in (torch.zeros(2, 2), torch.zeros(3, dtype=torch.int64), torch.zeros(3) + 0j):
        with pytest.raises(ValueError, match="flat: shape"):
            coder.compress(wrong)


def test_restore_checks_size_and_dtype():
    feedback = ErrorFeedback()
    feedback.compress(TopK(k=1), vector(9))
    own, again = feedback.own_state(), ErrorFeedback()
    again.restore(own, 9, torch.float32)
    assert torch.equal(again.residual, feedback.residual)
    again.restore({}, 9, torch.float32)
    assert again.residual is None
    with pytest.raises(ValueError, match=r"9 elements of torch.float32 are owed"):
        again.restore(own, 10, torch.float32)
    with pytest.raises(ValueError, match=r"torch.float64"):
        again.restore(own, 9, torch.float64)
    with pytest.raises(ValueError, match="residual: shape"):
        again.restore({"residual": torch.zeros(3, 3)}, 9, torch.float32)
    with pytest.raises(ValueError, match="belong to another model"):
        feedback.compress(TopK(k=1), vector(10))


def test_a_message_of_another_size_is_refused():
    coder = TopK(k=2)
    message = coder.pack(coder.compress(vector(9)))
    with pytest.raises(ValueError, match=r"16 elements of torch.uint8, wanted 8 bytes"):
        TopK(k=1).unpack(message, 9, torch.float32)


@pytest.mark.parametrize("kind", [TopK, RandomK])
def test_settings_are_checked(kind):
    for wrong in ({"share": 0}, {"share": 1.5}, {"k": 0}):
        with pytest.raises(ValueError, match=r"share|k="):
            kind(**wrong)
    with pytest.raises(ValueError, match="one of the two"):
        kind(share=0.1, k=3)
    with pytest.raises(TypeError, match="wanted an integer"):
        kind(k=2.5)
    with pytest.raises(TypeError, match="wanted a number"):
        kind(share="0.1")


def test_names():
    assert as_compressor(None) is None
    assert as_compressor("top-k") == TopK(share=0.01)
    assert as_compressor("random-k") == RandomK(share=0.01)
    assert as_compressor("sign") == Sign()
    mine = TopK(k=4)
    assert as_compressor(mine) is mine
    with pytest.raises(ValueError, match=r"'top-k', 'random-k', 'sign'"):
        as_compressor("topk")
    with pytest.raises(TypeError, match=r"compression=0.1"):
        as_compressor(0.1)
    assert all(make().cite() and make().name == name for name, make in COMPRESSORS.items())
