"""What may be multiplied with what: dense operands of any form, layouts, plans, refusals."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.arrays import Layout
from dtoolkit.spmm import RedistributionWarning
from dtoolkit.spmm.multiply import multiply
from tests.spmm.reference import assert_product, same_bits
from tests.spmm.strategies import EVERY, options
from tests.spmm.test_product import check, dense, example

M, N = 41, 30


@pytest.fixture(scope="module")
def pair(cluster_of):
    """A matrix, and it on three workers."""
    A = example(M, N)
    return A, dt.distribute(cluster_of(3), A, dt.plan(A, parts=3, partition="cyclic"))


def _read_only(B):
    B = B.copy()
    B.setflags(write=False)
    return B


B = dense(N, 4)
FORMS = {
    "column slice": dense(N, 9)[:, 2:6],
    "every second row": dense(2 * N, 4)[::2],
    "rows backwards": B[::-1],
    "columns backwards": B[:, ::-1],
    "Fortran": np.asfortranarray(B),
    "Fortran slice": np.asfortranarray(dense(N + 3, 9))[3:, ::2],
    "expanded row": torch.from_numpy(dense(1, 4)).expand(N, 4),
    "expanded column": torch.from_numpy(dense(N, 1)).expand(N, 4),
    "broadcast": np.broadcast_to(dense(4), (N, 4)),
    "transposed tensor": torch.from_numpy(dense(4, N)).t(),
    "conjugate view": torch.from_numpy(dense(N, 4, np.complex128)).conj(),
    "imaginary view": torch.from_numpy(dense(N, 4, np.complex128)).conj().imag,
    "recorded by autograd": torch.from_numpy(dense(N, 4)).requires_grad_(),
    "read-only": _read_only(B),
    "other byte order": B.astype(">f8"),
    "nested lists": B.tolist(),
    "float16": B.astype(np.float16),
    "float16 tensor": torch.from_numpy(B).half(),
    "longdouble": B.astype(np.longdouble),
    "bool": B > 0,
    "int8": (B * 20).astype(np.int8),
    "uint16": (abs(B) * 900).astype(np.uint16),
    "int64": (B * 1e6).astype(np.int64),
    "uint64": np.full((N, 4), 2**63 + 2**40, np.uint64),
    "int32 tensor": torch.from_numpy((B * 100).astype(np.int32)),
    "vector": dense(N),
    "strided vector": dense(N, 3)[:, 1],
    "one column": dense(N, 1),
}


def here(x):
    """In NumPy, in native byte order; what SciPy has no product for, in double precision."""
    if isinstance(x, torch.Tensor):
        x = x.detach().resolve_conj().resolve_neg().numpy()
    x = np.array(x)
    kept = x.dtype.newbyteorder("=") if x.dtype.itemsize in (4, 8, 16) else np.float64
    return x.astype(kept if x.dtype.kind == "c" or kept in ("f4", "f8") else np.float64)


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_dense_operand(pair, form):
    A, dA = pair
    given = FORMS[form]
    before = here(given)
    got = dA @ given
    assert_product(got, A, before)
    laid = dt.distribute(dA.cluster, given, dA.plan)
    assert same_bits((dA @ laid).to_numpy(), got.to_numpy())
    assert same_bits(here(given), before)


def test_an_operand_on_another_layout_is_moved_and_that_is_said(pair):
    A, dA = pair
    cluster = dA.cluster
    elsewhere = [Layout.cyclic(N, 3), Layout.block_cyclic(N, 3, 4), np.arange(N) // 10 % 2]
    for layout in elsewhere:
        dB = dt.distribute(cluster, B, layout)
        wanted = np.zeros((3, 3), np.int64)
        np.add.at(wanted, (dB.layout.owner(range(N)), dA.columns.owner(range(N))), B[0].nbytes)
        np.fill_diagonal(wanted, 0)
        cluster.trace.clear()
        with pytest.warns(RedistributionWarning, match="redistribute") as caught:
            C = dA @ dB
        assert caught[0].filename == __file__
        assert_product(C, A, B)
        trace = cluster.trace
        np.testing.assert_array_equal(trace.matrix(phase="redistribute"), wanted)
        np.testing.assert_array_equal(
            trace.matrix(phase="spmm"), dA.plan.bytes_matrix(4, np.float64)
        )
        with pytest.warns(RedistributionWarning) as caught:
            assert_product(dA.T @ dt.distribute(cluster, dense(M)), A.T, dense(M))
        assert caught[0].filename == __file__


def test_the_same_layout_in_other_words_is_not_moved(pair, recwarn):
    A, dA = pair
    assert dA.columns == Layout.block(N, 3)
    for layout in (
        dA.columns.owner(np.arange(N)),
        Layout.block_cyclic(N, 3, 10),
        Layout.from_parts(np.repeat(range(3), 10), 3),
    ):
        dB = dt.distribute(dA.cluster, B, layout)
        dA.cluster.trace.clear()
        assert_product(dA @ dB, A, B)
        assert dA.cluster.trace.matrix(phase="redistribute").sum() == 0
    assert not [w for w in recwarn if w.category is RedistributionWarning]


def by_nonzeros(A, parts):
    """A user's own partitioner: rows dealt by their number of nonzeros."""
    order = np.argsort(np.diff(A.indptr), kind="stable")
    owners = np.empty(A.shape[0], int)
    owners[order] = np.arange(A.shape[0]) % parts
    return owners


class Alternating:
    """A user's own strategy: every second off-diagonal nonzero goes by row."""

    name = "alternating"

    def assign(self, blocks):
        return np.arange(blocks.nonzeros) % 2 == 0


class AllButOne:
    """Another one, which moves all but one rank's blocks by row."""

    name = "all but one"

    def assign(self, blocks):
        return blocks.target != 0


@pytest.mark.parametrize("strategy", [*EVERY, "auto", Alternating()])
@pytest.mark.parametrize(
    ("partition", "columns"),
    [
        ("block", "cyclic"),
        ("cyclic", "block"),
        (by_nonzeros, lambda A, parts: Layout.block_cyclic(A.shape[1], parts, 3)),
        (np.full(M, 2), np.zeros(N, int)),
        (np.arange(M) % 2, np.arange(N) % 2 + 1),
    ],
    ids=["block-cyclic", "cyclic-block", "own", "one rank asks another", "a part without"],
)
def test_layouts_and_strategies(cluster3, partition, columns, strategy):
    A = example(M, N)
    check(cluster3, A, strategy=strategy, partition=partition, columns=columns)
    check(cluster3, A, strategy=strategy, partition=partition, columns=columns, b_dtype="f4")


@pytest.mark.parametrize("strategy", [Alternating(), AllButOne()], ids=["alternating", "but one"])
def test_strategies_of_a_user_over_four_workers(cluster4, strategy):
    check(cluster4, example(60, 60), strategy=strategy)
    check(cluster4, dt.data.rmat(256, 6, seed=0, dtype=np.float64), strategy=strategy)


@pytest.mark.parametrize("strategy", EVERY)
def test_a_plan_from_a_file(cluster3, tmp_path, strategy):
    A = example(M, N)
    dt.plan(A, parts=3, **options(strategy, 3), partition=by_nonzeros).save(tmp_path / "plan.npz")
    plan = dt.spmm.Plan.load(tmp_path / "plan.npz")
    dA = dt.distribute(cluster3, A, plan)
    assert_product(dA @ B, A, B)
    assert_product(dA.T @ dense(M, 2), A.T, dense(M, 2))
    assert (dA.to_scipy() != A).nnz == 0


@pytest.fixture
def silent(cluster3):
    """Nothing is sent and nothing is held more than before."""
    cluster3.run(lambda ctx: None)  # what is to be forgotten is told along with a launch
    launches, held = [], cluster3.held
    submit = cluster3._gang.submit

    def counted(*args, **kwargs):
        launches.append(args)
        return submit(*args, **kwargs)

    cluster3._gang.submit = counted
    cluster3.trace.clear()
    yield cluster3
    cluster3._gang.submit = submit
    assert launches == []
    assert len(cluster3.trace) == 0
    assert cluster3.held == held


def test_plans_of_another_matrix_or_cluster_are_refused(silent):
    A = example(M, N)
    other = A.copy()
    other.indices[0] = N - 1 - other.indices[0]
    PlanError = dt.errors.PlanError
    with pytest.raises(PlanError, match="nonzeros elsewhere"):
        dt.distribute(silent, A, dt.plan(other, parts=3))
    with pytest.raises(PlanError, match="this plan was made for 41 x 31"):
        dt.distribute(silent, A, dt.plan(example(M, N + 1), parts=3))
    for x in (A, B):
        with pytest.raises(PlanError, match="4 parts and the cluster has 3 ranks"):
            dt.distribute(silent, x, dt.plan(A, parts=4))
    with pytest.raises(dt.errors.LayoutError, match="30 columns"):
        dt.distribute(silent, dense(M), dt.plan(A, parts=3))
    with pytest.raises(dt.errors.LayoutError):
        dt.distribute(silent, A, Layout.block(M, 4))
    with pytest.raises(dt.errors.LayoutError, match="wanted integers"):
        dt.distribute(silent, A, 7.5)


@pytest.mark.parametrize(
    "wrong", [dense(M), dense(N + 1, 2), np.float64(2), 3.0, dense(N, 2)[None]]
)
def test_operands_of_another_shape_are_refused(pair, silent, wrong):
    _, dA = pair
    with pytest.raises(ValueError, match=r"30|number"):
        dA @ wrong


@pytest.mark.parametrize(
    "wrong", [example(N, 3), "text", np.full((N, 2), "a"), [object()] * N, None, [[1, 2], [3]]]
)
def test_operands_that_are_no_dense_numbers_are_refused(pair, silent, wrong):
    _, dA = pair
    with pytest.raises((TypeError, ValueError), match=r"^B |unsupported operand"):
        dA @ wrong


@pytest.fixture
def square(cluster3):
    return dt.distribute(cluster3, example(N, N))


def test_a_product_of_two_sparse_arrays_is_refused(pair, square, silent):
    _, dA = pair
    for left, right in ((dA, square), (square, square), (square.T, square)):
        with pytest.raises(TypeError, match=r"two sparse arrays is not supported.*to_scipy\(\)"):
            left @ right


def test_an_unknown_kernel_is_refused_before_the_launch(pair, silent):
    _, dA = pair
    for kernel in ("foo", "", 3):
        with pytest.raises(ValueError, match=rf"kernel={kernel!r} is not known: there are .*torch"):
            multiply(dA, B, kernel=kernel)


def test_arrays_of_another_cluster_are_refused(pair, cluster2):
    _, dA = pair
    there = dt.distribute(cluster2, B)
    with pytest.raises(dt.errors.LayoutError, match="different clusters"):
        dA @ there


def test_what_does_not_fit_is_refused_by_rank(pair, silent):
    _, dA = pair
    limit = min(m.memory for m in silent.workers)
    k = limit // (8 * 5)
    huge = torch.zeros(1, dtype=torch.float64).expand(N, k)
    with pytest.raises(MemoryError, match=r"columns needs .* MiB on rank 0, whose limit is"):
        dA @ huge
    with pytest.raises(MemoryError, match="MiB on rank 0"):
        dt.distribute(silent, huge, dA.plan)


def test_graphs_and_data_sets_are_matrices(cluster3):
    graph = networkx.karate_club_graph()
    A = networkx.to_scipy_sparse_array(graph, dtype=np.float64, format="csr")
    x = dense(34, 2)
    assert_product(dt.distribute(cluster3, graph) @ x, A, x)
    digits = dt.data.digits_graph()
    y = dense(digits.matrix.shape[1], 2)
    assert_product(dt.distribute(cluster3, digits) @ y, digits.matrix, y)
