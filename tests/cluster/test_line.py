"""The direct line between client and worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dtoolkit.cluster.line import Line, listen


def with_line(use: Callable[[Line], Coroutine[Any, Any, None]]) -> None:
    """Run `use` on a line to :func:`call`."""

    async def body() -> None:
        line = await Line.open(*await listen("127.0.0.1", call))
        try:
            await use(line)
        finally:
            line.close()

    asyncio.run(asyncio.wait_for(body(), 20))


async def call(method: str, *args: Any) -> Any:
    if method == "later":
        await asyncio.sleep(0.05)
    if method == "fail":
        raise ValueError("as asked")
    return (method, *args)


def test_answers_come_in_their_own_order() -> None:
    async def use(line: Line) -> None:
        first = asyncio.ensure_future(line.ask("later", (1,)))
        assert await line.ask("now", (2,)) == ("now", 2)
        assert not first.done()
        assert await first == ("later", 1)

    with_line(use)


def test_large_calls_come_whole() -> None:
    async def use(line: Line) -> None:
        data = bytes(range(256)) * 40_000
        calls = [line.ask("echo", (i, data)) for i in range(3)]
        assert await asyncio.gather(*calls) == [("echo", i, data) for i in range(3)]

    with_line(use)


def test_errors_and_what_only_cloudpickle_can_send_travel() -> None:
    async def use(line: Line) -> None:
        error = await line.ask("fail", ())
        assert isinstance(error, ValueError)
        assert "as asked" in str(error)

    with_line(use)

    async def local(method: str) -> Any:
        class Local(Exception):
            pass

        return Local("made here")

    async def body() -> None:
        line = await Line.open(*await listen("127.0.0.1", local))
        assert "made here" in str(await line.ask("any", ()))
        line.close()

    asyncio.run(asyncio.wait_for(body(), 20))


def test_broken_line_raises_at_once() -> None:
    async def use(line: Line) -> None:
        waiting = asyncio.ensure_future(line.ask("later", ()))
        await asyncio.sleep(0.01)
        line.close()
        with pytest.raises(ConnectionError):
            await waiting
        assert line.broken
        with pytest.raises(ConnectionError):
            await line.ask("now", ())

    with_line(use)


def test_who_does_not_know_the_secret_is_hung_up_on() -> None:
    called = []

    async def note(method: str) -> None:
        called.append(method)

    async def body() -> None:
        host, port, secret = await listen("127.0.0.1", note)
        wrong = bytes(len(secret))
        line = await Line.open(host, port, wrong)
        with pytest.raises(ConnectionError):
            await line.ask("any", ())
        with pytest.raises(ConnectionError):
            await line.ask("any", ())

    asyncio.run(asyncio.wait_for(body(), 20))
    assert not called


def test_secret_may_come_in_pieces() -> None:
    async def body() -> None:
        host, port, secret = await listen("127.0.0.1", call)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(secret[:5])
        await asyncio.sleep(0.02)
        writer.write(secret[5:])
        line = Line()
        line.connection_made(writer.transport)
        answer = asyncio.ensure_future(line.ask("now", ()))
        length = int.from_bytes(await reader.readexactly(8), "big")
        line.data_received(length.to_bytes(8, "big") + await reader.readexactly(length))
        assert await answer == ("now",)
        writer.close()

    asyncio.run(asyncio.wait_for(body(), 20))


def test_a_call_that_is_started_is_sent_at_once_and_an_answer_may_be_ignored() -> None:
    async def use(line: Line) -> None:
        first, second = line.start("later", (1,)), line.start("now", (2,))
        first.cancel()  # its answer comes all the same, and is dropped
        assert await second == ("now", 2)
        await asyncio.sleep(0.1)
        assert await line.ask("now", (3,)) == ("now", 3)
        line.close()
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionError):
            await line.start("now", (4,))

    with_line(use)
