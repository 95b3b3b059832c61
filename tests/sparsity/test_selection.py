from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtoolkit.sparsity import selection
from dtoolkit.sparsity.selection import largest, largest_of_all, ranks

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64)


def expected(values, count, among=None):
    """The same by a stable sort."""
    flat = (values.reshape(-1) + 0).tolist()
    there = [True] * len(flat) if among is None else among.reshape(-1).tolist()
    order = sorted((i for i in range(len(flat)) if there[i]), key=lambda i: (-flat[i], i))
    mask = torch.zeros(len(flat), dtype=torch.bool)
    mask[order[:count]] = True
    return mask.view(values.shape)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_largest_agrees_with_a_stable_sort(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    numbers = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 3.5, -3.5, 1e4, 6e-5, float("inf")])
    if not dtype.is_floating_point:
        numbers = st.integers(-5, 5)
    values = torch.tensor(data.draw(st.lists(numbers, min_size=1, max_size=40)), dtype=dtype)
    among = torch.tensor(
        data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    )
    count = data.draw(st.integers(0, int(among.sum())))
    assert torch.equal(largest(values, count, among), expected(values, count, among))
    assert torch.equal(
        largest(values, count % (len(values) + 1)), expected(values, count % (len(values) + 1))
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("piece", [64, 1 << 20])
def test_largest_of_random_numbers_in_pieces(monkeypatch, dtype, piece):
    monkeypatch.setattr(selection, "_PIECE", piece)
    values = (torch.randn(20, 33, generator=torch.Generator().manual_seed(0)) * 100).to(dtype)
    for count in (1, 2, 300, 659):
        assert torch.equal(largest(values, count), expected(values, count))


def test_equal_values_are_taken_by_index():
    for values in (torch.zeros(3, 5), torch.full((3, 5), 7.0, dtype=torch.bfloat16)):
        mask = largest(values, 6)
        assert mask.view(-1).nonzero().view(-1).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_million_bfloat16_magnitudes_with_few_distinct_values():
    values = torch.randn(1_000_003).bfloat16().abs()
    assert len(values.unique()) < 3000
    for count in (1, 99_999, 500_000, 1_000_002):
        mask = largest(values, count)
        assert int(mask.sum()) == count
        assert values[mask].min() >= values[~mask].max()


def test_more_than_16_million_elements():
    values = torch.arange(1000, dtype=torch.float32).repeat(17_000)
    mask = largest(values, 5_000_017)
    assert int(mask.sum()) == 5_000_017
    # 17,000 of each value: 294 values whole, and the first 2,017 of the next.
    assert bool(mask[values > 705].all())
    tied = mask[values == 705]
    assert int(tied.sum()) == 2_017
    assert bool(tied[:2_017].all())


def test_largest_of_several_tensors_takes_earlier_ones_first():
    first, second = torch.tensor([1.0, 3.0, 2.0]), torch.tensor([[3.0, 2.0], [0.0, 5.0]])
    one, two = largest_of_all([first, second], 4)
    assert one.tolist() == [False, True, True]
    assert two.tolist() == [[True, False], [False, True]]


def test_ranks_are_stable_and_put_others_last():
    values = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    among = torch.tensor([[True, True, True, True], [True, False, True, True]])
    assert ranks(values, among).tolist() == [[3, 0, 1, 2], [0, 3, 1, 2]]


def test_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="count=4: wanted 0 to 3"):
        largest(torch.zeros(5), 4, torch.tensor([True, True, True, False, False]))
