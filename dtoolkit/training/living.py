"""Signs of life while a rank does what takes long and tells nothing of itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtoolkit.cluster import Context

__all__ = ["living"]

_BETWEEN = 0.5  # seconds between two signs


@contextmanager
def living(ctx: Context) -> Iterator[None]:
    """Give signs of life from another thread while what is inside runs: it may load for minutes.

    A process that is stopped gives none.
    """
    over = threading.Event()

    def signs() -> None:
        while not over.wait(_BETWEEN):
            ctx.alive()

    thread = threading.Thread(target=signs, name="dtoolkit-living", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
