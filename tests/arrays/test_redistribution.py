"""Moving between layouts and transposing: same elements, and exactly the bytes that must move."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dtoolkit as dt
from dtoolkit.arrays import Layout, moved_bytes
from dtoolkit.arrays.products import gather_rows
from dtoolkit.arrays.redistribution import move_rows
from tests import sockets
from tests.arrays.helpers import few, laid_out, layouts, matrix, same


@few
@given(data=st.data())
def test_rows_that_change_owner_are_sent_once(cluster_of, data):
    cluster = cluster_of(3)
    n, source = data.draw(laid_out(3, rows=20))
    target = data.draw(st.sampled_from(layouts(n, 3)))
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.complex128]))
    X = matrix(n, 3).astype(dtype)
    x = dt.distribute(cluster, X, source)
    cluster.trace.clear()
    y = x.redistribute(target)
    rows = np.arange(n)
    want = np.zeros((3, 3), np.int64)
    np.add.at(want, (source.owner(rows), target.owner(rows)), 3 * X.itemsize)
    np.fill_diagonal(want, 0)
    np.testing.assert_array_equal(cluster.trace.matrix(phase="redistribute"), want)
    np.testing.assert_array_equal(moved_bytes(x, target), want)
    assert cluster.trace.total == want.sum()
    assert y.layout == target
    same(y, X, exact=True)


def test_the_kernel_counts_what_the_trace_says(cluster3):
    x = dt.arrays.random(cluster3, (180_000, 8))
    x.redistribute("cyclic")  # the group forms
    moved = sockets.counted(cluster3, lambda: x.redistribute("cyclic"))
    np.testing.assert_array_equal(cluster3.trace.matrix(), moved_bytes(x, "cyclic"))
    sockets.hold(moved, moved_bytes(x, "cyclic"))


def test_vectors_masks_and_bfloat16_move_too(cluster3):
    v = dt.distribute(cluster3, np.arange(13.0))
    same(v.redistribute("cyclic"), np.arange(13.0), exact=True)
    same((v > 5).redistribute("cyclic"), np.arange(13) > 5, exact=True)
    same(v.astype("bfloat16").redistribute(Layout.block_cyclic(13, 3, 2)), np.arange(13.0))
    assert v.redistribute("block") is v
    with pytest.raises(dt.errors.LayoutError, match="lays out 4 rows"):
        v.redistribute(Layout.block(4, 3))
    with pytest.raises(dt.errors.LayoutError, match="4 parts"):
        v.redistribute(Layout.block(13, 4))


@few
@given(data=st.data())
def test_transposes(cluster_of, data):
    cluster = cluster_of(3)
    n, source = data.draw(laid_out(3))
    k = data.draw(st.integers(0, 7))
    target = data.draw(st.sampled_from(layouts(k, 3)))
    X = matrix(n, k)
    x = dt.distribute(cluster, X, source)
    cluster.trace.clear()
    turned = x.transpose(target)
    assert turned.shape == (k, n)
    assert cluster.trace.total == 0  # nothing moves until the elements are needed
    same(turned, X.T, exact=True)
    kept = sum(int(source.sizes[p] * target.sizes[p]) for p in range(3))
    assert cluster.trace.matrix(phase="transpose").sum() == (n * k - kept) * 8
    same(turned.T, X, exact=True)
    same(turned + 1, X.T + 1)


def test_a_transpose_keeps_what_was_there_when_it_was_asked_for(cluster2):
    X = matrix(5, 3)
    x = dt.distribute(cluster2, X)
    turned = x.T
    x += 1
    same(turned, X.T, exact=True)
    same(turned @ x, X.T @ (X + 1))
    turned *= 2
    same(turned, 2 * X.T, exact=True)
    late = x.T
    x.changed()  # as after a function that wrote into the shards
    with pytest.raises(dt.errors.LayoutError, match="before its transpose"):
        late.to_numpy()


def test_functions_of_a_launch_can_move_rows_themselves(cluster3):
    layout, target = Layout.block(10, 3), Layout.cyclic(10, 3)
    x = dt.distribute(cluster3, np.arange(10.0), layout)

    def mine(ctx, shard):
        moved = move_rows(ctx, shard, layout, target)
        whole = gather_rows(ctx, moved, target)
        return moved.tolist(), torch.equal(whole, torch.arange(10.0, dtype=torch.float64))

    for rank, (moved, whole) in enumerate(cluster3.run(mine, x)):
        assert moved == target.indices(rank).tolist()
        assert whole
