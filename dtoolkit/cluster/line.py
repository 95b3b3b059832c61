"""A direct line between the client and a worker of this machine.

A call through Dask's own RPC costs both ends most of a millisecond of processor time, and a launch
takes one to each worker. On a line it costs a few system calls: frames on one connection that stays
open, pickled, answered in whatever order the answers come.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import pickle
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

import cloudpickle

__all__ = ["Line", "Place", "listen"]

Place = tuple[str, int, bytes]
"""Where a worker listens: host, port, and the secret that a caller must know."""

_LENGTH, _NUMBER = 8, 8  # bytes in front of a frame, and of what it says


async def listen(host: str, call: Callable[..., Awaitable[Any]]) -> Place:
    """Answer calls that come at `host`, for as long as the process lives.

    Parameters
    ----------
    host : str
        Address to bind.
    call : coroutine function
        ``await call(method, *args)`` gives the answer.

    Returns
    -------
    Place
    """
    secret = secrets.token_bytes(16)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Callee(call, secret), host, 0)
    return host, server.sockets[0].getsockname()[1], secret


class _Frames(asyncio.Protocol, ABC):
    """Frames with their length in front."""

    def __init__(self) -> None:
        self._came = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; asyncio calls it."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take the frames that are whole; asyncio calls it."""
        self._came += data
        while len(self._came) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._came[:_LENGTH], "big")
            if len(self._came) < end:
                return
            with memoryview(self._came) as whole, whole[_LENGTH:end] as frame:
                self._take(frame)
            del self._came[:end]

    def _say(self, number: int, content: bytes) -> None:
        size = (_NUMBER + len(content)).to_bytes(_LENGTH, "big")
        self._transport.write(b"".join((size, number.to_bytes(_NUMBER, "big"), content)))

    @abstractmethod
    def _take(self, frame: memoryview) -> None:
        """Deal with one frame, which is gone afterwards."""


class Line(_Frames):
    """The caller's end.

    Attributes
    ----------
    broken : bool
        The connection is gone: the worker is, or has closed it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}

    @classmethod
    async def open(cls, host: str, port: int, secret: bytes) -> Line:
        """Connect to a worker.

        Raises
        ------
        OSError
            It cannot be reached.
        """
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(cls, host, port)
        line._transport.write(secret)
        return line

    async def ask(self, method: str, args: tuple[Any, ...]) -> Any:
        """Call, and wait for the answer; one that cannot be read here is returned as the error.

        Raises
        ------
        OSError
            The connection broke.
        """
        return await self.start(method, args)

    def start(self, method: str, args: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Call; the future gets the answer, or what :meth:`ask` raises."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.broken:
            answer.set_exception(ConnectionError("the line is closed"))
            return answer
        number = next(self._numbers)
        content = pickle.dumps((method, args), protocol=5)
        self._asked[number] = answer
        answer.add_done_callback(lambda _: self._asked.pop(number))
        self._say(number, content)
        return answer

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who waits; asyncio calls it."""
        self.broken = True
        for answer in list(self._asked.values()):
            if not answer.done():
                answer.set_exception(ConnectionError(f"the line broke: {error or 'closed'}"))

    def _take(self, frame: memoryview) -> None:
        answer = self._asked.get(int.from_bytes(frame[:_NUMBER], "big"))
        if answer is None or answer.done():  # nobody waits for it any more
            return
        try:
            answer.set_result(pickle.loads(frame[_NUMBER:]))
        except Exception as error:
            answer.set_result(error)


class _Callee(_Frames):
    """The worker's end."""

    def __init__(self, call: Callable[..., Awaitable[Any]], secret: bytes) -> None:
        super().__init__()
        self._call = call
        self._secret: bytes | None = secret
        self._answering: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        """Ask for the secret first; nothing is unpickled for somebody who does not know it."""
        if self._secret is not None:
            self._came += data
            size = len(self._secret)
            if len(self._came) < size:
                return
            if not hmac.compare_digest(self._came[:size], self._secret):
                self._transport.abort()
                return
            del self._came[:size]
            self._secret, data = None, b""
        super().data_received(data)

    def _take(self, frame: memoryview) -> None:
        number = int.from_bytes(frame[:_NUMBER], "big")
        task = asyncio.ensure_future(self._answer(number, bytes(frame[_NUMBER:])))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, number: int, content: bytes) -> None:
        try:
            method, args = pickle.loads(content)
            answer = await self._call(method, *args)
        except Exception as error:
            answer = error
        try:
            said = pickle.dumps(answer, protocol=5)
        except Exception:  # of a class that only cloudpickle can take along
            said = cloudpickle.dumps(answer, protocol=5)
        if not self._transport.is_closing():
            self._say(number, said)
