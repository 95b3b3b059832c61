"""Metrics of a rank on their way to the client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Shipping"]

_BATCH = 0.03  # seconds between two shipments of metrics


class Shipping:
    """Messages in small batches.

    Parameters
    ----------
    launch : int
        Number of the launch, which is written on every message.
    loop : asyncio.AbstractEventLoop
        Whose time is used to wait for more; it is the worker's.
    emit : callable
        ``emit(messages)`` sends them.
    """

    def __init__(
        self,
        launch: int,
        loop: asyncio.AbstractEventLoop,
        emit: Callable[[list[dict[str, Any]]], object],
    ) -> None:
        self._launch, self._loop, self._emit = launch, loop, emit
        self._guard = threading.Lock()
        self._waiting: list[dict[str, Any]] = []
        self._shipped = 0
        self._last = 0.0
        self._timer = False
        self._over = False

    def add(self, message: dict[str, Any]) -> None:
        """Ship a message now, or with others a moment later."""
        with self._guard:
            self._waiting.append({"launch": self._launch, **message})
            if self._timer:
                return
            if time.perf_counter() - self._last > _BATCH:
                self._ship()
                return
            self._timer = True
        self._loop.call_soon_threadsafe(self._loop.call_later, _BATCH, self._ring)

    def rest(self) -> tuple[list[dict[str, Any]], int]:
        """What has not been shipped, and how many messages have been; nothing goes after that."""
        with self._guard:
            self._over = True
            rest, self._waiting = self._waiting, []
            return rest, self._shipped

    def _ring(self) -> None:
        with self._guard:
            self._timer = False
            if self._waiting and not self._over:
                self._ship()

    def _ship(self) -> None:
        items, self._waiting = self._waiting, []
        self._shipped += len(items)
        self._last = time.perf_counter()
        self._emit(items)
