"""Plans: what moves serves every nonzero and no more, whatever the matrix and the layouts."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dtoolkit.arrays.layout import Layout
from dtoolkit.data import as_csr, uniform
from dtoolkit.errors import PlanError
from dtoolkit.spmm import blocks as blocks_module
from dtoolkit.spmm.plan import Plan, plan
from dtoolkit.spmm.strategies import NAMES, Assignment
from tests.spmm.simulation import simulate
from tests.spmm.strategies import EVERY, OVER_NODES, options


def matrix(shape, cells):
    cells = np.array(sorted(cells), dtype=np.int64)
    row, column = np.divmod(cells, max(shape[1], 1))
    values = np.arange(1.0, len(cells) + 1)
    return sparse.coo_array((values, (row, column)), shape=shape).tocsr()


@st.composite
def cases(draw):
    """A matrix, a number of parts, and layouts of its rows and columns."""
    n, m, parts = draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(1, 6))
    square = draw(st.booleans())
    m = n if square else m
    cells = draw(st.sets(st.integers(0, n * m - 1), max_size=30)) if n * m else set()

    def layout(rows):
        owners = st.lists(st.integers(0, parts - 1), min_size=rows, max_size=rows)
        own = owners.map(lambda owners: Layout.from_parts(owners, parts))
        mixed = st.integers(1, 4).map(lambda size: Layout.block_cyclic(rows, parts, size))
        return draw(st.one_of(st.just("block"), st.just("cyclic"), own, mixed))

    columns = None if square and draw(st.booleans()) else layout(m)
    return matrix((n, m), cells), parts, layout(n), columns


def chosen(data, parts):
    """A strategy that these ranks allow, on any nodes, with any replication."""
    numbers = st.lists(st.integers(0, parts), min_size=parts, max_size=parts)
    given = options(data.draw(st.sampled_from([*EVERY, "auto"])), parts, data.draw(numbers))
    if data.draw(st.booleans()):
        given.setdefault("nodes", data.draw(numbers))
    if given["strategy"] == "1.5d":
        divisors = [c for c in range(1, parts + 1) if parts % c == 0]
        given["replication"] = data.draw(st.sampled_from([None, *divisors]))
    return given


@settings(deadline=None, max_examples=300)
@given(cases(), st.data(), st.sampled_from([None, (4, 8), (8, 4)]))
def test_what_is_listed_gives_the_product(case, data, sizes):
    A, parts, rows, columns = case
    dtypes = {f"{x}_dtype": f"f{size}" for x, size in zip("bc", sizes or (4, 4), strict=True)}
    given = chosen(data, parts)
    made = plan(A, parts=parts, partition=rows, columns=columns, **given, **dtypes)
    made.check(A)
    assert all(stage.volume for stage in made.stages) or len(made.stages) == 1
    if made.nodes is not None:
        assert made.volume_between_nodes + made.volume_inside_nodes == made.volume
    B = np.random.default_rng(0).normal(size=(A.shape[1], 2))
    np.testing.assert_allclose(simulate(made, A, B), A @ B, atol=1e-12)
    assert made.traffic.sum() == made.volume
    assert not np.diag(made.traffic).any()
    assert made.work.sum() == made.nnz == A.nnz
    assert made.bytes_matrix(3, "f4", "f8").sum() == made.bytes(3, "f4", "f8")


@settings(deadline=None, max_examples=200)
@given(cases(), st.data(), st.booleans())
def test_the_transpose_needs_no_other_plan(case, data, weighted):
    A, parts, rows, columns = case
    dtypes = {"b_dtype": "f4", "c_dtype": "f8"} if weighted else {}
    given = chosen(data, parts)
    made = plan(A, parts=parts, partition=rows, columns=columns, **given, **dtypes)
    turned = made.transposed()
    T = as_csr(A.T)
    turned.check(T)
    B = np.random.default_rng(0).normal(size=(T.shape[1], 2))
    np.testing.assert_allclose(simulate(turned, T, B), T @ B, atol=1e-12)
    assert np.array_equal(turned.traffic, made.traffic.T)
    assert turned.volume == made.volume
    assert np.array_equal(turned.work, made.work)
    back = turned.transposed()
    assert np.array_equal(back.by_row, made.by_row)
    assert np.array_equal(back.b_ptr, made.b_ptr)
    assert (back.digest, back.rows, back.columns) == (made.digest, made.rows, made.columns)
    assert back.phases == made.phases == turned.phases[::-1]
    assert back.turned == made.turned
    for stage, before in zip(back.stages, made.stages, strict=True):
        for name in ("partial", "remote", "through"):
            assert np.array_equal(getattr(stage, name), getattr(before, name))


@settings(deadline=None, max_examples=60)
@given(cases(), st.data())
def test_saved_and_loaded_is_the_same(tmp_path_factory, case, data):
    A, parts, rows, columns = case
    made = plan(A, parts=parts, partition=rows, columns=columns, **chosen(data, parts))
    path = tmp_path_factory.mktemp("plans") / "a plan"
    made.save(path)
    for again in (Plan.load(path), pickle.loads(pickle.dumps(made))):
        again.check(A)
        assert repr(again) == repr(made)
        assert np.array_equal(again.by_row, made.by_row)
        assert (again.rows, again.columns) == (made.rows, made.columns)
        assert np.array_equal(again.traffic, made.traffic)
        assert again.phases == made.phases
        assert again.replication == made.replication
        assert (again.nodes is None) == (made.nodes is None)
        with pytest.raises(PlanError, match="pass A"):
            again.transposed()
        again.transposed(A).check(A.T)


@settings(deadline=None, max_examples=40)
@given(cases())
def test_groups_of_blocks_do_not_show(case):
    A, parts, rows, columns = case
    whole = plan(A, parts=parts, partition=rows, columns=columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "GROUP_NONZEROS", 3)
        pieces = plan(A, parts=parts, partition=rows, columns=columns)
    for name in ("by_row", "b_ptr", "b_index", "c_ptr", "c_index", "matching"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name))


def test_canonical_form_is_what_is_planned():
    row, column = np.array([2, 0, 0, 2, 1]), np.array([1, 3, 3, 0, 2])
    A = sparse.coo_array((np.array([1.0, 2, 3, 0, 5]), (row, column)), shape=(4, 4))
    made = plan(A, parts=2)
    assert made.nnz == 4  # one duplicate summed, the explicit zero kept
    for same in (A.tocsc(), A.toarray() + [[0], [0], [1], [0]] * np.eye(1, 4)):
        made.check(same)


def test_1024_parts_without_a_cluster():
    A = uniform(3000, 4, seed=1)
    joint = plan(A, parts=1024)
    joint.check(A)
    every = plan(A, parts=1024, strategy="oblivious")
    assert every.volume == 1023 * 3000
    assert every.b_index is None
    assert every.b_rows(5, 900).tolist() == every.columns.indices(5).tolist()
    assert every.b_rows(5, 5).size == every.c_rows(5, 900).size == 0
    assert every.transposed().c_rows(900, 5).tolist() == every.rows.indices(5).tolist()
    assert joint.volume <= every.volume


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (3, 3), (2, 9)])
def test_nothing_to_multiply(shape):
    A = sparse.csr_array(shape)
    whole = {"oblivious": 3 * shape[1], "1.5d": sum(shape), "2d": sum(shape)}
    for strategy in EVERY:
        made = plan(A, parts=4, **options(strategy, 4))
        made.check(A)
        assert made.work.sum() == 0
        assert made.volume == whole.get(strategy, 0)
        assert made.compare().loc["joint", "volume"] == 0
        assert "0 nonzeros" in repr(made)


def test_auto_says_what_it_chose_and_why():
    dense = plan(np.ones((8, 8)), parts=4, strategy="auto")
    assert dense.strategy == "oblivious"
    assert "auto chose all-gather" in dense.reason
    assert dense.reason in repr(dense)
    thin = plan(sparse.eye_array(8, k=1), parts=4, strategy="auto")
    assert thin.strategy == "joint"
    assert "by index" in thin.reason
    assert plan(np.ones((8, 8)), parts=4).reason == ""


def test_a_users_strategy():
    A = uniform(200, 5, seed=3)

    class Heavy:
        name = "heavy rows"

        def assign(self, blocks):
            assert blocks.nonzeros == len(blocks.target) == len(blocks.column)
            assert (blocks.target != blocks.source).all()
            return np.bincount(blocks.row_vertex)[blocks.row_vertex] > 1

    made = plan(A, parts=4, strategy=Heavy())
    made.check(A)
    assert made.strategy == "heavy rows"
    assert made.by_row.any()
    names = ["oblivious", "column", "row", "joint", "1.5d", "2d", "heavy rows"]
    assert list(made.compare().index) == names

    def column(blocks):
        return Assignment(np.zeros(blocks.nonzeros, dtype=bool))

    made = plan(A, parts=4, strategy=column)
    assert made.strategy == "column (own)"
    assert made.volume == plan(A, parts=4, strategy="column").volume
    assert "no source" in made.cite()


@pytest.mark.parametrize("nodes", [None, [0, 1, 1, 2]])
@pytest.mark.parametrize("strategy", EVERY)
def test_the_table_of_strategies_is_the_same_from_each(strategy, nodes):
    if nodes is None and strategy in OVER_NODES:
        return
    A = uniform(300, 6, seed=2)
    known = EVERY if nodes is not None else [name for name in EVERY if name not in OVER_NODES]
    table = plan(A, parts=4, strategy=strategy, nodes=nodes, partition="cyclic").compare()
    assert list(table.index) == list(known)
    for name in known:
        made = plan(A, parts=4, strategy=name, nodes=nodes, partition="cyclic")
        both = made.traffic.sum(axis=0) + made.traffic.sum(axis=1)
        assert table.loc[name, "volume"] == made.volume
        assert table.loc[name, "largest_sent"] == made.traffic.sum(axis=1).max()
        assert table.loc[name, "largest_moved"] == both.max()
        assert table.loc[name, "traffic_imbalance"] == pytest.approx(both.max() / both.mean())
        work = made.work
        assert table.loc[name, "work_imbalance"] == pytest.approx(work.max() / work.mean())
        if nodes is not None:
            assert table.loc[name, "between_nodes"] == made.volume_between_nodes


def test_bytes_and_memory_by_hand():
    # Two ranks, two rows each. Row 0 of C wants row 2 of B: one row moves.
    A = sparse.csr_array(np.array([[1.0, 0, 1, 0], [0, 0, 0, 0], [0] * 4, [0, 0, 0, 1]]))
    made = plan(A, parts=2)
    assert made.traffic.tolist() == [[0, 0], [1, 0]]
    assert made.b_rows(1, 0).tolist() == [2]
    assert made.bytes(5, np.float32) == made.bytes(5, torch.float32) == 20
    assert made.bytes(5, "bfloat16") == 10
    assert made.bytes(5, "float32", np.complex128) == 20
    assert made.bytes_matrix(5, np.float64).tolist() == [[0, 0], [40, 0]]
    # Rank 0: 2 nonzeros of 4 + 4 bytes, 3 row pointers of 4, 2 rows of B, 2 of C, 1 received.
    assert made.memory(5, np.float32).tolist() == [16 + 12 + 5 * 20, 8 + 12 + 5 * 20]


def test_weights_are_the_widths_of_the_dense_rows():
    A = matrix((4, 4), {2, 3, 6, 7, 8})  # rows 0 and 1 want both rows of B of rank 1
    assert plan(A, parts=2, b_dtype="f8", c_dtype="f8").weights == (1, 1)
    even = plan(A, parts=2, b_dtype="f4", c_dtype="f8")
    assert even.weights == (1, 2)
    assert not even.by_row.any()
    turned = plan(A, parts=2, b_dtype=torch.float64, c_dtype=torch.float32)
    assert turned.weights == (2, 1)
    assert turned.by_row.sum() == 5
    assert turned.bytes(1, "f8", "f4") < even.bytes(1, "f8", "f4")


def test_a_plan_refuses_another_matrix():
    A = uniform(50, 3, seed=0)
    made = plan(A, parts=3)
    for other in (uniform(50, 3, seed=1), uniform(51, 3, seed=0), A[:, :-1]):
        with pytest.raises(PlanError, match="plan again"):
            made.require(other)
    elsewhere = A.copy()
    elsewhere.data[:] = 7
    made.require(elsewhere)
    moved = as_csr(A.tocsc()[:, ::-1])
    with pytest.raises(PlanError, match="elsewhere"):
        made.require(moved)


def test_check_finds_what_was_tampered_with():
    A = uniform(120, 5, seed=4)
    made = plan(A, parts=4)
    off = made.rows.owner(np.repeat(np.arange(120), np.diff(A.indptr))) != made.columns.owner(
        A.indices
    )
    flipped = made.by_row.copy()
    flipped[np.flatnonzero(off)[0]] ^= True
    diagonal = made.by_row.copy()
    diagonal[np.flatnonzero(~off)[0]] = True
    (stage,) = made.stages
    index = made.b_index.copy()
    index[0] = (index[0] + 1) % 120
    matching = made.matching.copy()
    matching[0, 1] += 1
    column = plan(A, parts=4, strategy="column")
    tampered = [
        (replace(made, by_row=flipped), "need"),
        (replace(made, by_row=diagonal), "one rank"),
        (replace(made, by_row=made.by_row[:-1]), "by_row"),
        (replace(made, stages=(replace(stage, b=replace(stage.b, index=index)),)), "need"),
        (replace(made, matching=matching), "matching"),
        (replace(made, matched=np.sort(np.r_[made.matched[1:], made.matched[1]])), "too often"),
        (replace(made, matched=made.matched[1:]), "certificate has"),
        (replace(column, matched=made.matched, matching=made.matching), "the cover"),
        (replace(made, matched=np.r_[np.flatnonzero(~off)[:1], made.matched]), "no off-diagonal"),
    ]
    for broken, words in tampered:
        with pytest.raises(PlanError, match=words):
            broken.check(A)


def test_partitions_that_a_person_brings():
    A = uniform(12, 3, seed=0)
    for partition in (
        lambda A, parts: np.arange(A.shape[0]) % parts,
        lambda A, parts: Layout.cyclic(A.shape[0], parts),
        (np.arange(12) % 3).tolist(),
        torch.arange(12) % 3,
    ):
        assert plan(A, parts=3, partition=partition).rows == Layout.cyclic(12, 3)
    empty = plan(A, parts=3, partition=np.full(12, 1))
    assert empty.volume == 0
    assert empty.rows.sizes.tolist() == [0, 12, 0]


def test_a_matrix_changed_in_place_is_noticed():
    A = as_csr(uniform(30, 3, seed=0))
    made = plan(A, parts=3)
    A.indices[0] ^= 1
    with pytest.raises(PlanError, match="elsewhere"):
        made.transposed()


def test_text_names_what_is_planned_and_what_measured():
    made = plan(uniform(40, 3, seed=0), parts=4)
    text = repr(made)
    for words in ("40 x 40", "4 parts", "joint", "planned", "against", "oblivious 120", "measured"):
        assert words in text
    assert "2512.20178" in made.cite()
    assert set(NAMES) == {*EVERY, "auto"}
