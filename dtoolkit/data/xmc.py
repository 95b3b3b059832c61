"""Text files of the Extreme Classification Repository.

The first line is ``samples features labels``; each line after it is one sample, ``l1,l2 f:v f:v``:
its labels, and its features with their values, all counted from 0. A sample without labels starts
with a blank, one without features has its labels alone, and an empty line is a sample with neither.
The format is that of Bhatia et al., "The extreme classification repository: multi-label datasets
and code" (2016), http://manikvarma.org/downloads/XC/XMLRepository.html. What it forbids is refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array

from dtoolkit.data.canonical import check_row_pointer, from_compressed
from dtoolkit.data.labelled_samples import LabelledSamples
from dtoolkit.data.text import Piece, TextFile, parse_index, parse_real, shown
from dtoolkit.data.xmc_quick import Table, parse_samples
from dtoolkit.errors import MatrixFormatError

__all__ = ["read_xmc"]

_BLANK = re.compile(rb"[ \t]+")


def read_xmc(
    train: str | os.PathLike[str], test: str | os.PathLike[str] | None = None
) -> LabelledSamples:
    """Read a set for extreme classification, as the public repository has them.

    Parameters
    ----------
    train : path
        File with the samples to learn from, plain or compressed by gzip, bzip2 or xz; lines may end
        as on Windows.
    test : path, optional
        File with those for the test; its features and labels are the same as in `train`.

    Returns
    -------
    LabelledSamples
        float32 features, as the files have them; the rows of `test` come last.

    Raises
    ------
    MatrixFormatError
        If a file breaks the format: names file, line, and what was wanted.
    FileNotFoundError
        If there is no such file.
    """
    found = [_read(Path(path)) for path in (train, test) if path is not None]
    if len(found) == 2 and found[0].sizes[1:] != found[1].sizes[1:]:
        features, labels = found[0].sizes[1:]
        raise MatrixFormatError(
            str(test),
            "states {:,} features and {:,} labels".format(*found[1].sizes[1:])
            + f": want {features:,} and {labels:,}, as in {train}",
            1,
        )
    first, total = found[0].sizes[0], sum(one.sizes[0] for one in found)
    name = Path(train).name
    return LabelledSamples(
        name=name,
        description=f"{total:,} samples with labels, read from {name}"
        + ("" if test is None else f" and {Path(test).name}"),
        matrix=sparse.vstack([one.features for one in found], format="csr"),
        labels=sparse.vstack([one.labels for one in found], format="csr"),
        source="a file in the format of the Extreme Classification Repository",
        licence="see where the file is from",
        train=np.arange(first),
        test=np.arange(first, total),
    )


@dataclass(frozen=True)
class _File:
    """What a file has, and the sizes that it states: samples, features, labels."""

    sizes: tuple[int, int, int]
    features: csr_array
    labels: csr_array


def _read(path: Path) -> _File:
    with TextFile(path) as text:
        sizes = _header(text)
        tables = [Table.empty()]
        left = sizes[0]
        for piece in text.pieces():
            table = parse_samples(piece.text, left, *sizes[1:])
            if table is None:
                table = _line_by_line(piece, left, sizes, text)
            tables.append(table)
            left -= len(table.labelled)
        if left:
            found = sizes[0] - left
            raise text.fault(f"the file ends after {found:,} of {sizes[0]:,} stated samples")
        check_row_pointer(sizes[0], text.size, what=text.path, line=1)
    whole = Table.joined(tables)
    labels = _compressed(whole.labelled, whole.labels, None, (sizes[0], sizes[2]), text)
    shape = (sizes[0], sizes[1])
    return _File(
        sizes, _compressed(whole.counts, whole.features, whole.values, shape, text), labels
    )


def _compressed(
    counts: NDArray,
    indices: NDArray,
    values: NDArray | None,
    shape: tuple[int, int],
    text: TextFile,
) -> csr_array:
    """Canonical CSR of what rows of so many entries have; an entry twice is refused."""
    with np.errstate(over="ignore"):  # what is too large is told below
        data = np.ones(len(indices), np.float32) if values is None else values.astype(np.float32)
    pointer = np.concatenate([[0], np.cumsum(counts)])
    made = from_compressed(pointer, indices, data, shape, what=text.path)
    if made.nnz != len(indices):
        row = int(np.flatnonzero(np.diff(made.indptr) != counts)[0])
        own = indices[pointer[row] : pointer[row + 1]]
        number, times = np.unique(own, return_counts=True)
        what = "label" if values is None else "feature"
        raise text.fault(
            f"sample {row} has {what} {number[times > 1][0]} {times.max()} times: want it once",
            row + 2,
        )
    if not np.isfinite(made.data).all():
        row = int(np.searchsorted(pointer, np.flatnonzero(~np.isfinite(data))[0], side="right"))
        raise text.fault("a value is beyond float32", row + 1)
    return made


def _header(text: TextFile) -> tuple[int, int, int]:
    line = text.next_line()
    if line is None:
        raise text.fault("the file is empty: want a first line 'samples features labels'", 1)
    sizes = [parse_index(token) for token in _BLANK.split(line)]
    if len(sizes) != 3 or any(size is None or not 0 <= size < 2**31 for size in sizes):
        raise text.fault(
            f"first line {shown(line)}: want three whole numbers, 'samples features labels'"
        )
    samples, features, labels = (int(size or 0) for size in sizes)
    return samples, features, labels


def _line_by_line(piece: Piece, left: int, sizes: tuple[int, int, int], text: TextFile) -> Table:
    """Samples of a piece, slowly; the first fault is raised."""
    labelled: list[int] = []
    counts: list[int] = []
    labels: list[int] = []
    pairs: list[tuple[int, float]] = []
    lines = piece.text.split(b"\n")[:-1]
    for number, raw in enumerate(lines, piece.line):
        if len(labelled) == left:
            if raw.strip():
                fault = f"more than the stated {sizes[0]:,} samples: {shown(raw.strip())}"
                raise text.fault(fault, number)
            continue
        try:
            own, features = _sample(raw.rstrip(), sizes)
        except ValueError as error:
            raise text.fault(str(error), number) from None
        labelled.append(len(own))
        counts.append(len(features))
        labels += own
        pairs += features
    return Table(
        labelled=np.array(labelled, np.int64),
        labels=np.array(labels, np.int64),
        counts=np.array(counts, np.int64),
        features=np.array([feature for feature, _ in pairs], np.int64),
        values=np.array([value for _, value in pairs], np.float64),
    )


def _sample(line: bytes, sizes: tuple[int, int, int]) -> tuple[list[int], list[tuple[int, float]]]:
    """Labels, and features with values, of a line without its end.

    Raises
    ------
    ValueError
        What is wrong, and what was wanted.
    """
    _, features, labels = sizes
    head, *tokens = _BLANK.split(line) if line else [b""]
    own: list[int] = []
    if head and b":" not in head:
        own = [_index(token, "label", labels) for token in head.split(b",")]
    elif head:
        raise ValueError(
            f"starts with {shown(head)}: want labels, or a blank where a sample has none"
        )
    pairs = []
    for token in tokens:
        place, colon, value = token.partition(b":")
        if not colon:
            raise ValueError(f"{shown(token)}: want feature:value")
        number = parse_real(value)
        if number is None or not np.isfinite(number):
            raise ValueError(f"value {shown(value)} in {shown(token)}: want a finite number")
        pairs.append((_index(place, "feature", features), number))
    return own, pairs


def _index(token: bytes, what: str, bound: int) -> int:
    index = parse_index(token)
    if index is None:
        raise ValueError(f"{what} {shown(token)}: want a whole number")
    if not 0 <= index < bound:
        raise ValueError(f"{what} {index} is out of range: want 0 to {bound - 1}")
    return index
