"""A matrix that panels look at."""

from __future__ import annotations

import pytest

import dtoolkit as dt


@pytest.fixture(scope="session")
def A():
    """600 rows with hubs; nobody writes on it."""
    return dt.data.power_law(600, 6, seed=5)
