"""Start JupyterLab as Binder does, open the first notebook in Chromium, and look around."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from tests.widgets import browsing, lab

FIRST = "00-start-here"
BASE = "/user/somebody/"
MOST = 1.5e9  # bytes of proportional memory, of all processes


def main(home: Path, python: str) -> None:
    """Open the notebook, follow the link to the dashboard, weigh all processes."""
    os.environ["JUPYTERHUB_SERVICE_PREFIX"] = BASE
    start = ("bash", str(home / "binder" / "start"))
    with (
        tempfile.TemporaryDirectory() as folder,
        lab.server(home / "notebooks", python=python, start=start, base=BASE) as address,
        lab.browser(Path(folder)) as context,
    ):
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        began = time.monotonic()
        lab.open_notebook(page, address, f"{FIRST}.ipynb")
        assert lab.run_all(page), f"a cell of {FIRST} raised"
        page.locator(".js-plotly-plot").first.wait_for()
        print(f"{FIRST}: run with figures {time.monotonic() - began:.1f} s after it was opened")
        page.locator(browsing.PANEL).first.wait_for()
        memory = weighed()
        print(f"memory of all processes: {memory / 1e9:.2f} GB (proportional)")
        assert memory < MOST, memory
        page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")
        lab.write_notebook(home / "notebooks" / "link.ipynb", *LINK)
        lab.open_notebook(page, address, "link.ipynb")
        assert lab.run_all(page), "a cluster was not made"
        link = page.locator(".jp-OutputArea-output pre").last.inner_text().strip()
        assert link.startswith(BASE), link
        status = follow(address, link)
        print(f"dashboard {link}: {status}")
        assert status == 200
        assert faults == [], faults


LINK = (
    "import dtoolkit as dt",
    "cluster = dt.Cluster(workers=2)\nprint(cluster.dashboard)",
)


def follow(address: str, link: str) -> int:
    """HTTP status of a link on the server."""
    host, token = address.partition(BASE)[0], address.partition("token=")[2].partition("&")[0]
    with urllib.request.urlopen(f"{host}{link}?token={token}", timeout=60) as answer:
        return int(answer.status)


def weighed() -> int:
    """Proportional memory of the server and all that it started, in bytes."""
    mine = psutil.Process()
    servers = [p for p in mine.children() if "jupyterlab" in " ".join(p.cmdline())]
    tree = [p for server in servers for p in (server, *server.children(recursive=True))]
    return sum(p.memory_full_info().pss for p in tree)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
