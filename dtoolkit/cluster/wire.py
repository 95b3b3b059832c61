"""What client and workers say to each other, and how functions and data are pickled.

Functions and classes of a notebook travel by value (cloudpickle). A handle to data that lies on the
workers travels as its key alone and becomes the local object on arrival, wherever it stands in the
arguments.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

import cloudpickle

from dtoolkit.cluster.mesh import Assignment
from dtoolkit.comm.event import Event

__all__ = ["Loss", "Order", "Reply", "dump_call", "load_call"]


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is asked to run.

    Attributes
    ----------
    launch : int
        Number of the launch.
    owner : str
        Cluster that asks; also the topic of its events.
    call : bytes
        The function and its arguments, see :func:`dump_call`.
    assignment : Assignment
    seconds : float
        Time that is left to the launch.
    trace : bool
    keep : str
        Key under which the result stays on the worker; empty to send it back.
    elastic, joined : bool
    offset : float
        Seconds from the worker's ``perf_counter`` to the client's clock.
    free : tuple of str
        Keys of objects that may be forgotten.
    hooks : bool
        Signs of life are counted, or instruments are attached.
    instruments : bytes
        The pickled instruments, if there are any.
    """

    launch: int
    owner: str
    call: bytes
    assignment: Assignment
    seconds: float
    trace: bool
    keep: str
    elastic: bool
    joined: bool
    offset: float
    free: tuple[str, ...] = ()
    hooks: bool = False
    instruments: bytes = b""


@dataclass(frozen=True, slots=True)
class Loss:
    """Why the members of an elastic launch must leave a group.

    Attributes
    ----------
    group : str
        Its name.
    ranks, hung : tuple of int
        Who is lost, and who of those because it gave no sign of life.
    detail : str
        In words.
    """

    group: str
    ranks: tuple[int, ...]
    hung: tuple[int, ...] = ()
    detail: str = ""


@dataclass(slots=True)
class Reply:
    """How a worker's part of a launch ended.

    Attributes
    ----------
    kind : {"done", "raised", "broken", "stopped"}
        Finished; the function raised; a connection broke; told to stop.
    value : bytes
        Pickled result, for "done".
    nbytes : int
        Bytes of the result that was kept.
    cause, traceback, operation : str
        For "raised" and "broken".
    error : bytes
        The pickled exception, where it can be pickled.
    events : list of Event
    log : list of dict
        Metrics that were not sent yet.
    shipped : int
        How many were: they travel another way and may arrive later than this.
    """

    kind: str
    value: bytes = b""
    nbytes: int = 0
    cause: str = ""
    traceback: str = ""
    operation: str = ""
    error: bytes = b""
    events: list[Event] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    shipped: int = 0


def _quickly(kind: type) -> None:
    """Have the objects of a data class pickled as a call with the values of its fields.

    Dataclasses with slots have their state collected and set field by field, in Python.
    """
    values = attrgetter(*(field.name for field in fields(kind)))
    copyreg.pickle(kind, lambda one: (kind, values(one)))


for _kind in (Order, Reply, Assignment, Event):
    _quickly(_kind)


def dump_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[bytes, list[Any]]:
    """Pickle a call; returns the bytes and the handles that stand in its arguments.

    Raises
    ------
    TypeError
        The function or an argument cannot be pickled.
    """
    handles: list[Any] = []
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, handles).dump((function, args, dict(kwargs)))
    except Exception as error:  # whatever a class's own pickling raises
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name} and its arguments must be sent to the workers, but cannot be pickled: {error}"
        ) from error
    return buffer.getvalue(), handles


def load_call(data: bytes, find: Callable[[str], Any]) -> tuple[Any, tuple[Any, ...], dict]:
    """Inverse of :func:`dump_call`; `find` gives the local object of a key."""
    return _Unpickler(io.BytesIO(data), find).load()


class _Pickler(cloudpickle.Pickler):
    def __init__(self, buffer: io.BytesIO, handles: list[Any]) -> None:
        super().__init__(buffer, protocol=5)
        self._handles = handles

    def persistent_id(self, obj: Any) -> str | None:
        remote = getattr(type(obj), "__dtoolkit_remote__", None)
        if remote is None:
            return None
        handle = remote(obj)
        self._handles.append(handle)
        return handle.key


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, find: Callable[[str], Any]) -> None:
        super().__init__(buffer)
        self._find = find

    def persistent_load(self, key: str) -> Any:
        return self._find(key)
