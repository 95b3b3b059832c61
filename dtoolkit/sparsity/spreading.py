"""Compiled loops over threads: chunks of work, which threads take one after another.

Kernels release the GIL and write where no other chunk does, so that nothing is locked and the
result does not depend on the number of threads. Plain threads do it, not Numba's own: those abort
a process that was forked, or that calls from two threads at once.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

__all__ = ["compiled", "spread"]

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}  # by process and number of threads


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the GIL; sums may be taken in lanes, the same on every run."""
    import numba

    options: dict[str, Any] = {
        "nogil": True,
        "boundscheck": False,
        "error_model": "numpy",
        "fastmath": {"reassoc", "contract", "nsz"},
    }
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # Numba found no folder for its cache: compile in each process
        return numba.njit(**options)(function)


def spread(kernel: Callable[..., Any], chunks: int, *arguments: Any) -> None:
    """Call ``kernel(chunk, *arguments)`` for every chunk, on as many threads as torch has.

    Parameters
    ----------
    kernel : compiled function
    chunks : int
    *arguments
        Arrays and numbers, the same for all chunks.
    """
    threads = min(torch.get_num_threads(), chunks)
    if threads <= 1:
        for chunk in range(chunks):
            kernel(chunk, *arguments)
        return
    numbers = itertools.count()

    def work() -> None:
        while (chunk := next(numbers)) < chunks:
            kernel(chunk, *arguments)

    others = [_pool(threads - 1).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for other in others:
            other.result()


def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads of this process; a fork has none of its parent's."""
    key = os.getpid(), threads
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="dtoolkit-kernels")
    return _pools[key]
