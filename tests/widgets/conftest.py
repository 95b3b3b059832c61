"""What tests of panels share: a matrix that they look at, and a JupyterLab that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dtoolkit as dt
from tests.widgets import browsing, lab


@pytest.fixture(scope="session")
def A():
    """600 rows with hubs; nobody writes on it."""
    return dt.data.power_law(600, 6, seed=5)


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory) -> Iterator[tuple[Path, str]]:
    """A JupyterLab for all modules: its folder and its address."""
    folder = tmp_path_factory.mktemp("lab")
    with lab.server(folder) as address:
        yield folder, address


@pytest.fixture(scope="module")
def lab_page(lab_server) -> Iterator[Callable[..., object]]:
    """Open and run a notebook, as ``lab_page(name, *cells)``; returns its page.

    Chromium is the module's own: as long as playwright is there no other event loop may run.
    """
    with browsing.notebooks(*lab_server) as open_:
        yield open_
