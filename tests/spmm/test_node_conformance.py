"""SHIRO over nodes, arXiv 2512.20178: the numbers that any right implementation gives."""

from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.data import hubs, rmat, uniform
from dtoolkit.spmm.nodes import node_layout
from dtoolkit.spmm.plan import plan

from .strategies import OVER_NODES
from .test_cover import by_integer_program

N, PARTS, RANKS = 16384, 16, 4

FAMILIES = {
    "rmat": lambda seed: rmat(N, 16, seed=seed),
    "uniform": lambda seed: uniform(N, 16, seed=seed),
    "hubs": lambda seed: hubs(N, 64, 64, seed=seed),
}

# Rows between nodes of 4 ranks, block rows over 16 ranks.
BETWEEN = {
    "joint": {"rmat": 32_557, "uniform": 107_138, "hubs": 1_536},
    "hier-joint": {"rmat": 17_119, "uniform": 62_624, "hubs": 384},
    "node-pair": {"rmat": 14_239, "uniform": 47_975, "hubs": 384},
    "hier-column": {"rmat": 22_191, "uniform": 48_254, "hubs": 41_690},
    "hier-row": {"rmat": 22_191, "uniform": 48_254, "hubs": 41_690},
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_reference_volumes_between_nodes(family, seed):
    A = FAMILIES[family](seed)
    made = {name: plan(A, parts=PARTS, strategy=name, ranks_per_node=RANKS) for name in BETWEEN}
    for name, wanted in BETWEEN.items():
        made[name].check(A)
        loose = family == "hubs" and name in ("hier-column", "hier-row")
        tolerance = 0.04 if loose else 0.02
        assert made[name].volume_between_nodes == pytest.approx(wanted[family], rel=tolerance)
    least = made["node-pair"].volume_between_nodes
    assert least <= made["hier-joint"].volume_between_nodes <= made["joint"].volume_between_nodes
    assert least <= min(made[f"hier-{name}"].volume_between_nodes for name in ("column", "row"))
    # The certificate: matched units between nodes are as many as the rows that cross.
    apart = made["node-pair"].nodes[:, None] != made["node-pair"].nodes
    assert made["node-pair"].matching[apart].sum() == least
    assert made["hier-joint"].volume == made["joint"].volume == made["joint"].matching.sum()


@pytest.mark.parametrize("family", FAMILIES)
def test_grids_move_what_the_formula_says(family):
    A = FAMILIES[family](0)
    for c in (1, 2, 4, 8, 16):
        made = plan(A, parts=PARTS, strategy="1.5d", replication=c, ranks_per_node=RANKS)
        made.check(A)
        assert made.volume == N * (PARTS // c + c - 2)
    square = plan(A, parts=PARTS, strategy="2d")
    assert square.volume == N * 6
    assert plan(A, parts=PARTS, strategy="1.5d").replication == square.replication == 4
    # Groups that are nodes fold inside them: only shards of B cross.
    inside = plan(A, parts=PARTS, strategy="2d", ranks_per_node=4)
    assert inside.volume_between_nodes == inside.stages[0].volume == 3 * N


@pytest.mark.parametrize(("parts", "replication"), [(6, 2), (12, 3), (5, 1), (8, 2), (7, 1)])
def test_default_replication(parts, replication):
    made = plan(uniform(50, 3, seed=0), parts=parts, strategy="1.5d")
    assert made.replication == replication
    assert made.volume == 50 * (parts // replication + replication - 2)


@pytest.mark.parametrize(("b_dtype", "c_dtype"), [("f4", "f4"), ("f4", "f8"), ("f8", "f4")])
@pytest.mark.parametrize("nodes", [[0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 1, 2]])
def test_tiny_node_pair_blocks_agree_with_an_integer_program(b_dtype, c_dtype, nodes):
    sizes = np.dtype(b_dtype).itemsize, np.dtype(c_dtype).itemsize
    for seed in range(4):
        A = uniform(24, 3, seed=seed)
        made = plan(
            A,
            parts=6,
            strategy="node-pair",
            nodes=nodes,
            partition="cyclic",
            b_dtype=b_dtype,
            c_dtype=c_dtype,
        )
        made.check(A)
        moved = made.bytes_matrix(1, b_dtype, c_dtype)
        laid = node_layout(made.rows, made.nodes)
        for p in range(3):
            for q in range(3):
                if p == q:
                    continue
                block = A[laid.indices(p)].tocsc()[:, laid.indices(q)].tocsr()
                row, column = block.nonzero()
                least = by_integer_program(column, row, block.shape[1], block.shape[0], sizes)
                assert moved[np.ix_(made.nodes == q, made.nodes == p)].sum() == least


@pytest.mark.parametrize("strategy", OVER_NODES)
def test_a_row_crosses_to_a_node_once(strategy):
    A = rmat(512, 8, seed=4)
    made = plan(A, parts=12, strategy=strategy, ranks_per_node=3, partition="cyclic")
    nodes = made.nodes
    for node in range(4):
        outside, inside = np.flatnonzero(nodes != node), np.flatnonzero(nodes == node)
        came = [made.b_rows(s, t) for s in outside for t in inside]
        left = [made.c_rows(s, t) for s in inside for t in outside]
        for rows in (np.concatenate(came), np.concatenate(left)):
            assert len(np.unique(rows)) == len(rows)
    names = [stage.name for stage in made.stages]
    assert names == [name for name in ("inside", "between", "spread") if name in names]
    for stage in made.stages:
        apart = stage.traffic[nodes[:, None] != nodes].sum()
        assert apart == (stage.volume if stage.name == "between" else 0)


@pytest.mark.parametrize("strategy", ["hier-joint", "node-pair"])
def test_no_rank_of_a_node_receives_or_collects_much_more_than_others(strategy):
    A = uniform(N, 16, seed=0)
    made = plan(A, parts=PARTS, strategy=strategy, ranks_per_node=RANKS)
    (between,) = (stage for stage in made.stages if stage.name == "between")
    for counts in (between.traffic.sum(axis=0), between.traffic.sum(axis=1)):
        assert counts.max() <= 1.05 * counts.mean()


def test_nodes_by_number_and_by_size_are_the_same():
    A = uniform(200, 5, seed=3)
    even = plan(A, parts=8, strategy="node-pair", ranks_per_node=4)
    stated = plan(A, parts=8, strategy="node-pair", nodes=[7, 7, 7, 7, 9, 9, 9, 9])
    assert stated.nodes.tolist() == even.nodes.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert np.array_equal(even.traffic, stated.traffic)


def test_every_rank_its_own_node_and_all_on_one():
    A = uniform(200, 5, seed=3)
    joint = plan(A, parts=6)
    for name in ("hier-joint", "node-pair"):
        apart = plan(A, parts=6, strategy=name, ranks_per_node=1)
        assert [stage.name for stage in apart.stages] == ["between"]
        together = plan(A, parts=6, strategy=name, ranks_per_node=6)
        assert [stage.name for stage in together.stages] == ["inside"]
        assert together.volume_between_nodes == 0
        for made in (apart, together):
            assert np.array_equal(made.traffic, joint.traffic)
            assert np.array_equal(made.by_row, joint.by_row)


def test_what_is_asked_of_network_and_ranks():
    A = rmat(2048, 8, seed=1)
    for name in (*OVER_NODES, "joint", "oblivious", "1.5d"):
        made = plan(A, parts=8, strategy=name, ranks_per_node=4)
        for one in (made, made.transposed()):
            traffic = one.demand(16, "float64")
            assert sum(phase.sent.sum() for phase in traffic.phases) == one.bytes(16, "f8")
            done = sum((phase.work + phase.after).sum() for phase in traffic.phases)
            assert done == 16 * A.nnz
            names = [phase.name for phase in traffic.phases if phase.name != "spmm/pack"]
            assert tuple(names) == one.phases
