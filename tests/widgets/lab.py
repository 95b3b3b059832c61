"""A JupyterLab and a Chromium, started and ended by their handles, to look at panels."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat

PATIENCE = 200.0  # seconds: many times what anything takes, because machines are shared
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), ""
)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
]  # fmt: skip
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


@contextlib.contextmanager
def server(
    folder: Path, *, python: str = sys.executable, start: Sequence[str] = (), base: str = "/"
) -> Iterator[str]:
    """Run JupyterLab over a folder; yields its address with the token in it.

    As Binder does it, an environment of its own (`python`), a command that starts it (`start`), and
    an address that does not begin at the root (`base`).
    """
    token = secrets.token_hex(8)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = folder / ".lab"
    env = {**os.environ, "IPYTHONDIR": str(own / "ipython")}
    for kind in ("CONFIG", "DATA", "RUNTIME"):
        env[f"JUPYTER_{kind}_DIR"] = str(own / kind.lower())
    for kind in ("SETTINGS", "WORKSPACES"):
        env[f"JUPYTERLAB_{kind}_DIR"] = str(own / kind.lower())
    news = own / "settings" / "@jupyterlab" / "apputils-extension"
    news.mkdir(parents=True)
    (news / "notification.jupyterlab-settings").write_text(
        '{"fetchNews": "false", "checkForUpdates": false}'
    )
    command = [
        *start, python, "-m", "jupyterlab", "--allow-root", "--no-browser", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True",
        f"--ServerApp.base_url={base}",
    ]  # fmt: skip
    with open(own / "log", "w") as log:
        process = subprocess.Popen(
            command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}{base.rstrip('/')}"
    try:
        _await(address, process, own / "log")
        yield f"{address}/lab/tree/{{}}?token={token}&reset"
    finally:
        process.send_signal(signal.SIGTERM)  # ends the kernels too
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@contextlib.contextmanager
def browser(folder: Path, **options: object) -> Iterator[object]:
    """Run Chromium with a profile of its own; yields playwright's context."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder / "profile",
            executable_path=BROWSER,
            headless=True,
            args=ARGUMENTS,
            accept_downloads=True,
            **{"viewport": {"width": 1400, "height": 1100}, **options},
        )
        context.set_default_timeout(1000 * PATIENCE)
        try:
            yield context
        finally:
            context.close()


def write_notebook(path: Path, *cells: str) -> None:
    """Write a notebook of code cells."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(made, path)


def open_notebook(page: object, address: str, name: str) -> None:
    """Open a notebook and wait for its kernel."""
    page.goto(address.format(name))
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=1000 * PATIENCE)
    page.evaluate(
        """async () => {
             const session = jupyterapp.shell.currentWidget.context.sessionContext;
             await session.ready;
             await session.session.kernel.info;
             jupyterapp.shell.collapseLeft();
           }"""
    )


def run_all(page: object) -> bool:
    """Run all cells; False if one raised."""
    return page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")


def set_theme(page: object, theme: str) -> None:
    """Change JupyterLab's theme."""
    page.evaluate(
        "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", THEMES[theme]
    )
    wanted = "true" if theme == "light" else "false"
    page.wait_for_selector(
        f"body[data-jp-theme-light='{wanted}']", state="attached", timeout=1000 * PATIENCE
    )


def _await(address: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{address}/api", timeout=1).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")
