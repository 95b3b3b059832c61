"""Where the ranks of a group find each other: a small key-value store on one of the workers.

torch's own store asks the name server for the name of every address that it connects to; a laptop
without network waits 5 seconds for each. This one runs on the event loop of a Dask worker and knows
three words: set, get (which waits for the key), and check.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch.distributed import Store

__all__ = ["StoreClient", "StoreServer"]

_SET, _GET, _CHECK = b"s", b"g", b"c"
_LENGTH = struct.Struct("!I")


class StoreServer:
    """Serves a store; lives on an event loop, and until :meth:`close`."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = 0

    async def open(self, host: str) -> None:
        """Listen on a free port of an address."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening, and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                word = await reader.readexactly(1)
                writer.write(_framed(await self._answer(word, reader)))
                await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):
            return  # the rank is done, or gone, or this group is
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, word: bytes, reader: asyncio.StreamReader) -> bytes:
        key = await _read(reader)
        if word == _SET:
            value = await _read(reader)
            async with self._changed:
                self._values[key] = value
                self._changed.notify_all()
            return b""
        if word == _CHECK:
            return b"1" if key in self._values else b""
        async with self._changed:
            await self._changed.wait_for(lambda: key in self._values)
        return self._values[key]


class StoreClient(Store):
    """The store as torch's process groups use it, from any thread.

    Parameters
    ----------
    host : str
    port : int
    timeout : float
        Seconds to connect, and to wait for a key.

    Raises
    ------
    OSError
        By every method: the worker with the store cannot be reached, or the key did not come.
    """

    def __init__(self, host: str, port: int, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout
        self._guard = threading.Lock()
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def set(self, key: str, value: bytes | str) -> None:
        """Put a value under a key."""
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._ask(_SET + _framed(key.encode()) + _framed(data), self._timeout)

    def get(self, key: str) -> bytes:
        """The value of a key; waits until there is one."""
        return self._ask(_GET + _framed(key.encode()), self._timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have values."""
        return all(self._ask(_CHECK + _framed(k.encode()), self._timeout) for k in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values."""
        seconds = self._timeout if timeout is None else timeout.total_seconds()
        for key in keys:
            self._ask(_GET + _framed(key.encode()), seconds)

    def clone(self) -> StoreClient:
        """The store itself: one connection serves all users."""
        return self

    def has_extended_api(self) -> bool:
        """Whether there are more words; there are not."""
        return False

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _ask(self, question: bytes, seconds: float) -> bytes:
        with self._guard:
            self._socket.settimeout(seconds)
            self._socket.sendall(question)
            return self._receive(_LENGTH.unpack(self._receive(_LENGTH.size))[0])

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the worker with the store of the group is gone")
            data += part
        return data


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


async def _read(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(_LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0])
