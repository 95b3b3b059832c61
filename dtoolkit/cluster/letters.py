"""Messages from the owner of a launch to its ranks while it runs: both ends of their way.

They are small and seldom: a request to stop, a setting that changes. Each rank gets all of them, in
the order in which they were sent, and takes them when it likes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["Mailbox", "Outbox", "check_message"]


class Outbox:
    """What the client has sent and the ranks have not been told yet."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[Any] = deque()
        self._wake: Callable[[], object] | None = None
        self._closed = False

    def put(self, message: Any) -> bool:
        """Add a message, from any thread; False where the launch has ended."""
        with self._guard:
            if self._closed:
                return False
            self._waiting.append(message)
            wake = self._wake
        if wake is not None:
            wake()
        return True

    def open(self, wake: Callable[[], object]) -> None:
        """There are ranks now: `wake` is called for what waits and for all that comes."""
        with self._guard:
            self._wake = wake
            waiting = bool(self._waiting)
        if waiting:
            wake()

    def take(self) -> list[Any]:
        """All that waits, in order."""
        with self._guard:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def close(self) -> None:
        """The launch has ended: nothing can be sent any more."""
        with self._guard:
            self._closed, self._wake = True, None
            self._waiting.clear()


class Mailbox:
    """What has come for the launches of one worker, which may not have begun there yet."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._came: dict[tuple[str, int], list[Any]] = {}
        self._ended: dict[str, int] = {}

    def put(self, owner: str, launch: int, messages: list[Any]) -> None:
        """Add messages for a launch; those for one that has ended are dropped."""
        with self._guard:
            if launch > self._ended.get(owner, 0):
                self._came.setdefault((owner, launch), []).extend(messages)

    def take(self, owner: str, launch: int) -> list[Any]:
        """All that has come for a launch since the last call, in order."""
        if (owner, launch) not in self._came:  # the usual case, without the lock
            return []
        with self._guard:
            return self._came.pop((owner, launch), [])

    def end(self, owner: str, launch: int) -> None:
        """Forget a launch and those before it: an owner has one at a time."""
        with self._guard:
            self._ended[owner] = max(launch, self._ended.get(owner, 0))
            for key in [k for k in self._came if k[0] == owner and k[1] <= launch]:
                del self._came[key]

    def close(self, owner: str) -> None:
        """Forget an owner."""
        with self._guard:
            self._ended.pop(owner, None)
            for key in [k for k in self._came if k[0] == owner]:
                del self._came[key]


def check_message(value: Any, where: str = "message", *, operation: str = "send") -> None:
    """Refuse what is no plain value: None, booleans, numbers, text, lists, dicts.

    Raises
    ------
    TypeError
        Naming what is not, and where it stands.
    """
    if value is None or type(value) in (bool, int, float, str):
        return
    if type(value) is list:
        for number, one in enumerate(value):
            check_message(one, f"{where}[{number}]", operation=operation)
        return
    if type(value) is dict:
        for name, one in value.items():
            if type(name) is not str:
                raise TypeError(f"{operation}: a name in {where} is {name!r}; names are text")
            check_message(one, f"{where}[{name!r}]", operation=operation)
        return
    raise TypeError(
        f"{operation}: {where} is {type(value).__name__}; numbers, text, booleans, None, and lists "
        "and dicts of them travel. Data go with cluster.put or as arguments of a launch"
    )
