"""What plans refuse, in words that name the argument."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from dtoolkit.arrays.layout import Layout
from dtoolkit.comm import Network
from dtoolkit.data import uniform
from dtoolkit.errors import LayoutError, PlanError
from dtoolkit.spmm.plan import Plan, plan
from tests.spmm.strategies import OVER_NODES

NO_NUMBERS = (
    *("object", "U5", "S3", "datetime64[ns]", "timedelta64[s]", "V4", "f4,i4", np.dtype("O")),
    *(np.longdouble, torch.quint8),
)


def loses_a_row(A, parts):
    return np.zeros(A.shape[0] - 1, dtype=int)


def invents_a_part(A, parts):
    return np.full(A.shape[0], parts)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parts": 0}, "parts=0"),
        ({"parts": -2}, "parts=-2"),
        ({"parts": 2.0}, "parts=2.0"),
        ({"parts": True}, "parts=True"),
        ({"parts": "4"}, "parts='4'"),
        ({"strategy": "best"}, "strategy='best' is not known.*oblivious, column, row, joint"),
        ({"strategy": 3}, "strategy=3"),
        ({"strategy": lambda blocks: [1, 0]}, "wanted bool"),
        ({"strategy": lambda blocks: np.zeros(2, bool)}, "one entry a nonzero"),
        ({"partition": "metis?"}, "partition='metis"),
        ({"partition": [0, 1]}, "shape"),
        ({"partition": [0.0] * 10}, "partition=.*float64"),
        ({"partition": [0, 1, 2, 3] + [4] * 6}, "part 4"),
        ({"partition": [0, 1, -1, 3] + [0] * 6}, "part -1"),
        ({"partition": Layout.block(9, 4)}, "partition= lays out 9 rows"),
        ({"partition": Layout.block(10, 3)}, "partition= is made for 3 parts"),
        ({"columns": Layout.block(9, 4)}, "columns= lays out 9 rows"),
        ({"partition": loses_a_row}, "loses_a_row returned"),
        ({"partition": invents_a_part}, "invents_a_part returned.*part 4"),
        ({"partition": lambda A, parts: None}, "returned"),
        ({"ranks_per_node": 3}, "ranks_per_node=3 does not divide parts=4"),
        ({"ranks_per_node": 0}, "ranks_per_node=0"),
        ({"ranks_per_node": 2.0}, "ranks_per_node=2.0"),
        ({"nodes": [0, 1]}, r"nodes has shape \(2,\)"),
        ({"nodes": [0, 0, 1, -1]}, "nodes=.*0 or more"),
        ({"nodes": [0.0, 0, 1, 1]}, "nodes="),
        ({"nodes": list("aabb")}, "nodes="),
        ({"nodes": [0, 1, 1, 0], "ranks_per_node": 2}, "different things"),
        *(({"strategy": name}, f"{name}.*ranks_per_node= or nodes=") for name in OVER_NODES),
        ({"strategy": "1.5d", "replication": 3}, "replication=3.*divides parts=4"),
        ({"strategy": "1.5d", "replication": 0}, "replication=0"),
        ({"strategy": "1.5d", "replication": True}, "replication=True"),
        ({"strategy": "joint", "replication": 2}, "replication= belongs to strategy='1.5d'"),
        ({"strategy": "2d", "replication": 2}, "replication= belongs"),
        ({"strategy": "2d", "parts": 6}, "parts=6 is no square"),
        ({"b_dtype": "float33"}, "b_dtype='float33'"),
        *(({"b_dtype": kind}, "b_dtype=.*no dtype that a product can have") for kind in NO_NUMBERS),
        ({"b_dtype": "f4", "c_dtype": object}, "c_dtype=.*no dtype that a product can have"),
        ({"b_dtype": "f4,,"}, "b_dtype='f4,,' is not a dtype"),
        ({"c_dtype": "float32"}, "without b_dtype"),
    ],
)
def test_errors_name_the_argument(arguments, words):
    A = uniform(10, 3, seed=0)
    with pytest.raises((PlanError, LayoutError), match=words):
        plan(A, **{"parts": 4, **arguments})


def test_errors_of_a_plan_name_the_argument(tmp_path):
    made = plan(uniform(10, 3, seed=0), parts=4)
    network = Network.flat(4, bandwidth="1GB/s", rate=1e9)
    for call, words in (
        (lambda: made.b_rows(4, 0), "source=4"),
        (lambda: made.c_rows(0, -1), "target=-1"),
        (lambda: made.b_rows(0, 1, 1), "stage=1"),
        (lambda: made.volume_between_nodes, "ranks_per_node= or nodes="),
        (lambda: made.volume_inside_nodes, "is unknown"),
        (lambda: made.bytes_between_nodes(1, "f4"), "is unknown"),
        (lambda: made.stage_bytes(-1, "f4"), "k=-1"),
        (lambda: made.bytes(-1, "f4"), "k=-1"),
        (lambda: made.bytes(1.5, "f4"), "k=1.5"),
        (lambda: made.bytes(1, None), "b_dtype=None"),
        (lambda: made.memory(1, "text"), "dtype='text'"),
        (lambda: made.memory(1, "object"), "dtype='object' is no dtype that a product can have"),
        (lambda: made.bytes(1, "U5"), "b_dtype='U5' is no dtype that a product"),
        (lambda: made.bytes(1, "f4", "datetime64[D]"), "c_dtype=.*is no dtype that a product"),
        (lambda: made.demand(1, "O"), "dtype='O' is no dtype that a product"),
        (lambda: made.predict(network, dtype="U5"), "dtype='U5' is no dtype that a product"),
    ):
        with pytest.raises(PlanError, match=words):
            call()
    for content in (b"", b"no plan", b"PK\x03\x04 broken"):
        (tmp_path / "broken").write_bytes(content)
        with pytest.raises(PlanError, match="is no plan, or is broken"):
            Plan.load(tmp_path / "broken")
    np.savez(tmp_path / "other.npz", x=np.arange(3))
    with pytest.raises(PlanError, match="is no plan"):
        Plan.load(tmp_path / "other.npz")
    made.save(tmp_path / "whole")
    (tmp_path / "cut").write_bytes((tmp_path / "whole").read_bytes()[:-50])
    with pytest.raises(PlanError, match="is no plan, or is broken"):
        Plan.load(tmp_path / "cut")
    with pytest.raises(FileNotFoundError):
        Plan.load(tmp_path / "absent")


def moved_row(made, number, place=0):
    """The same plan with one row of B listed for the next rank instead."""
    stages = list(made.stages)
    lists = stages[number].b
    ptr = lists.ptr.copy()
    pair = int(np.searchsorted(ptr, place, side="right")) - 1
    ptr[pair + 1] -= 1
    stages[number] = replace(stages[number], b=replace(lists, ptr=ptr))
    return replace(made, stages=tuple(stages))


@pytest.mark.parametrize("strategy", ["hier-joint", "node-pair", "1.5d"])
def test_check_finds_what_was_tampered_with_in_stages(strategy):
    A = uniform(160, 6, seed=4)
    made = plan(A, parts=8, strategy=strategy, ranks_per_node=4)
    made.check(A)
    turned = made.transposed()
    turned.check(A.T)
    first, *_, last = made.stages
    broken = [
        replace(made, stages=made.stages[:-1]),
        replace(made, stages=made.stages[1:]),
        replace(made, stages=(*made.stages, last)),
        replace(made, stages=(last, *made.stages[1:-1], first)),
        replace(made, by_row=~made.by_row),
        moved_row(made, 0),
    ]
    if strategy != "1.5d":
        broken += [moved_row(made, number, 3) for number in range(3)]
        direct = plan(A, parts=8, strategy="joint")
        # The rank-pair lists of another route serve every nonzero, but cross more than once.
        if strategy == "hier-joint":
            broken.append(replace(made, stages=direct.stages))
    for one in broken:
        with pytest.raises(PlanError):
            one.check(A)
    with pytest.raises(PlanError):
        replace(turned, stages=made.stages).check(A.T)


def test_partial_sums_wait_for_the_rows_that_they_need():
    A = uniform(60, 8, seed=1)
    made = plan(A, parts=4, strategy="1.5d")
    together = replace(made.stages[0], c=made.stages[1].c)
    with pytest.raises(PlanError, match=r"before row .* of B has come"):
        replace(made, stages=(together,)).check(A)


MAY_LACK = ("nodes", "matched", "matching")


def parts_of(path):
    with np.load(path) as kept:
        return {name: kept[name] for name in kept.files}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"strategy": "oblivious"},
        {"strategy": "2d"},
        {"strategy": "hier-joint", "ranks_per_node": 2},
        {"partition": "random"},
    ],
    ids=str,
)
def test_files_that_are_no_whole_plan_are_told_by_name(tmp_path, arguments):
    file = tmp_path / "made.npz"
    plan(uniform(40, 3, seed=0), parts=4, **arguments).save(file)
    whole = parts_of(file)
    assert Plan.load(file).parts == 4
    for name, array in whole.items():
        wrong = [array.astype(float)] if name != "about" else [np.array("{"), np.array("[]")]
        for changed in (*wrong, np.full(array.shape, "text"), np.array([{}], object), None):
            np.savez(file, **{k: a for k, a in whole.items() if k != name})
            if changed is not None:
                np.savez(file, **{**whole, name: changed})
            if changed is None and (name in MAY_LACK or not array.size):
                continue
            with pytest.raises(PlanError, match=rf"made\.npz is no plan.*{name}") as error:
                Plan.load(file)
            assert "pickle" not in str(error.value)
    about = json.loads(str(whole["about"]))
    for name in about.keys() - {"format", "version"}:
        less = {key: value for key, value in about.items() if key != name}
        np.savez(file, **{**whole, "about": np.array(json.dumps(less))})
        with pytest.raises(PlanError, match=rf"made\.npz is no plan.*it has no field '{name}'"):
            Plan.load(file)


def test_files_that_are_no_plan_are_told_without_advice_on_pickles(tmp_path):
    file = tmp_path / "some"
    for content, words in (
        (b"", "it is empty"),
        (b"no plan", "no whole archive"),
        (b"\x80\x04K\x01.", "no whole archive"),
        (b"\x93NUMPY\x01\x00v\x00", "no whole archive"),
    ):
        file.write_bytes(content)
        with pytest.raises(PlanError, match=words) as error:
            Plan.load(file)
        assert "pickle" not in str(error.value)
    np.savez(tmp_path / "other.npz", x=np.arange(3))
    with pytest.raises(
        PlanError, match=r"other\.npz is no plan: it has no array 'about', but hold"
    ):
        Plan.load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        Plan.load(tmp_path / "nowhere")
