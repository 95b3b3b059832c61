"""Notebooks as readers use them: in the browser, then again in the same kernel, exercises solved.

The first run is JupyterLab's own, in Chromium: all cells, figures and panels drawn. The second is
of the same cells in the same kernel, with each exercise solved as its folded answer says. After the
kernel's end nothing that it started is left.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from pathlib import Path

import nbformat
import psutil
import pytest
from jupyter_client import BlockingKernelClient

from tests.widgets import browsing, lab

pytestmark = browsing.MARKS

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
FIRST_FIGURE = 60.0  # seconds at most, on a machine of its own
CELL = 120.0  # seconds that a cell may take
MARK = "DTOOLKIT_NOTEBOOK_TEST"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A JupyterLab over a copy of the notebooks, and a browser: (folder, mark, server, open)."""
    folder = tmp_path_factory.mktemp("course") / "notebooks"
    shutil.copytree(FOLDER, folder)
    mark = uuid.uuid4().hex
    os.environ[MARK] = mark
    try:
        with lab.server(folder) as address, browsing.notebooks(folder, address) as open_:
            yield folder, mark, open_
    finally:
        del os.environ[MARK]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_in_the_browser_then_again_with_exercises_solved_and_leaves_nothing(
    path, desk, capsys
):
    folder, mark, open_ = desk
    before = {process.pid for process in marked(mark)}
    notebook = nbformat.read(path, as_version=4)
    page = open_(path.stem, run=False)
    start = time.monotonic()
    page.evaluate("() => { window.ran = jupyterapp.commands.execute('notebook:run-all-cells') }")
    page.wait_for_function("() => document.querySelector('.js-plotly-plot .gtitle')")
    seconds = time.monotonic() - start
    assert page.evaluate("() => window.ran"), "a cell raised"
    first = outputs(page)
    checks = [number for number, cell in enumerate(notebook.cells) if "check" in tags(cell)]
    assert checks or path.stem.startswith("00")
    assert not any("well done" in first[number] for number in checks)
    second = run_again(folder, notebook)
    assert all("well done" in second[number] for number in checks), [second[n] for n in checks]
    assert page.faults == []
    browsing.leave(page)
    assert left_over(mark, before) == []
    with capsys.disabled():
        print(f"\n{path.name}: first figure after {seconds:.1f} s, in the browser")
    assert seconds < FIRST_FIGURE * max(1.0, os.getloadavg()[0] / os.cpu_count())


def run_again(folder, notebook):
    """Run all code cells in the kernel of JupyterLab, solved; returns what each printed."""
    (file,) = (folder / ".lab" / "runtime").glob("kernel-*.json")
    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    printed = {}
    try:
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type != "code":
                continue
            said = []
            reply = client.execute_interactive(
                solved(cell, notebook.cells), timeout=CELL, output_hook=said.append
            )
            assert reply["content"]["status"] == "ok", reply["content"].get("evalue")
            printed[number] = "".join(
                message["content"]["text"] for message in said if message["msg_type"] == "stream"
            )
    finally:
        client.stop_channels()
    return printed


def solved(cell, cells):
    """Source of a cell; of one that waits for an answer, the solution from the text before it."""
    if "exercise" not in tags(cell):
        return cell.source
    text_before = cells[cells.index(cell) - 1].source
    return re.search(r"<details>.*?```python\n(.*?)```", text_before, re.DOTALL)[1]


def tags(cell):
    return cell.metadata.get("tags", [])


def outputs(page):
    """What each cell printed in the browser."""
    return page.evaluate(
        """() => jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(cell =>
             (cell.outputs ?? []).map(out => [out.text ?? ""].flat().join("")).join(""))"""
    )


def left_over(mark, before):
    """Processes that the kernel started, or itself, if they are there after 10 s."""
    deadline = time.monotonic() + 10
    while True:
        found = [p for p in marked(mark) if p.pid not in before]
        if not found or time.monotonic() > deadline:
            return [(process.pid, process.info["cmdline"]) for process in found]
        time.sleep(0.1)


def marked(mark):
    """Processes that have the mark in their environment."""
    return [p for p in psutil.process_iter(["cmdline"]) if environment(p) == mark]


def environment(process):
    try:
        return process.environ().get(MARK)
    except psutil.Error:  # another user's, or gone since
        return None
