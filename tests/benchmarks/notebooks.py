"""Memory and time of the notebooks: each run once, its exercises solved, alone on the machine.

``python -m tests.benchmarks.notebooks`` runs all of them, or those that are named (``01 05``), and
prints a table: seconds from the start of the kernel to the first figure and to the end, and the
proportional set size (PSS: pages that processes share are counted once in all) of the kernel and
all that it starts, at the moment when their sum was largest, looked at five times a second. The
browser and JupyterLab's own server come on top. Exit code 1 if a notebook took more than the limit
that Binder's 2 GB leave. Linux only: other systems do not tell what processes share.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

from dtoolkit.about import ENOUGH, proportional
from tests.benchmarks import common
from tests.test_notebooks import NOTEBOOKS, solved

LIMIT = ENOUGH / 1e6  # MB in all
PERIOD = 0.2  # seconds between two looks
FIGURES = {"application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"}


@dataclass(frozen=True)
class Row:
    """What one notebook took: seconds, and megabytes at its peak."""

    name: str
    figure: float
    seconds: float
    peak: float
    kernel: float
    largest: float
    processes: int


class Peak(threading.Thread):
    """Watch the descendants of this process until told to stop; keep the largest moment."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.end = threading.Event()
        self.shares: list[float] = [0.0]

    def run(self) -> None:
        me = psutil.Process()
        while not self.end.wait(PERIOD):
            found = [proportional(one.pid) / 1e6 for one in me.children(recursive=True)]
            if sum(found) > sum(self.shares):
                self.shares = found  # the kernel, as the oldest, is the first


def measure(path: Path) -> Row:
    """Run a notebook with its solutions in a kernel of its own."""
    notebook = nbformat.read(path, as_version=4)
    sources = [solved(c, notebook.cells) for c in notebook.cells if c.cell_type == "code"]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = sources.pop(0)
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        record_timing=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    peak, start = Peak(), time.time()
    peak.start()
    client.execute()
    seconds = time.time() - start
    peak.end.set()
    peak.join()
    kernel, *others = peak.shares
    return Row(
        path.stem,
        first_figure(notebook) - start,
        seconds,
        sum(peak.shares),
        kernel,
        max(others, default=0.0),
        len(peak.shares),
    )


def first_figure(notebook: nbformat.NotebookNode) -> float:
    """When the first figure was there, in seconds since the epoch; panels count."""
    for cell in notebook.cells:
        if any(not FIGURES.isdisjoint(out.get("data", {})) for out in cell.get("outputs", [])):
            stamp = cell.metadata["execution"]["shell.execute_reply"]
            return datetime.datetime.fromisoformat(stamp).timestamp()
    return float("nan")


def main() -> int:
    """Measure, print the table, and hold it against the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 01; all by default")
    names = tuple(parser.parse_args().names)
    chosen = [path for path in NOTEBOOKS if not names or path.stem.startswith(names)]
    rows = [measure(path) for path in chosen]
    print(f"\n{common.machine()}\n")
    head = ("notebook", "first figure (s)", "all (s)", "peak PSS (MB)", "kernel", "largest other")
    cells = [
        (r.name, f"{r.figure:.1f}", f"{r.seconds:.0f}", f"{r.peak:,.0f}", f"{r.kernel:,.0f}",
         f"{r.largest:,.0f}", r.processes)
        for r in rows
    ]  # fmt: skip
    print(common.table(cells, (*head, "processes")))
    return common.verdict([common.Check(f"{r.name}, peak MB", r.peak, LIMIT) for r in rows])


if __name__ == "__main__":
    sys.exit(main())
