"""Which names does a function of the standard library call? A real task that needs no download."""

from __future__ import annotations

import ast
import platform
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_array

from dtoolkit.data.canonical import from_triplets
from dtoolkit.data.labelled_samples import LabelledSamples
from dtoolkit.data.sampling import check_count
from dtoolkit.data.stdlib_source import Function, called_name, stdlib_trees

__all__ = ["called_names"]

_EVERY = 5  # each fifth file is for the test
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_LONGEST = 25  # letters of a word: longer ones are no words
_Found = tuple[str, frozenset[str], Counter[str]]


@lru_cache(maxsize=2)
def called_names(min_functions: int = 3) -> LabelledSamples:
    """Tell which names a function of the standard library calls, by the words around the calls.

    A sample is a function, its labels the names that it calls: rows and columns of
    :func:`~dtoolkit.data.stdlib_calls`. Features are the words of the function's name, of its
    docstring and of its variables (arguments, names and attributes that it reads or sets), cut
    where underscores and capitals cut them, in lower case. The names that a function calls are
    taken out of its words, whole and in parts, so that no sample tells its labels. Words of fewer
    than two functions are dropped. A word weighs ``(1 + log(count)) * log(functions / functions
    that have it)``, and rows have unit length; a function without words has an empty row.

    Files are split, not functions: each fifth, in the order of their paths, is for the test.
    Python 3.11 has about 11,800 functions, 2,250 labels and 6,100 words.

    Parameters
    ----------
    min_functions : int, optional
        Functions that must call a name for it to be a label.

    Returns
    -------
    LabelledSamples
        ``row_labels`` are ``file:function``, ``column_labels`` the words, sorted. It is shared by
        all who ask for it.

    Raises
    ------
    TypeError, ValueError
        If ``min_functions`` is less than 1.
    FileNotFoundError
        If the interpreter comes without the sources of its standard library.
    """
    check_count("min_functions", min_functions, least=1)
    callers = Counter(name for _, called, _ in _stdlib_functions() for name in called)
    names = sorted(name for name, count in callers.items() if count >= min_functions)
    marks, rows = _marks(names)
    matrix, words = _weighed([counts for _, _, counts in rows])
    labels = tuple(label for label, _, _ in rows)
    files = [label.split(":")[0] for label in labels]
    held_out = {name for place, name in enumerate(sorted(set(files))) if place % _EVERY == 4}
    test = np.array([name in held_out for name in files])
    return LabelledSamples(
        name=f"called_names({min_functions})",
        description=f"{len(files):,} functions of the standard library, described by "
        f"{len(words):,} words: which of {marks.shape[1]:,} names does each call?",
        matrix=matrix,
        labels=marks,
        source=f"sources of the standard library of {platform.python_implementation()} "
        f"{platform.python_version()}",
        licence="PSF-2.0",
        row_labels=labels,
        column_labels=words,
        train=np.flatnonzero(~test),
        test=np.flatnonzero(test),
    )


@lru_cache(maxsize=1)
def _stdlib_functions() -> tuple[_Found, ...]:
    """All functions, by file and line: label, names that are called, words."""
    return tuple(
        (label, *_read(function))
        for path, tree in stdlib_trees()
        for label, function in _functions(tree, path + ":")
    )


def _marks(names: list[str]) -> tuple[csr_array, list[_Found]]:
    """Which names each function calls, and the functions that call any."""
    number = {name: column for column, name in enumerate(names)}
    rows = [one for one in _stdlib_functions() if not number.keys().isdisjoint(one[1])]
    pairs = [
        (row, number[name])
        for row, (_, called, _) in enumerate(rows)
        for name in called
        if name in number
    ]
    at = np.array(pairs, np.int64).reshape(-1, 2)
    shape = (len(rows), len(names))
    return from_triplets(at[:, 0], at[:, 1], None, shape, what="standard library"), rows


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Functions under a node with their labels, in the order of :func:`stdlib_calls`."""
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, Function):
            yield prefix + child.name, child
            inner = f"{prefix}{child.name}."
        elif isinstance(child, ast.ClassDef):
            inner = f"{prefix}{child.name}."
        yield from _functions(child, inner)


def _read(function: Function) -> tuple[frozenset[str], Counter[str]]:
    """Names that a function calls; words of its name, docstring and variables without these."""
    called: set[str] = set()
    names: Counter[str] = Counter([function.name])
    names.update(_IDENTIFIER.findall(ast.get_docstring(function, clean=False) or ""))
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and (name := called_name(node)) is not None:
            called.add(name)
        elif isinstance(node, ast.Name):
            names[node.id] += 1
        elif isinstance(node, ast.Attribute):
            names[node.attr] += 1
        elif isinstance(node, ast.arg):
            names[node.arg] += 1
    lowered = {name.lower() for name in called}
    words: Counter[str] = Counter()
    for name, count in names.items():
        if name.lower() not in lowered:
            for word in _WORD.findall(name):
                words[word.lower()] += count
    for word in [word for word in words if word in lowered or not 1 < len(word) <= _LONGEST]:
        del words[word]
    return frozenset(called), words


def _weighed(rows: list[Counter[str]]) -> tuple[csr_array, tuple[str, ...]]:
    """Weights of the words of each function, rows of unit length, and the words."""
    spread = Counter(word for row in rows for word in row)
    words = tuple(sorted(word for word, count in spread.items() if count >= 2))
    number = {word: place for place, word in enumerate(words)}
    triplets = [
        (place, number[word], count)
        for place, row in enumerate(rows)
        for word, count in row.items()
        if word in number
    ]
    at, column, count = (np.array(part) for part in zip(*triplets, strict=True))
    rarity = np.log(len(rows) / np.array([spread[word] for word in words]))
    weight = (1 + np.log(count)) * rarity[column]
    length = np.sqrt(np.bincount(at, weight**2, len(rows)))
    values = (weight / np.maximum(length, 1e-12)[at]).astype(np.float32)
    return from_triplets(at, column, values, (len(rows), len(words)), what="words"), words
