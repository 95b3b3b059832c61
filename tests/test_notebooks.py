"""Notebooks as readers use them: run twice in one kernel, exercises solved, nothing left over."""

from __future__ import annotations

import datetime
import os
import re
import time
import uuid
from copy import deepcopy
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))
FIGURE = "application/vnd.plotly.v1+json"
FIRST_FIGURE = 60.0  # seconds from the start of the kernel, at most, on a machine of its own
MARK = "DTOOLKIT_NOTEBOOK_TEST"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_twice_in_one_kernel_and_leaves_nothing(path, capsys):
    notebook = nbformat.read(path, as_version=4)
    cells = len(notebook.cells)
    notebook.cells += [solved(cell, notebook.cells) for cell in notebook.cells]
    mark = uuid.uuid4().hex
    start = time.time()
    NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        record_timing=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute(env={**os.environ, MARK: mark})
    second = notebook.cells[cells:]
    checks = [cell for cell in second if "check" in tags(cell)]
    assert checks
    assert all("well done" in text(cell) for cell in checks), [text(cell) for cell in checks]
    assert not any("well done" in text(cell) for cell in notebook.cells[:cells])
    assert left_over(mark) == []
    seconds = first_figure(notebook) - start
    with capsys.disabled():
        print(f"\n{path.name}: first figure {seconds:.1f} s after the start of the kernel")
    assert seconds < FIRST_FIGURE * max(1.0, os.getloadavg()[0] / os.cpu_count())


def solved(cell, cells):
    """Copy a cell; where it waits for an answer, put in the solution from the text before it."""
    copy = deepcopy(cell)  # with metadata of its own, where the times of its run are put
    copy.id = f"{cell.id}-again"
    if "exercise" in tags(cell):
        text_before = cells[cells.index(cell) - 1].source
        copy.source = re.search(r"<details>.*?```python\n(.*?)```", text_before, re.DOTALL)[1]
    return copy


def tags(cell):
    return cell.metadata.get("tags", [])


def text(cell):
    """What a cell printed."""
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def first_figure(notebook):
    """When the first figure was there, in seconds since the epoch."""
    for cell in notebook.cells:
        if any(FIGURE in output.get("data", {}) for output in cell.get("outputs", [])):
            stamp = cell.metadata["execution"]["shell.execute_reply"]
            return datetime.datetime.fromisoformat(stamp).timestamp()
    raise AssertionError("the notebook draws no figure")


def left_over(mark):
    """Processes that the kernel started, or itself, if they are there after 10 s."""
    deadline = time.monotonic() + 10
    while (found := [p for p in psutil.process_iter(["cmdline"]) if environment(p) == mark]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return [(process.pid, process.info["cmdline"]) for process in found]


def environment(process):
    try:
        return process.environ().get(MARK)
    except psutil.Error:  # another user's, or gone since
        return None
