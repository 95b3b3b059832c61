"""The public text format for extreme classification: what it says, and what it forbids."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from dtoolkit.data import extreme, read_xmc
from dtoolkit.data.xmc_quick import parse_samples
from dtoolkit.errors import MatrixFormatError

TEXT = "4 5 3\n0,2 1:0.5 4:-2\n 0:1e-1\n1\n\n"


def _file(folder: Path, content: str | bytes, name: str = "set.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.rstrip("\n") + "\n ",  # the last line is a blank without an end
        TEXT.replace("1:0.5 4:-2", "4:-2   1:0.5  "),  # in any order, blanks of any number
        TEXT.replace("1\n", "1\t\n"),
        TEXT + "\n\n",
        gzip.compress(TEXT.encode()),
    ],
    ids=["unix", "windows", "no end", "blanks", "tab", "more lines", "gzip"],
)
def test_what_a_file_says(tmp_path: Path, content: str | bytes) -> None:
    found = read_xmc(_file(tmp_path, content))
    assert found.matrix.toarray().tolist() == [
        [0, 0.5, 0, 0, -2],
        [np.float32(0.1), 0, 0, 0, 0],
        [0] * 5,
        [0] * 5,
    ]
    assert found.labels.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert found.matrix.dtype == np.float32
    assert (found.train.tolist(), found.test.tolist()) == ([0, 1, 2, 3], [])


def test_two_files_are_one_set(tmp_path: Path) -> None:
    train, test = _file(tmp_path, TEXT), _file(tmp_path, "1 5 3\n2 3:7\n", "test.txt")
    found = read_xmc(train, test)
    assert (found.train.tolist(), found.test.tolist()) == ([0, 1, 2, 3], [4])
    assert found.matrix[[4]].toarray().tolist() == [[0, 0, 0, 7, 0]]
    other = _file(tmp_path, "1 6 3\n2 3:7\n", "other.txt")
    with pytest.raises(MatrixFormatError, match="6 features and 3 labels: want 5 and 3, as in"):
        read_xmc(train, other)


FAULTS = [
    ("", 1, "empty: want a first line 'samples features labels'"),
    ("4 5\n", 1, "first line '4 5': want three whole numbers"),
    ("4 5 x\n", 1, "want three whole numbers, 'samples features labels'"),
    ("4 -5 3\n", 1, "want three whole numbers"),
    ("1 5 3\n3 1:1\n", 2, "label 3 is out of range: want 0 to 2"),
    ("1 5 3\n-1 1:1\n", 2, "label -1 is out of range: want 0 to 2"),
    ("1 5 3\n0,,1 1:1\n", 2, "label '': want a whole number"),
    ("1 5 3\n0, 1:1\n", 2, "label '': want a whole number"),
    ("1 5 3\n0.5 1:1\n", 2, "label '0.5': want a whole number"),
    ("1 5 3\na 1:1\n", 2, "label 'a': want a whole number"),
    ("1 5 3\n1:1\n", 2, "starts with '1:1': want labels, or a blank"),
    ("2 5 3\n0 1:1\n0 5:1\n", 3, "feature 5 is out of range: want 0 to 4"),
    ("1 5 3\n0 1\n", 2, "'1': want feature:value"),
    ("1 5 3\n0 1:\n", 2, "value '' in '1:': want a finite number"),
    ("1 5 3\n0 1:b\n", 2, "value 'b' in '1:b': want a finite number"),
    ("1 5 3\n0 1:nan\n", 2, "value 'nan' in '1:nan': want a finite number"),
    ("1 5 3\n0 1:1e999\n", 2, "want a finite number"),
    ("1 5 3\n0 1:1e99\n", 2, "a value is beyond float32"),
    ("1 5 3\n0 1.0:1\n", 2, "feature '1.0': want a whole number"),
    ("1 5 3\n0 1:2:3\n", 2, "value '2:3'"),
    ("1 5 3\n0 :3\n", 2, "feature '': want a whole number"),
    ("2 5 3\n 1:1\n0 1:1 2:1 1:2\n", 3, "sample 1 has feature 1 2 times: want it once"),
    ("1 5 3\n0,2,0 1:1\n", 2, "sample 0 has label 0 2 times: want it once"),
    ("2 5 3\n0 1:1\n", 2, "the file ends after 1 of 2 stated samples"),
    ("1 5 3\n0 1:1\n\n1 1:1\n", 4, "more than the stated 1 samples: '1 1:1'"),
    ("999999999 5 3\n0 1:1\n", 2, "ends after 1 of 999,999,999 stated"),
]


@pytest.mark.parametrize(("content", "line", "words"), FAULTS, ids=[w for _, _, w in FAULTS])
def test_what_is_wrong_is_told(tmp_path: Path, content: str, line: int, words: str) -> None:
    with pytest.raises(MatrixFormatError) as caught:
        read_xmc(_file(tmp_path, content))
    assert words in caught.value.fault
    assert caught.value.line == line
    assert caught.value.path.endswith("set.txt")


def test_a_broken_archive_is_told(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT.encode())
    with pytest.raises(MatrixFormatError, match="the compressed file is broken"):
        read_xmc(_file(tmp_path, packed[:-12], "set.txt.gz"))


def test_many_at_a_time_and_line_by_line_agree(tmp_path: Path) -> None:
    made = extreme(50, 40, 400, seed=1, labels=3, active=6)
    lines = [f"{len(made)} 40 50"]
    for row in range(len(made)):
        labels = ",".join(map(str, made.labels[[row]].indices)) if row % 7 else ""
        one = made.matrix[[row]]
        pairs = zip(one.indices, one.data, strict=True) if row % 11 else ()
        lines.append(" ".join([labels, *(f"{f}:{v}" for f, v in pairs)]))
    body = ("\n".join(lines[1:]) + "\n").encode()
    assert parse_samples(body, len(made), 40, 50) is not None
    assert parse_samples(body, len(made) - 1, 40, 50) is None
    quick = read_xmc(_file(tmp_path, "\n".join(lines)))
    slow = read_xmc(_file(tmp_path, "\n".join(lines).replace(" ", "  "), "slow.txt"))
    assert quick.content_hash == slow.content_hash
    assert (quick.labels != slow.labels).nnz == 0
    chosen = np.array([row for row in range(len(made)) if row % 11])
    assert (quick.matrix[chosen] != made.matrix[chosen]).nnz == 0
