"""Imported last by the fork server: what it holds is shared by its workers.

What Numba builds before its first function runs, a third of a second and 35 MB, is built here once
and not in each worker.

A garbage collection writes into every object that it looks at, so that each forked worker would
soon have a copy of its own of all modules that it shares with the fork server: some 80 MB a worker.
Frozen objects are not looked at.
"""

from __future__ import annotations

import gc

import numba


@numba.njit
def _first() -> None:
    """Nothing: compiled so that others are compiled, or loaded, sooner."""


_first()
gc.collect()
gc.freeze()
