"""A reduced form of the tests for CI: of each test with many cases some, drawn by the commit.

The README's command alone runs all of them. Where a test function is parametrized more than MOST
times, MOST cases are drawn by the commit's hash: a run can be repeated, and over many commits all
come. Notebooks' cells, and functions of fewer cases, are left as they are.
"""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict

import pytest

MOST = 3


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the cases that are drawn, in their order."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=config.rootpath, capture_output=True, text=True
    ).stdout.strip()
    cases = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            cases[item.nodeid.split("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for name, found in cases.items():
        spare = max(0, len(found) - MOST)
        left_out.update(random.Random(f"{commit} {name}").sample(found, spare))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
