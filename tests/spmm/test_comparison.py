"""Partitions side by side on real matrices, and scaling tables."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import dtoolkit as dt
from dtoolkit import figures
from dtoolkit.arrays import Layout, partition_quality
from dtoolkit.arrays.partitioners import Hypergraph, Metis, Random, by_name
from dtoolkit.comm import Network
from dtoolkit.errors import LayoutError, MissingPackage
from dtoolkit.spmm import compare_partitions, scaling
from tests.figures.checks import check_figure

SEEDS = range(5)


def volumes(A, kind, parts):
    """Column volume by seed."""
    found = []
    for seed in SEEDS:
        partitioner = kind(seed=seed)
        rows = partitioner(A, parts)
        columns = partitioner.columns(A, rows, parts)
        found.append(partition_quality(A, rows, columns).column_volume)
    return np.median(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parts"), [("digits_graph", 4), ("digits_graph", 16), ("stdlib_calls", 4)]
)
def test_who_moves_least_on_real_matrices(name, parts):
    A = getattr(dt.data, name)().matrix
    block = dt.plan(A, parts=parts, strategy="column").volume
    metis, random = volumes(A, Metis, parts), volumes(A, Random, parts)
    assert volumes(A, Hypergraph, parts) <= 1.03 * metis
    assert metis < block < random


def test_a_row_a_partition():
    A = dt.data.digits_graph()
    table = compare_partitions(A, 4)
    assert table.index.tolist() == ["block", "random", "balanced", "rcm", "metis", "hypergraph"]
    assert table.index.name == "partition"
    assert table.loc["block", ["column", "row", "joint"]].tolist() == [3516, 4055, 2946]
    assert (table["joint"] <= table[["column", "row"]].min(axis=1)).all()
    assert table["joint"].idxmin() in ("metis", "hypergraph")
    assert (table["nonzero_imbalance"] < 1.031).all()
    assert (table["seconds"] >= 0).all()
    for name in table.index:
        made = dt.plan(A, parts=4, partition=name)
        quality = partition_quality(A, made.rows)
        assert table.loc[name, "joint"] == made.volume
        assert table.loc[name, "cut"] == quality.cut
        assert table.loc[name, "received_imbalance"] == quality.received_imbalance


def test_nodes_strategies_and_networks():
    A = dt.data.digits_graph()
    network = Network.two_tier(nodes=2, ranks_per_node=4, inter="1GB/s", intra="10GB/s")
    table = compare_partitions(
        A,
        8,
        ["block", Layout.cyclic(1797, 8), np.arange(1797) % 8, Random(seed=1), Random(seed=2)],
        strategy="hier-joint",
        ranks_per_node=4,
        network=network,
    )
    wanted = ["block", "cyclic", "part vector", "random", "random (2)"]
    assert table.index.tolist() == wanted
    made = dt.plan(A, parts=8, strategy="hier-joint", ranks_per_node=4)
    assert table.loc["block", "between_nodes"] == made.volume_between_nodes
    assert table.loc["block", "hier-joint"] == made.volume
    assert table.loc["block", "predicted"] == made.predict(network).seconds
    assert table.loc["cyclic", "joint"] == table.loc["part vector", "joint"]
    own = compare_partitions(A, 8, {"mine": lambda A, parts: np.arange(A.shape[0]) % parts})
    assert own.loc["mine", "joint"] == table.loc["cyclic", "joint"]
    assert compare_partitions(A, 8, "rcm").index.tolist() == ["rcm"]


def test_rectangular_matrices_have_their_columns_laid_out_too():
    A = dt.data.stdlib_calls().matrix[:800]
    table = compare_partitions(A, 8)
    for name in ("random", "metis", "hypergraph"):
        made = dt.plan(A, parts=8, partition=by_name(name))
        assert made.columns.kind == "parts"
        assert table.loc[name, "joint"] == made.volume


def test_what_is_missing_or_unknown_is_told(monkeypatch):
    with pytest.raises(LayoutError, match="partition='best' is not known"):
        compare_partitions(dt.data.digits_graph(), 4, ["best"])
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingPackage, match="pymetis"):
        compare_partitions(dt.data.digits_graph(), 4)


def test_scaling_is_a_table_of_plans():
    A = dt.data.digits_graph()
    network = Network.two_tier(nodes=1, ranks_per_node=4, inter="1GB/s", intra="10GB/s")
    table = scaling(
        A, parts=(4, 16), strategies=("column", "hier-joint"), network=network, partition="metis"
    )
    assert table[["parts", "strategy"]].to_numpy().tolist() == [
        [4, "column"],
        [4, "hier-joint"],
        [16, "column"],
        [16, "hier-joint"],
    ]
    made = dt.plan(A, parts=16, strategy="hier-joint", partition="metis", ranks_per_node=4)
    row = table.iloc[3]
    assert row["volume"] == made.volume
    assert row["between_nodes"] == made.volume_between_nodes
    assert row["largest_moved"] == made.own_load.moved.max()
    assert row["seconds"] == made.predict(network.with_ranks(16)).seconds
    called = scaling(A, parts=[4], network=lambda n: Network.flat(n, bandwidth="1GB/s"))
    assert called["seconds"].gt(0).all()
    assert called["strategy"].tolist() == ["oblivious", "column", "row", "joint"]
    plain = scaling(A, parts=[1, 2], strategies=["joint"])
    assert plain.columns.tolist() == ["parts", "strategy", "volume", "largest_moved"]
    assert plain["volume"].tolist() == [0, 1277]
    check_figure(figures.scaling(table))


@pytest.mark.parametrize("name", ["parts", "strategies"])
def test_scaling_over_nothing_is_refused(name):
    for nothing in ([], (), iter(())):
        with pytest.raises(ValueError, match=rf"{name}=\[\] leaves nothing to plan"):
            scaling(dt.data.digits_graph(), **{name: nothing})


def test_scaling_of_one():
    table = scaling(dt.data.digits_graph(), parts=4, strategies="joint")
    assert table[["parts", "strategy"]].values.tolist() == [[4, "joint"]]


@pytest.mark.parametrize("nothing", [[], (), {}])
def test_comparing_no_partitions_is_refused(nothing):
    with pytest.raises(ValueError, match=r"partitioners=.*leaves nothing to compare"):
        compare_partitions(dt.data.digits_graph(), 4, nothing)
