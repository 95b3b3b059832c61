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
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

from tests.benchmarks import common
from tests.test_notebooks import NOTEBOOKS, first_figure, solved

LIMIT = 1500.0  # MB in all
PERIOD = 0.2  # seconds between two looks


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
            found = [share(one.pid) for one in me.children(recursive=True)]
            if sum(found) > sum(self.shares):
                self.shares = found  # the kernel, as the oldest, is the first


def share(pid: int) -> float:
    """Megabytes of a process, what it shares divided by those that share it; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    line = next((line for line in text.splitlines() if line.startswith("Pss:")), "Pss: 0 kB")
    return float(line.split()[1]) * 1024 / 1e6


def measure(path: Path) -> Row:
    """Run a notebook with its solutions in a kernel of its own."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [solved(cell, notebook.cells) for cell in notebook.cells]
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
