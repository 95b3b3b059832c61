"""Layouts: every kind agrees with itself, with NumPy, and with the others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.errors import LayoutError


@st.composite
def layouts(draw):
    n, parts = draw(st.integers(0, 40)), draw(st.integers(1, 7))
    kind = draw(st.sampled_from(["block", "cyclic", "block-cyclic", "parts"]))
    if kind == "parts":
        owners = draw(st.lists(st.integers(0, parts - 1), min_size=n, max_size=n))
        return Layout.from_parts(owners, parts)
    return Layout(kind, n, parts, draw(st.integers(1, 50)))


@given(layouts())
def test_owner_local_indices_and_sizes_agree(layout):
    rows = np.arange(layout.n)
    owner, local = layout.owner(rows), layout.local(rows)
    assert owner.dtype == np.int32
    assert local.dtype == np.int64
    assert layout.sizes.sum() == layout.n
    assert np.array_equal(np.bincount(owner, minlength=layout.parts), layout.sizes)
    for part in range(layout.parts):
        mine = layout.indices(part)
        assert mine.dtype == np.int64
        assert np.array_equal(mine, np.flatnonzero(owner == part))
        assert np.array_equal(local[mine], np.arange(layout.sizes[part]))
    assert layout.contiguous == bool(np.all(np.diff(owner) >= 0))


@given(layouts(), layouts())
def test_equal_where_every_row_is_on_the_same_rank(one, other):
    vectors = [layout.owner(np.arange(layout.n)) for layout in (one, other)]
    same = one.parts == other.parts and np.array_equal(*vectors)
    assert (one == other) == same
    assert not same or hash(one) == hash(other)
    again = Layout.from_parts(vectors[0], one.parts)
    assert again == one
    assert again.digest == one.digest


@given(st.integers(0, 50), st.integers(1, 9))
def test_block_is_array_split(n, parts):
    layout = Layout.block(n, parts)
    pieces = np.array_split(np.arange(n), parts)
    assert all(np.array_equal(layout.indices(p), piece) for p, piece in enumerate(pieces))


@pytest.mark.parametrize(
    ("layout", "owners"),
    [
        (Layout.block(7, 3), [0, 0, 0, 1, 1, 2, 2]),
        (Layout.block(2, 4), [0, 1]),
        (Layout.cyclic(5, 2), [0, 1, 0, 1, 0]),
        (Layout.block_cyclic(7, 2, 2), [0, 0, 1, 1, 0, 0, 1]),
        (Layout.block_cyclic(3, 2, 10), [0, 0, 0]),
        (Layout.from_parts([2, 0, 2]), [2, 0, 2]),
    ],
)
def test_worked_owners(layout, owners):
    assert layout.owner(np.arange(layout.n)).tolist() == owners


@pytest.mark.parametrize("kind", ["block", "cyclic", "block-cyclic"])
def test_regular_layouts_need_no_memory_of_their_length(kind):
    n, parts = 2**40 + 12345, 1000
    layout = Layout(kind, n, parts, 4096)
    assert int(layout.sizes.sum()) == n
    rows = np.array([0, 1, 2**31 + 7, 2**39 + 1, n - 1])
    owner, local = layout.owner(rows), layout.local(rows)
    assert (owner >= 0).all()
    assert (owner < parts).all()
    assert (local < layout.sizes[owner]).all()
    # The inverse by the definition of each kind, in Python's unbounded integers.
    for row, p, at in zip(rows.tolist(), owner.tolist(), local.tolist(), strict=True):
        if kind == "block":
            start = p * (n // parts) + min(p, n % parts)
            assert start + at == row
        else:
            block = layout.block_size
            assert (at // block * parts + p) * block + at % block == row
    assert layout != Layout.block(n, parts + 1)
    assert pickle.loads(pickle.dumps(layout)) == layout


def test_scalars_and_empty_lists():
    layout = Layout.cyclic(5, 2)
    assert int(layout.owner(3)) == 1
    assert int(layout.local(np.int64(4))) == 2
    assert layout.owner([]).shape == (0,)
    assert layout.owner([[0, 1], [2, 3]]).tolist() == [[0, 1], [0, 1]]


def test_different_kinds_that_lay_the_same():
    assert Layout.cyclic(4, 4) == Layout.block(4, 4)
    assert Layout.block_cyclic(6, 3, 2) == Layout.block(6, 3)
    assert Layout.block_cyclic(6, 3, 1) == Layout.cyclic(6, 3)
    assert Layout.block(6, 3) != Layout.block(6, 4)
    assert Layout.block(6, 1) == Layout.cyclic(6, 1)
    assert Layout.block(3, 2) != "block"
    assert len({Layout.cyclic(9, 3), Layout.from_parts(np.arange(9) % 3)}) == 1


def test_the_vector_is_its_own():
    vector = np.array([0, 1, 1])
    layout = Layout.from_parts(vector, 2)
    vector[0] = 1
    assert layout.owner(0) == 0
    assert not layout.vector.flags.writeable
    layout.local([0, 1])
    assert "_positions" not in layout.__getstate__()
    assert pickle.loads(pickle.dumps(layout)) == layout


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Layout.block(-1, 2), "n=-1"),
        (lambda: Layout.block(3, 0), "parts=0"),
        (lambda: Layout.block(3, 2.0), "parts=2.0"),
        (lambda: Layout.block(3, True), "parts=True"),
        (lambda: Layout.block_cyclic(3, 2, 0), "block_size=0"),
        (lambda: Layout("diagonal", 3, 2, 1), "diagonal"),
        (lambda: Layout("parts", 3, 2, 0), "vector="),
        (lambda: Layout("block", 3, 2, 0, np.zeros(3, np.int32)), "vector="),
        (lambda: Layout.from_parts([0, 2], 2), "row 1 on part 2"),
        (lambda: Layout.from_parts([0, -1], 2), "row 1 on part -1"),
        (lambda: Layout.from_parts([0.0, 1.0]), "float64"),
        (lambda: Layout.from_parts([True, False]), "bool"),
        (lambda: Layout.from_parts([[0, 1]]), "shape"),
        (lambda: Layout.from_parts([[0], [1, 2]]), "no array of integers"),
        (lambda: Layout.from_parts(np.array([2**40]), 2), "part 1099511627776"),
        (lambda: Layout.block(3, 2).owner(3), "index 3"),
        (lambda: Layout.block(3, 2).local([-1]), "index -1"),
        (lambda: Layout.block(0, 2).owner(0), "index 0"),
        (lambda: Layout.block(3, 2).owner([0.5]), "index has dtype float64"),
        (lambda: Layout.block(3, 2).indices(2), "part=2"),
        (lambda: as_layout("diagonal", 3, 2, name="partition"), "partition='diagonal'"),
        (lambda: as_layout(Layout.block(4, 2), 3, 2), "4 rows; wanted 3"),
        (lambda: as_layout(Layout.block(3, 3), 3, 2), "3 parts; wanted parts=2"),
        (lambda: as_layout([0, 1], 3, 2), "shape"),
    ],
)
def test_errors_name_what_came(make, words):
    with pytest.raises(LayoutError, match=words.replace("(", r"\(")):
        make()


def test_as_layout_takes_what_a_person_writes():
    assert as_layout("block", 5, 2) == Layout.block(5, 2)
    assert as_layout("cyclic", 5, 2) == Layout.cyclic(5, 2)
    assert as_layout([0, 1, 0, 1, 0], 5, 2) == Layout.cyclic(5, 2)
    layout = Layout.block_cyclic(5, 2, 2)
    assert as_layout(layout, 5, 2) is layout


def test_text_says_kind_and_sizes():
    assert repr(Layout.block(7, 3)) == "Layout(block, n=7, parts=3; 2 to 3 rows a part)"
