"""The file of a study: whole or not there, and nothing but its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dtoolkit as dt
from dtoolkit.training.study.studyfile import read_study, write_study
from tests.training.study.toys import as_if_measured, gave


@pytest.fixture
def written(tmp_path: Path) -> Path:
    plan = as_if_measured()
    measured = {
        (plan.groups[0][0], 0): gave(0.5),
        (plan.groups[0][1], 0): gave(float("nan")),
        (plan.groups[0][2], 0): gave(None, error="WorkerLost: rank 1"),
    }
    write_study(tmp_path / "a.study", plan, measured)
    return tmp_path / "a.study"


def test_what_was_written_is_read_and_failures_are_tried_again(written: Path) -> None:
    plan = as_if_measured()
    found = read_study(written, plan)
    (first, second) = found.values()
    assert list(found) == [(plan.groups[0][0], 0), (plan.groups[0][1], 0)]
    assert first == gave(0.5)
    assert second.loss != second.loss
    assert [one.name for one in written.parent.iterdir()] == ["a.study"]


def test_nothing_is_read_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_study(tmp_path / "new.study", as_if_measured()) == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", "it is no text"),
        (b"", "no file of a study, is damaged, or is cut short"),
        (b"[1, 2]", "something else than a study"),
        (b'{"format": "dtoolkit network"}', "something else than a study"),
        (b'{"format": "dtoolkit study", "version": 99}', "version 99 .* update dtoolkit"),
        (b'{"format": "dtoolkit study", "version": 1}', "is damaged"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "b.study"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_study(path, as_if_measured())
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_a_damaged_file_is_refused(written: Path) -> None:
    whole = written.read_text()
    written.write_text(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cut short"):
        read_study(written, as_if_measured())
    written.write_text(whole.replace('"loss": 0.5', '"loss": 0.4'))
    with pytest.raises(ValueError, match="is damaged"):
        read_study(written, as_if_measured())
    content = json.loads(whole)
    assert content["format"] == "dtoolkit study"


def test_the_file_of_another_study_is_refused_and_what_differs_named(written: Path) -> None:
    with pytest.raises(ValueError, match=r"another study, whose samples was 960"):
        read_study(written, as_if_measured(samples=961))
    with pytest.raises(ValueError, match="learning_rates was"):
        read_study(written, as_if_measured(learning_rates=[0.1, 0.3]))


def test_a_place_that_takes_no_file_is_found_before_anything_runs(tmp_path: Path) -> None:
    asked = {"workers": [8], "batch": 64, "device": "A100"}
    network = dt.comm.Network.flat(8, bandwidth="1GB/s")
    with pytest.raises(IsADirectoryError):
        dt.study(None, "580M", **asked, network=network, file=tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        dt.study(None, "580M", **asked, network=network, file=tmp_path / "no" / "a.study")
