"""Real sets that need no download."""

from __future__ import annotations

import ast
import platform
from collections import Counter
from functools import lru_cache

import numpy as np
import pandas as pd

from dtoolkit.data.canonical import from_triplets
from dtoolkit.data.dataset import Dataset
from dtoolkit.data.sampling import check_count
from dtoolkit.data.stdlib_source import Function, called_name, stdlib_trees

__all__ = ["datasets", "digits_graph", "stdlib_calls"]


@lru_cache(maxsize=8)
def digits_graph(neighbours: int = 10) -> Dataset:
    """Nearest-neighbour graph of scikit-learn's handwritten digits.

    Row i has a 1 in the columns of the ``neighbours`` other images nearest to image i (Euclidean
    distance of their 64 pixels). Pixels are whole numbers, so distances are exact, and ties go to
    the lower number: the graph is the same everywhere. It is directed.

    Parameters
    ----------
    neighbours : int, optional
        Neighbours of an image, 1 to 1,796.

    Returns
    -------
    Dataset
        1,797 rows and columns, float32 ones.

    Raises
    ------
    TypeError, ValueError
        If ``neighbours`` is out of range.
    """
    from sklearn.datasets import load_digits

    pixels = load_digits().data
    n = len(pixels)
    if check_count("neighbours", neighbours, least=1) >= n:
        raise ValueError(f"neighbours={neighbours}: want at most {n - 1}")
    norms = (pixels**2).sum(axis=1)
    distances = norms[:, None] + norms[None, :] - 2 * pixels @ pixels.T
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :neighbours]
    rows = np.repeat(np.arange(n), neighbours)
    return Dataset(
        name=f"digits_graph({neighbours})",
        description=f"each of {n:,} handwritten digits to its {neighbours} nearest others",
        matrix=from_triplets(rows, nearest.ravel(), None, (n, n), what="digits"),
        source="scikit-learn's load_digits: UCI Optical Recognition of Handwritten Digits, its "
        "test set (Alpaydin and Kaynak, 1998)",
        licence="CC BY 4.0",
    )


@lru_cache(maxsize=8)
def stdlib_calls(min_functions: int = 3) -> Dataset:
    """Which names each function of the standard library calls: a power law that is real.

    The sources of the running interpreter's standard library are parsed, never imported; tests,
    installed packages, ``idlelib`` and ``lib2to3`` are left out. A function counts the calls of
    the functions inside it as its own; ``x.name()`` and ``name()`` both call ``name``. Names
    called by fewer than ``min_functions`` functions are dropped, then functions that call none.
    Python 3.11 has about 11,800 functions and 2,250 names.

    Parameters
    ----------
    min_functions : int, optional
        Functions that must call a name for it to be a column.

    Returns
    -------
    Dataset
        Functions by names, float32 counts of calls; ``row_labels`` are ``file:function``, in the
        order of files and lines, ``column_labels`` the names, sorted. The content hash differs by
        interpreter version.

    Raises
    ------
    TypeError, ValueError
        If ``min_functions`` is less than 1.
    FileNotFoundError
        If the interpreter comes without the sources of its standard library.
    """
    check_count("min_functions", min_functions, least=1)
    functions = _stdlib_functions()
    callers = Counter(name for _, calls in functions for name in calls)
    names = sorted(name for name, count in callers.items() if count >= min_functions)
    number = {name: column for column, name in enumerate(names)}
    rows: list[int] = []
    columns: list[int] = []
    counts: list[int] = []
    labels: list[str] = []
    for label, calls in functions:
        known = [(number[name], count) for name, count in calls.items() if name in number]
        for column, count in known:
            rows.append(len(labels))
            columns.append(column)
            counts.append(count)
        if known:
            labels.append(label)
    return Dataset(
        name=f"stdlib_calls({min_functions})",
        description=f"{len(labels):,} functions of the standard library by the {len(names):,} "
        "names they call",
        matrix=from_triplets(
            np.array(rows, np.int64),
            np.array(columns, np.int64),
            np.array(counts, np.float32),
            (len(labels), len(names)),
            what="standard library",
        ),
        source=f"sources of the standard library of {platform.python_implementation()} "
        f"{platform.python_version()}",
        licence="PSF-2.0",
        row_labels=tuple(labels),
        column_labels=tuple(names),
    )


def datasets() -> pd.DataFrame:
    """List the built-in sets.

    Returns
    -------
    pandas.DataFrame
        One row a set: name (the call that gives it), rows, columns, nonzeros, bytes, source,
        licence and content hash. Building them takes a few seconds the first time.
    """
    known = [digits_graph(), stdlib_calls()]
    return pd.DataFrame(
        [
            {
                "name": data.name,
                "rows": data.shape[0],
                "columns": data.shape[1],
                "nonzeros": data.nnz,
                "bytes": data.nbytes,
                "source": data.source,
                "licence": data.licence,
                "hash": data.content_hash,
            }
            for data in known
        ]
    ).set_index("name")


@lru_cache(maxsize=1)
def _stdlib_functions() -> tuple[tuple[str, Counter[str]], ...]:
    """All functions, by file and line, and how often each calls which name."""
    functions: list[tuple[str, Counter[str]]] = []
    for path, tree in stdlib_trees():
        _collect(tree, path + ":", [], functions)
    return tuple(functions)


def _collect(
    node: ast.AST,
    prefix: str,
    around: list[Counter[str]],
    functions: list[tuple[str, Counter[str]]],
) -> None:
    """Add the functions under a node, and the calls under it to all functions around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            calls: Counter[str] = Counter()
            functions.append((prefix + child.name, calls))
            _collect(child, f"{prefix}{child.name}.", [*around, calls], functions)
            continue
        if isinstance(child, ast.Call) and (name := called_name(child)) is not None:
            for calls in around:
                calls[name] += 1
        inner = f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix
        _collect(child, inner, around, functions)
