"""What partitioners survive, mend, and refuse."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from scipy import sparse

import dtoolkit as dt
from dtoolkit.arrays import Layout, partitioners
from dtoolkit.arrays.partitioners import (
    Metis,
    PartitionWarning,
    by_name,
)
from dtoolkit.arrays.partitioners.mending import mended
from dtoolkit.errors import DtoolkitError, LayoutError, MissingPackage
from tests.arrays.partitioning import ALL, SEEDED, TUNED, named, pairs, ring


@pytest.mark.parametrize("partitioner", ALL, ids=named)
@pytest.mark.parametrize(
    "A",
    [
        sparse.csr_array((40, 40)),
        sparse.eye_array(40).tocsr(),
        pairs((40, 40), [(3, 4), (4, 3)]),
        sparse.csr_array((40, 9)),
        sparse.csr_array((np.zeros(40), (np.arange(40), np.arange(40)[::-1])), shape=(40, 40)),
        sparse.csr_array(np.ones((40, 40))),
        sparse.csr_array(np.tril(np.ones((40, 40)), -1) - np.triu(np.ones((40, 40)), 1)),
        ring(40) * 1j,
    ],
    ids=["empty", "diagonal", "isolated", "rectangular", "zeros", "full", "skew", "complex"],
)
def test_odd_matrices(partitioner, A):
    rows = partitioner(A, 4)
    assert np.bincount(rows, minlength=4).min() >= 1
    made = dt.plan(A, parts=4, partition=partitioner)
    made.check(A)
    np.testing.assert_array_equal(made.rows.owner(np.arange(40)), rows)


@pytest.mark.parametrize("partitioner", ALL, ids=named)
def test_1024_parts(partitioner):
    A = dt.data.uniform(1500, 3, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartitionWarning)
        rows = partitioner(A, 1024)
    sizes = np.bincount(rows, minlength=1024)
    assert len(sizes) == 1024
    assert sizes.min() >= 1
    np.testing.assert_array_equal(partitioner(A, 2000), np.arange(1500))


@pytest.mark.parametrize("partitioner", [by_name("metis"), by_name("hypergraph")], ids=named)
def test_nothing_is_printed(partitioner, capfd):
    partitioner(ring(100), 4)
    partitioner(ring(3), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartitionWarning)
        partitioner(ring(100), 60)
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


@pytest.mark.parametrize(("name", "module"), [("metis", "pymetis"), ("hypergraph", "mtkahypar")])
def test_a_missing_package_is_told_with_the_line_to_type(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    A = ring(16)
    with pytest.raises(MissingPackage, match=r'pip install "dtoolkit\[partition\]"') as caught:
        dt.plan(A, parts=4, partition=name)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, DtoolkitError)
    assert caught.value.package == module
    assert caught.value.extra == "partition"
    assert module in str(caught.value)
    dt.plan(A, parts=4, partition="balanced")


def test_errors_name_the_argument():
    A = ring(8)
    for kind in SEEDED:
        for seed in (-1, 1.5, "1", True, None):
            with pytest.raises(LayoutError, match="seed="):
                kind(seed=seed)
    for kind in TUNED:
        for imbalance in (-0.1, np.nan, np.inf, "0.1", True, None):
            with pytest.raises(LayoutError, match="imbalance="):
                kind(imbalance=imbalance)
    for partitioner in ALL:
        for parts in (0, -1, 2.5, True, "4", 2**31):
            with pytest.raises(LayoutError, match="parts="):
                partitioner(A, parts)
    with pytest.raises(LayoutError, match="rows= lays out 5 rows; wanted 8"):
        Metis().columns(A, np.zeros(5, int))
    with pytest.raises(LayoutError, match="rows= is made for 2 parts; wanted parts=3"):
        Metis().columns(A, Layout.block(8, 2), 3)
    with pytest.raises(LayoutError, match=r"partition='metis5' is not known: .*hypergraph"):
        by_name("metis5")


def test_lost_rows_and_empty_parts_are_mended_and_told():
    weights = np.array([5, 4, 3, 2, 1, 1])
    with pytest.warns(PartitionWarning, match=r"no part to 2 of 6 rows \(row 1: -1\)"):
        rows = mended([0, -1, 0, 1, 1, 7], weights, 2, "some")
    assert rows.tolist() == [0, 1, 0, 1, 1, 1]
    with pytest.warns(PartitionWarning, match="left 2 of 4 parts empty"):
        rows = mended([0, 0, 0, 0, 1, 1], weights, 4, "some")
    assert np.bincount(rows, minlength=4).min() == 1
    assert rows[0] == 0
    for wrong in ([0, 1], [[0] * 6], [0.0] * 6):
        with pytest.raises(LayoutError, match="partitioner 'some' gave"):
            mended(wrong, weights, 2, "some")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mended([0, 1], np.array([1, 1]), 4, "some").tolist() == [0, 1]
        assert mended([1, 0, 1], np.array([1, 1, 1]), 2, "some").tolist() == [1, 0, 1]


def test_a_library_that_fails_is_mended(monkeypatch):
    monkeypatch.setattr(partitioners.metis, "_best", lambda *a: np.array([0] * 99 + [-1]))
    with pytest.warns(PartitionWarning) as told:
        rows = Metis()(ring(100), 4)
    assert len(told) == 2
    assert np.bincount(rows, minlength=4).min() >= 1


def test_a_callable_that_leaves_a_part_empty_is_told():
    def lazy(A, parts):
        return np.arange(A.shape[0]) % 2

    with pytest.warns(PartitionWarning, match="partition=lazy left 2 of 4 parts without rows"):
        dt.plan(ring(8), parts=4, partition=lazy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dt.plan(ring(3), parts=4, partition=lambda A, parts: np.arange(3))
