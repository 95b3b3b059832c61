"""Citation graphs: as arrays, as the public pickles, and what is said where they are not there."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType

import numpy as np
import pytest
from scipy import sparse

import dtoolkit as dt
from dtoolkit.data import planetoid
from dtoolkit.errors import MatrixFormatError
from tests.data.citation_files import small, write


def test_cora_as_arrays(data_root):
    for root in (data_root, data_root / "planetoid", data_root / "planetoid" / "cora.npz"):
        cora = planetoid("cora", root=root)
    assert (cora.name, cora.nodes, cora.classes) == ("cora", 2708, 7)
    A = cora.adjacency
    assert A.dtype == np.float32
    assert A.nnz == 2 * 5278
    assert (A != A.T).nnz == 0
    assert not A.diagonal().any()
    assert set(A.data) == {1.0}
    assert cora.features.shape == (2708, 1433)
    assert cora.features.nnz == 49216
    assert cora.features.dtype == np.float32
    np.testing.assert_array_equal(np.bincount(cora.labels[cora.train]), [20] * 7)
    assert (len(cora.train), len(cora.val), len(cora.test)) == (140, 500, 1000)
    assert cora.test_mask.sum() == 1000
    assert not (cora.train_mask & cora.val_mask).any()
    assert cora.labels.dtype == cora.test.dtype == np.int64
    assert "ICML 2016" in cora.cite()
    assert "140 train, 500 val, 1,000 test; 7 classes" in repr(cora)
    assert "1,433, sparse" in cora._repr_html_()
    assert dt.plan(cora, parts=4).shape == (2708, 2708)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cora.labels = None


def arrays():
    _, order, features, labels, edges = small()
    matrix = sparse.csr_array(features)
    return {
        "num_nodes": np.int64(10),
        "edges": np.array(edges, np.int32),
        "feat_indptr": matrix.indptr,
        "feat_indices": matrix.indices,
        "feat_data": matrix.data,
        "feat_shape": np.array(matrix.shape),
        "labels": labels.astype(np.int16),
        "train": np.arange(3),
        "val": np.arange(3, 6),
        "test": np.sort(order),
    }


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("num_nodes", np.int64(4), "edges run from 0 to 9: wanted 0 to 3"),
        ("num_nodes", np.int64(11), "feat_shape has 10 rows, and num_nodes is 11"),
        ("edges", np.array([[0, 10]]), "edges run from 0 to 10: wanted 0 to 9"),
        ("edges", np.array([[0, -1]]), "edges run from -1 to 0"),
        ("edges", np.array([[99, 99]]), "edges run from 99 to 99"),
        ("edges", np.zeros((3, 3), np.int32), "pairs of nodes"),
        ("edges", np.zeros((3, 2)), "edges is of dtype float64: wanted integers"),
        ("feat_indices", np.full(3, 99), "feat_indptr must rise from 0 to 3"),
        ("feat_shape", np.array([10]), r"feat_shape is \[10\]: wanted numbers of nodes and"),
        ("feat_shape", np.array([]), "feat_shape is of dtype float64: wanted integers"),
        ("feat_shape", np.array([], int), r"feat_shape is \[\]: wanted numbers of nodes and"),
        ("feat_shape", np.array([10, 2]), "feat_indices run from 0 to 4: wanted 0 to 1"),
        ("feat_shape", np.array([9, 5]), "feat_shape has 9 rows, and num_nodes is 10"),
        ("feat_data", np.ones(3), "feat_data has 3 entries and feat_indices"),
        ("feat_data", np.full(3, 1j), "feat_data is of dtype complex128: wanted real"),
        ("feat_indptr", np.arange(4), "feat_indptr has 4 entries: wanted 11"),
        ("num_nodes", np.array([10, 10]), r"num_nodes has shape \(2,\): wanted a number"),
        ("num_nodes", np.float64(10), "num_nodes is of dtype float64: wanted integers"),
        ("train", np.arange(3.0), "train is of dtype float64: wanted node numbers, or a mask"),
        ("labels", np.zeros(10), "labels is of dtype float64: wanted integers"),
        ("labels", np.zeros(9, np.int64), "labels have shape"),
        ("train", np.array([0, 10]), "train has nodes 0 to 10"),
        ("train", np.array([0, 0]), "names node 0 twice"),
        ("test", np.array([0, 6]), "in train and in test"),
        ("test", np.array([8]), "node 8, whose label is unknown"),
        ("val", None, "it has no val"),
        ("edges", np.array([{}], dtype=object), "edges cannot be read: it holds objects"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, name, value, fault):
    kept = arrays()
    np.savez(tmp_path / "cora.npz", **kept)
    assert planetoid("cora", root=tmp_path).nodes == 10
    kept.pop(name)
    if value is not None:
        kept[name] = value
    np.savez(tmp_path / "cora.npz", **kept)
    with pytest.raises(MatrixFormatError, match=fault) as error:
        planetoid("cora", root=tmp_path)
    assert "cora.npz" in str(error.value)


@pytest.mark.parametrize("name", sorted(arrays()))
def test_each_array_dropped_or_retyped_is_told_by_name(tmp_path, name):
    kept = arrays()
    good = np.asarray(kept[name])
    wrong = [
        None,
        good.astype("U21"),
        good.astype("S21"),
        good.astype(complex),
        good.astype("datetime64[s]") if good.dtype.kind == "i" else good.astype("U5"),
        good.astype(object),
        np.array(None),
        np.stack([good, good]),
        np.full(good.shape, -1, np.int64) if name not in ("labels", "feat_data") else good[:-1],
    ]
    if name != "feat_data":
        wrong += [good.astype(float), good + 0.5]
    for changed in wrong:
        np.savez(tmp_path / "cora.npz", **{key: a for key, a in kept.items() if key != name})
        if changed is not None:
            np.savez(tmp_path / "cora.npz", **{**kept, name: changed})
        with pytest.raises(MatrixFormatError, match=rf"cora\.npz: .*{name}") as error:
            planetoid("cora", root=tmp_path)
        assert "allow_pickle" not in str(error.value)


def test_splits_may_be_masks_or_empty(tmp_path):
    kept = arrays()
    mask = np.arange(10) < 3
    np.savez(tmp_path / "cora.npz", **{**kept, "train": mask, "val": np.array([])})
    graph = planetoid("cora", root=tmp_path)
    assert graph.train.tolist() == [0, 1, 2]
    assert graph.val.tolist() == []


@pytest.mark.parametrize(
    ("root", "error", "words"),
    [
        (3, TypeError, "root=3 is int: wanted a folder"),
        (b"here", TypeError, "root=b'here' is bytes"),
        (True, TypeError, "root=True is bool"),
        ("", ValueError, "root='' names no folder"),
    ],
)
def test_wrong_roots(root, error, words):
    with pytest.raises(error, match=words):
        planetoid("cora", root=root)


def test_files_that_are_no_archive(tmp_path):
    file = tmp_path / "cora.npz"
    np.savez(file, **arrays())
    whole = file.read_bytes()
    with (tmp_path / "one.npy").open("wb") as one:
        np.save(one, np.arange(3))
    for data in (b"", b"PK", whole[:200], whole[:-30], (tmp_path / "one.npy").read_bytes()):
        file.write_bytes(data)
        with pytest.raises(MatrixFormatError, match=r"cora\.npz: is no graph"):
            planetoid("cora", root=tmp_path)


@pytest.mark.parametrize("name", ["coral", "", None, 3, "CORA.npz"])
def test_wrong_names(name, tmp_path):
    with pytest.raises(ValueError, match="wanted one of 'cora', 'citeseer', 'pubmed'"):
        planetoid(name, root=tmp_path)


def test_missing_files_without_pooch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    for root in (tmp_path, None):
        with pytest.raises(ModuleNotFoundError, match=r'pip install "dtoolkit\[download\]"') as e:
            planetoid("pubmed", root=root)
        assert "ind.pubmed.x" in str(e.value)
        assert "root=" in str(e.value)


def network(monkeypatch, retrieve):
    """A pooch whose network is ours: it makes the folder first, as the real one does."""
    pooch = ModuleType("pooch")
    pooch.HTTPDownloader = lambda timeout: timeout

    def download(url, known_hash, fname, path, downloader):
        path.mkdir(parents=True, exist_ok=True)
        retrieve(url, path / fname)

    pooch.retrieve = download
    monkeypatch.setitem(sys.modules, "pooch", pooch)


def test_missing_files_without_a_network(tmp_path, monkeypatch):
    def retrieve(url, file):
        raise OSError("no route")

    network(monkeypatch, retrieve)
    root = tmp_path / "new"
    with pytest.raises(FileNotFoundError, match=r"ind\.citeseer\.x could not be downloaded") as e:
        planetoid("citeseer", root=root)
    for what in ("https://github.com/kimiyoung", "no route", "root=", str(root)):
        assert what in str(e.value)
    assert not root.exists()


def test_what_is_missing_is_downloaded_once(tmp_path, monkeypatch):
    public, order, *_ = small()
    home = write(tmp_path / "home", public, order)
    asked = []

    def retrieve(url, file):
        asked.append(url)
        file.write_bytes((home / url.rsplit("/", 1)[1]).read_bytes())

    network(monkeypatch, retrieve)
    root = tmp_path / "root"
    assert planetoid("cora", root=root).nodes == 10
    assert len(asked) == 8
    assert all(url.startswith("https://github.com/kimiyoung/planetoid/raw/") for url in asked)
    (root / "ind.cora.ty").unlink()
    assert planetoid("cora", root=root).nodes == 10
    assert planetoid("cora", root=root).nodes == 10
    assert len(asked) == 9
