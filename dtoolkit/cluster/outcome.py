"""How a launch comes to its end: awaited surely, its error made of what a rank said."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Coroutine
from typing import Any

from dtoolkit.cluster.wire import Reply
from dtoolkit.errors import RankError

__all__ = ["lists", "rank_error", "surely"]


def rank_error(rank: int, address: str, reply: Reply) -> RankError:
    """The error of a rank whose function raised; the original is its cause, where it travels."""
    error = RankError(
        rank=rank,
        address=address,
        operation=reply.operation,
        cause=reply.cause,
        traceback=reply.traceback,
    )
    if reply.error:
        try:
            error.__cause__ = pickle.loads(reply.error)
        except Exception:  # its class is not importable here: the text says it all
            error.__cause__ = None
    return error


async def surely(work: Coroutine[Any, Any, Any]) -> Any:
    """Await to the end, whoever cancels the waiting meanwhile; raise the cancellation after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


def lists(value: Any) -> Any:
    """Lists again, where the way made tuples of them."""
    if isinstance(value, dict):
        return {name: lists(one) for name, one in value.items()}
    return [lists(one) for one in value] if isinstance(value, list | tuple) else value
