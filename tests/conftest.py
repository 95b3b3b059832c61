"""What all tests share: where their inputs are, and one cluster for those that only use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the public inputs; the test is skipped by name where it is absent."""
    root = Path(os.environ.get("DTOOLKIT_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no test data at {root}: set DTOOLKIT_TEST_DATA")
    return root
