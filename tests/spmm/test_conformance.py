"""SHIRO, arXiv 2512.20178: the numbers that any right implementation gives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import maximum_bipartite_matching

from dtoolkit.data import hubs, read_matrix, rmat, uniform
from dtoolkit.spmm.plan import plan

from .test_cover import by_integer_program

N, PARTS = 16384, 16

# Rows sent for block rows over 16 ranks, by family: column, joint, and how far column and row may
# be from it by seed (2% unless said otherwise).
REFERENCE = {
    "rmat": (lambda seed: rmat(N, 16, seed=seed), 62_015, 40_666, 0.02),
    "uniform": (lambda seed: uniform(N, 16, seed=seed), 155_653, 133_863, 0.02),
    "hubs": (lambda seed: hubs(N, 64, 64, seed=seed), 93_438, 1_920, 0.04),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("family", REFERENCE)
def test_reference_volumes(family, seed):
    make, simple, least, tolerance = REFERENCE[family]
    A = make(seed)
    joint = plan(A, parts=PARTS)
    joint.check(A)
    table = joint.compare()
    assert table.loc["oblivious", "volume"] == 245_760 == (PARTS - 1) * N
    assert table.loc["column", "volume"] == pytest.approx(simple, rel=tolerance)
    assert table.loc["row", "volume"] == pytest.approx(simple, rel=tolerance)
    assert joint.volume == pytest.approx(least, rel=0.02)
    assert joint.matching.sum() == joint.volume


def off_diagonal(A, made):
    """Blocks (p, q) of A as CSR, but for the diagonal ones."""
    for p in range(made.parts):
        mine = A[made.rows.indices(p)].tocsc()
        for q in range(made.parts):
            if q != p:
                yield p, q, mine[:, made.columns.indices(q)].tocsr()


@pytest.mark.parametrize("partition", ["block", "cyclic"])
@pytest.mark.parametrize("family", REFERENCE)
def test_every_block_moves_its_maximum_matching(family, partition):
    A = {"rmat": rmat, "uniform": uniform}.get(family, lambda n, d, seed: hubs(n, 4, 4, seed=seed))(
        512, 6, seed=5
    )
    made = {
        name: plan(A, parts=6, partition=partition, strategy=name)
        for name in ("joint", "column", "row")
    }
    joint = made["joint"]
    for p, q, block in off_diagonal(A, joint):
        size = int((maximum_bipartite_matching(block) >= 0).sum())
        assert joint.matching[p, q] == joint.traffic[q, p] == size
        columns, rows = len(np.unique(block.indices)), np.count_nonzero(np.diff(block.indptr))
        assert made["column"].traffic[q, p] == columns
        assert made["row"].traffic[q, p] == rows
        assert size <= min(columns, rows)


@pytest.mark.parametrize(("b_dtype", "c_dtype"), [("f4", "f4"), ("f4", "f8"), ("f8", "f4")])
def test_tiny_blocks_agree_with_an_integer_program(b_dtype, c_dtype):
    sizes = np.dtype(b_dtype).itemsize, np.dtype(c_dtype).itemsize
    for seed in range(6):
        A = uniform(24, 3, seed=seed)
        made = plan(A, parts=3, partition="cyclic", b_dtype=b_dtype, c_dtype=c_dtype)
        moved = made.bytes_matrix(1, b_dtype, c_dtype)
        for p, q, block in off_diagonal(A, made):
            row, column = block.nonzero()
            least = by_integer_program(column, row, block.shape[1], block.shape[0], sizes)
            assert moved[q, p] == least


def test_each_nonzero_is_served_once():
    A = rmat(1024, 8, seed=2)
    made = plan(A, parts=7, partition="cyclic")
    row, column = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)), A.indices
    target, source = made.rows.owner(row), made.columns.owner(column)
    for p in range(7):
        for q in range(7):
            here = (target == p) & (source == q)
            by_row = made.by_row[here]
            if p == q:
                assert not by_row.any()
                continue
            assert np.array_equal(np.unique(column[here][~by_row]), made.b_rows(q, p))
            assert np.array_equal(np.unique(row[here][by_row]), made.c_rows(q, p))


@pytest.mark.parametrize("name", ["west0067.mtx", "lp_afiro.mtx", "karate.mtx", "jagmesh7.mtx"])
def test_real_matrices(data_root, name):
    A = read_matrix(data_root / "mtx" / name)
    for parts in (1, 2, 3, 4, 100):
        joint = plan(A, parts=parts)
        joint.check(A)
        assert joint.volume == joint.compare()["volume"].min()
