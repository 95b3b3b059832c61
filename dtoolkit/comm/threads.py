"""Starting threads so that a rank can be stopped meanwhile.

Python raises an exception in another thread by that thread's number, and a thread that is just
being started still has the number of the thread that starts it: it would get the exception, and its
parent would wait for it for ever. So threads are started, and exceptions raised, one at a time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

__all__ = ["raise_in", "start_thread"]

_one_at_a_time = threading.Lock()


def start_thread(name: str, target: Callable[[], object]) -> threading.Thread:
    """Start a daemon thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    with _one_at_a_time:
        thread.start()
    return thread


def raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    """Raise an exception at a thread's next Python instruction; None takes one back."""
    with _one_at_a_time:
        if thread.ident is not None and thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), None if error is None else ctypes.py_object(error)
            )
