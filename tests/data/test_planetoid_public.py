"""The public files of Planetoid: pickles that are read and never run."""

from __future__ import annotations

import os
from collections import defaultdict

import numpy as np
import pytest
from scipy import sparse

from dtoolkit.data import pickles, planetoid
from dtoolkit.data.pickles import read_pickle
from dtoolkit.errors import MatrixFormatError
from tests.data.citation_files import hot, small, write

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph")


def as_python_2(data):
    """The names under which Python 2 pickled the same classes."""
    for new, old in (
        (b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n"),
        (b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"),
        (b"cbuiltins\n", b"c__builtin__\n"),
        (b"ccopyreg\n", b"ccopy_reg\n"),
    ):
        data = data.replace(new, old)
    return data


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("change", [lambda data: data, as_python_2], ids=["new", "Python 2"])
def test_public_files(tmp_path, protocol, change):
    public, order, features, labels, edges = small()
    graph = planetoid("cora", root=write(tmp_path, public, order, protocol, change))
    np.testing.assert_array_equal(graph.features.toarray(), features)
    np.testing.assert_array_equal(graph.labels, labels)
    expected = np.zeros((10, 10), np.float32)
    for i, j in edges:
        expected[i, j] = expected[j, i] = 1
    np.testing.assert_array_equal(graph.adjacency.toarray(), expected)
    assert graph.train.tolist() == [0, 1, 2]
    assert graph.val.tolist() == [3, 4, 5]
    assert graph.test.tolist() == [6, 7, 9]


@pytest.mark.parametrize("inner", ["planetoid", "cora", "Cora/raw", "raw"])
def test_public_files_where_other_libraries_keep_them(tmp_path, inner):
    public, order, *_ = small()
    write(tmp_path / inner, public, order)
    assert planetoid("Cora", root=str(tmp_path)).nodes == 10


def test_both_forms_of_cora_are_one_graph(tmp_path, data_root):
    cora = planetoid("cora", root=data_root)
    rows, most = cora.features, cora.nodes - 1000
    graph = {i: cora.adjacency.indices[a:b].tolist() for i, (a, b) in enumerate(pairs(cora))}
    order = np.random.default_rng(0).permutation(cora.test)
    public = {
        "x": sparse.csr_matrix(rows[:140]),
        "y": hot(cora.labels[:140], 7),
        "tx": sparse.csr_matrix(rows[order]),
        "ty": hot(cora.labels[order], 7),
        "allx": sparse.csr_matrix(rows[:most]),
        "ally": hot(cora.labels[:most], 7),
        "graph": defaultdict(list, graph),
    }
    again = planetoid("cora", root=write(tmp_path, public, order, change=as_python_2))
    assert again.content_hash == cora.content_hash
    assert (again.features != cora.features).nnz == 0
    for name in ("labels", "train", "val", "test"):
        np.testing.assert_array_equal(getattr(again, name), getattr(cora, name))


def pairs(graph):
    return zip(graph.adjacency.indptr[:-1], graph.adjacency.indptr[1:], strict=True)


class Malicious:
    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_is_never_run(tmp_path, protocol):
    flag = tmp_path / "flag"
    for attack in (
        Malicious(os.system, f"touch {flag}"),
        Malicious(eval, f"open({str(flag)!r}, 'w')"),
        Malicious(getattr, 3, "real"),
        {"a": [Malicious(os.mkdir, str(flag))]},
        np.array([Malicious(os.mkdir, str(flag))], dtype=object),
    ):
        public, order, *_ = small()
        public["x"] = attack
        write(tmp_path, public, order, protocol)
        with pytest.raises(MatrixFormatError, match=r"ind\.cora\.x"):
            planetoid("cora", root=tmp_path)
        assert not flag.exists()


def test_a_pickle_changes_nothing_of_the_reader(tmp_path):
    """Attributes of a class: BUILD with a pair of states sets them on whatever stands there."""
    for name in ("scipy.sparse.csr csr_matrix", "numpy ndarray", "numpy dtype", "_codecs encode"):
        module, attribute = name.split()
        attack = f"c{module}\n{attribute}\n".encode() + b"(N}S'mark'\nI1\nstb."
        (tmp_path / "attack").write_bytes(attack)
        with pytest.raises(MatrixFormatError):
            read_pickle(tmp_path / "attack")
    for kept in pickles._KNOWN.values():
        assert not hasattr(kept, "mark")


@pytest.mark.parametrize("part", PARTS)
def test_broken_public_files_are_named(tmp_path, part):
    public, order, *_ = small()
    write(tmp_path, public, order)
    file = tmp_path / f"ind.cora.{part}"
    whole = file.read_bytes()
    for data in (b"", b"not a pickle", b"<html>moved</html>", whole[:-1], whole[: len(whole) // 2]):
        file.write_bytes(data)
        with pytest.raises(MatrixFormatError, match=rf"ind\.cora\.{part}: is no pickle"):
            planetoid("cora", root=tmp_path)
    with pytest.raises(FileNotFoundError):
        read_pickle(tmp_path / "nothing")


def test_changed_bytes_never_get_past_the_reader(tmp_path):
    """Whatever a byte becomes, the answer is a graph or an error in words."""
    public, order, *_ = small()
    write(tmp_path, public, order)
    rng = np.random.default_rng(1)
    for part in PARTS:
        file = tmp_path / f"ind.cora.{part}"
        whole = file.read_bytes()
        for place in rng.integers(0, len(whole), 60):
            data = bytearray(whole)
            data[place] = rng.integers(256)
            file.write_bytes(bytes(data))
            try:
                planetoid("cora", root=tmp_path)
            except MatrixFormatError:
                pass
        file.write_bytes(whole)


@pytest.mark.parametrize(
    ("part", "value", "fault"),
    [
        ("tx", sparse.csr_matrix((2, 5)), "tx has 2 rows"),
        ("tx", sparse.csr_matrix((3, 4)), "differ in columns"),
        ("ty", np.zeros((3, 2), np.int32), "differ in columns"),
        ("graph", {0: [99]}, "99"),
        ("graph", {0: ["one"]}, "one"),
        ("graph", [1, 2], "items"),
        ("y", np.zeros((3, 3), np.int32), None),
        ("ally", np.zeros((6, 3), np.int32), "label is unknown"),
        ("x", {"nothing": 1}, None),
    ],
)
def test_public_files_that_do_not_fit(tmp_path, part, value, fault):
    public, order, *_ = small()
    public[part] = value
    write(tmp_path, public, order)
    if fault is None:  # what x and y say beyond their length stands in allx and ally too
        assert planetoid("cora", root=tmp_path).train.tolist() == [0, 1, 2]
        return
    with pytest.raises(MatrixFormatError, match=fault):
        planetoid("cora", root=tmp_path)


@pytest.mark.parametrize(("text", "fault"), [("", "names no node"), ("6\nsix\n7\n", "line 2")])
def test_test_index_is_checked(tmp_path, text, fault):
    public, order, *_ = small()
    write(tmp_path, public, order)
    (tmp_path / "ind.cora.test.index").write_text(text)
    with pytest.raises(MatrixFormatError, match=fault):
        planetoid("cora", root=tmp_path)
