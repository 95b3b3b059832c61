"""Cora, CiteSeer and PubMed with the split of Planetoid, from files or from their public home."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array

from dtoolkit.data.canonical import from_triplets
from dtoolkit.data.labelled_graph import LabelledGraph
from dtoolkit.data.pickles import read_pickle
from dtoolkit.data.planetoid_arrays import read_arrays, sparse_features
from dtoolkit.errors import MatrixFormatError

__all__ = ["URL", "planetoid"]

URL = "https://github.com/kimiyoung/planetoid/raw/master/data/"
"""Where the public files are."""

_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_YANG = (
    'Z. Yang, W. Cohen and R. Salakhutdinov, "Revisiting semi-supervised learning with graph '
    'embeddings", ICML 2016, arXiv 1603.08861 (the split)'
)
_SEN = (
    'P. Sen, G. Namata, M. Bilgic, L. Getoor, B. Gallagher and T. Eliassi-Rad, "Collective '
    'classification in network data", AI Magazine 29(3), 2008 (the data)'
)
_NAMATA = (
    'G. Namata, B. London, L. Getoor and B. Huang, "Query-driven active surveying for collective '
    'classification", MLG 2012 (the data)'
)


@dataclass(frozen=True)
class _Set:
    what: str
    data: str


_SETS = {
    "cora": _Set("papers on machine learning, which cites which, and their words", _SEN),
    "citeseer": _Set("papers on computer science, which cites which, and their words", _SEN),
    "pubmed": _Set("papers on diabetes, which cites which, and weights of their words", _NAMATA),
}


def planetoid(name: str = "cora", *, root: str | os.PathLike[str] | None = None) -> LabelledGraph:
    """Read a citation graph with the split that graph networks are compared on.

    Looked for, in this order: ``<name>.npz`` (plain arrays), the public files (``ind.<name>.x`` and
    seven more; pickles, read without running them), both in `root` and in its folders
    ``planetoid``, ``<name>`` and ``raw``; then the public files are downloaded, by pooch.

    Parameters
    ----------
    name : {"cora", "citeseer", "pubmed"}
    root : path, optional
        Folder, or the ``.npz`` file. By default pooch's cache folder of dtoolkit. What is
        downloaded is put there.

    Returns
    -------
    LabelledGraph
        Adjacency of float32 ones, symmetric, without self loops; features as they were published
        (not normalised), sparse float32; 20 training nodes a class, 500 for validation, 1,000 for
        testing. In CiteSeer 15 nodes have no features and no label (-1).

    Raises
    ------
    ValueError, TypeError
        There is no set of this name, or `root` is no path.
    MatrixFormatError
        A file is broken, or files do not fit together: names the file and the fault.
    ModuleNotFoundError
        The files are not there, and pooch is not installed.
    FileNotFoundError
        The files are not there and could not be downloaded.
    """
    key = name.lower() if isinstance(name, str) else name
    if key not in _SETS:
        raise ValueError(f"name={name!r}: wanted one of {', '.join(map(repr, _SETS))}")
    place = _place(root)
    if place is not None and place.is_file():
        return _from_npz(key, place)
    folders = _folders(key, place)
    for folder in folders:
        if (folder / f"{key}.npz").is_file():
            return _from_npz(key, folder / f"{key}.npz")
    for folder in folders:
        if all((folder / _file(key, part)).is_file() for part in _PARTS):
            return _from_public(key, folder)
    return _from_public(key, _download(key, place, folders))


def _place(root: Any) -> Path | None:
    """``root=`` as a path."""
    if root is None:
        return None
    if not isinstance(root, str | os.PathLike) or not isinstance(os.fspath(root), str):
        raise TypeError(
            f"root={root!r} is {type(root).__name__}: wanted a folder, a .npz file, or None for "
            "the cache"
        )
    if not os.fspath(root):
        raise ValueError(
            "root='' names no folder: wanted one, or a .npz file; '.' is the current folder, None "
            "the cache"
        )
    return Path(root).expanduser()


def _from_npz(key: str, path: Path) -> LabelledGraph:
    part = read_arrays(path)
    try:
        features = sparse_features(path, part)
        n = int(part["num_nodes"])
        return _graph(key, n, part["edges"], features, part["labels"], part, str(path))
    except MatrixFormatError as error:
        if error.path == str(path):
            raise
        raise MatrixFormatError(str(path), error.fault) from error
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
        raise MatrixFormatError(str(path), f"is no graph saved as arrays: {error}") from error


def _folders(key: str, root: Path | None) -> list[Path]:
    """Where the files may lie: as they come, and as other libraries keep them."""
    if root is None:
        try:
            import pooch
        except ModuleNotFoundError:
            return []
        root = Path(pooch.os_cache("dtoolkit")) / "planetoid"
    names = [key, {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}[key]]
    inner = [root, root / "planetoid", *(root / name for name in names)]
    return [folder for one in inner for folder in (one, one / "raw")]


def _file(key: str, part: str) -> str:
    return f"ind.{key}.{part}"


def _download(key: str, root: Path | None, folders: list[Path]) -> Path:
    """Fetch the public files that are missing; give the folder that has all of them."""
    where = "no root= was given" if root is None else f"they are not in root={str(root)!r}"
    wanted = f"{key}.npz, or {_file(key, 'x')} and its seven companions"
    try:
        import pooch
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"planetoid({key!r}): {wanted}: {where}, and downloading them needs pooch:\n"
            '    pip install "dtoolkit[download]"\n'
            f"or fetch them from {URL} yourself and pass their folder as root="
        ) from None
    started = [one for one in folders if any((one / _file(key, p)).is_file() for p in _PARTS)]
    folder = (started or folders)[0]
    there = folder.exists()
    for part in _PARTS:
        file = _file(key, part)
        if (folder / file).is_file():
            continue
        try:
            pooch.retrieve(
                URL + file,
                known_hash=None,  # none is published; what comes is read without running it
                fname=file,
                path=folder,
                downloader=pooch.HTTPDownloader(timeout=30),
            )
        except Exception as error:  # of pooch, requests, urllib3, the disk
            if not there:  # pooch makes it before it looks for the network
                with suppress(OSError):
                    folder.rmdir()
            raise FileNotFoundError(
                f"planetoid({key!r}): {wanted}: {where}, and {URL + file} could not be downloaded "
                f"({type(error).__name__}: {error}). Fetch {_file(key, '*')} from {URL} on a "
                "machine that has the network, and pass their folder as root="
            ) from error
    return folder


def _from_public(key: str, folder: Path) -> LabelledGraph:
    """Put the eight files together: rows of ``tx`` belong to the nodes of ``test.index``."""
    part = {p: read_pickle(folder / _file(key, p)) for p in _PARTS if p != "test.index"}
    index = _test_index(folder / _file(key, "test.index"))
    try:
        known, tested = part["allx"], part["tx"]
        if tested.shape[0] != len(index) or part["ty"].shape[0] != len(index):
            raise ValueError(
                f"tx has {tested.shape[0]} rows and ty {part['ty'].shape[0]}, but test.index names "
                f"{len(index)} nodes"
            )
        if known.shape[1] != tested.shape[1] or part["ally"].shape[1] != part["ty"].shape[1]:
            raise ValueError("allx and tx, or ally and ty, differ in columns")
        n = max(known.shape[0], int(index.max()) + 1)
        rows = np.concatenate([np.arange(known.shape[0]), index])
        stacked = sparse.vstack([known, tested]).tocoo()
        features = from_triplets(
            rows[stacked.row], stacked.col, stacked.data, (n, known.shape[1]), what="features"
        )
        labels = np.full(n, -1, np.int64)
        hot = np.concatenate([part["ally"], part["ty"]])
        labels[rows] = np.where(hot.any(axis=1), hot.argmax(axis=1), -1)
        learned, most = len(part["y"]), known.shape[0]
        split = {
            "train": np.arange(learned),
            "val": np.arange(learned, min(learned + 500, most)),
            "test": index,
        }
        pairs = [(int(i), int(j)) for i, others in part["graph"].items() for j in others]
        edges = np.array(pairs, np.int64).reshape(-1, 2)
        return _graph(key, n, edges, features, labels, split, str(folder))
    except (ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        fault = error.fault if isinstance(error, MatrixFormatError) else str(error)
        raise MatrixFormatError(str(folder / _file(key, "*")), f"do not fit: {fault}") from error


def _test_index(path: Path) -> NDArray[np.int64]:
    """Read the numbers of the test nodes, one a line."""
    numbers = []
    for line, text in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
        if text.strip():
            if not text.strip().isdecimal():
                raise MatrixFormatError(str(path), f"{text[:40]!r} is no node number", line)
            numbers.append(int(text))
    if not numbers:
        raise MatrixFormatError(str(path), "names no node")
    return np.array(numbers, np.int64)


def _graph(
    key: str,
    n: int,
    edges: NDArray[Any],
    features: csr_array,
    labels: NDArray[Any],
    split: Any,
    path: str,
) -> LabelledGraph:
    """Edges in both directions, once each, without self loops; the rest as it is."""
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(f"edges are {edges.dtype} of shape {edges.shape}: wanted pairs of nodes")
    first, second = edges[edges[:, 0] != edges[:, 1]].astype(np.int64).T
    both = (np.concatenate([first, second]), np.concatenate([second, first]))
    matrix = from_triplets(*both, None, (n, n), what="graph")
    matrix.data[:] = 1
    about = _SETS[key]
    return LabelledGraph(
        name=key,
        description=f"{n:,} {about.what}",
        matrix=matrix,
        source=f"Planetoid's files of {key} (read from {Path(path).name})",
        licence="none is stated by its authors",
        features=features.astype(np.float32),
        labels=np.asarray(labels).astype(np.int64, casting="safe"),
        train=split["train"],
        val=split["val"],
        test=split["test"],
        citation=f"{_YANG}; {about.data}.",
    )
