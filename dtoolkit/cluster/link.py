"""How the client reaches the workers and the scheduler of a Dask cluster.

Workers of this machine are called on direct lines and the scheduler, which runs in this process, is
looked at; everything else goes through the scheduler, the one address that a client surely reaches.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import cloudpickle
from distributed import Client
from distributed.core import clean_exception

from dtoolkit.cluster import runtime, turns
from dtoolkit.cluster.line import Line
from dtoolkit.errors import DtoolkitError, LaunchTimeout, VersionMismatch

__all__ = ["Link", "WorkerGoneError"]

_POLL = 0.03  # seconds between two questions for the turn


class WorkerGoneError(Exception):
    """A worker cannot be reached, or did not answer in time.

    Attributes
    ----------
    address : str
    """

    def __init__(self, address: str, why: object = "") -> None:
        self.address = address
        super().__init__(f"{address}: {why or 'no answer'}")


class Link:
    """Calls to the workers, membership, and the turn.

    Parameters
    ----------
    client : distributed.Client
    scheduler : distributed.Scheduler or None
        The scheduler, where it runs in this process on the client's event loop.
    """

    def __init__(self, client: Client, scheduler: Any = None) -> None:
        self.client = client
        self._scheduler = scheduler
        self._lines: dict[str, Line] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def local(self) -> bool:
        """Whether scheduler and workers are on this machine, and ours."""
        return self._scheduler is not None

    async def call(
        self, address: str, method: str, *args: Any, timeout: float = 30.0, watch: bool = True
    ) -> Any:
        """Call a method of a worker's runtime.

        Parameters
        ----------
        address, method, *args
        timeout : float
            Seconds.
        watch : bool
            Look at the membership meanwhile: a call to a dead worker goes on trying. False where
            somebody else does.

        Raises
        ------
        WorkerGoneError
            The worker cannot be reached, or did not answer in time.
        VersionMismatch
            The worker does not have dtoolkit, or another one.
        """
        work = self._directly if self.local else self._through_scheduler
        asked = work(address, method, args)
        try:
            async with asyncio.timeout(timeout):
                answer = await (self._watched(asked, address) if watch else asked)
        except (TimeoutError, OSError, KeyError) as error:
            raise WorkerGoneError(address, error) from error
        return _value(address, answer)

    def start(self, address: str, method: str, *args: Any, timeout: float) -> asyncio.Future[Any]:
        """Like :meth:`call` without the watching, in as few steps as there can be.

        Parameters
        ----------
        address, method, *args
        timeout : float
            Seconds; does not count on a line that is open, where the caller must see to it.

        Returns
        -------
        asyncio.Future
            Gets what :meth:`call` returns or raises.
        """
        line = self._lines.get(address)
        if not self.local or line is None or line.broken:
            return asyncio.ensure_future(
                self.call(address, method, *args, timeout=timeout, watch=False)
            )
        asked = line.start(method, args)
        result: asyncio.Future[Any] = asked.get_loop().create_future()

        def heard(answer: asyncio.Future[Any]) -> None:
            error = answer.exception()
            if result.done():  # nobody waits for it any more
                return
            try:
                if error is not None:
                    raise WorkerGoneError(address, error) from error
                result.set_result(_value(address, answer.result()))
            except Exception as failure:
                result.set_exception(failure)

        asked.add_done_callback(heard)
        return result

    async def present(self) -> list[str]:
        """Addresses of the workers that the scheduler knows, in a stable order."""
        addresses: list[str] = await self._ask(turns.addresses_of)
        return addresses

    @asynccontextmanager
    async def turn(
        self, owner: str, number: int, label: str, seconds: float, tell: Callable[[str], None]
    ) -> AsyncIterator[tuple[str, ...]]:
        """Hold the turn among all clusters on this Dask cluster.

        Parameters
        ----------
        owner, number, label : str, int, str
            See :meth:`dtoolkit.cluster.turns.Turns.take`.
        seconds : float
            How long to wait for it.
        tell : callable
            Is told, in words, what it waits behind.

        Yields
        ------
        tuple of str
            Owners that are gone and whose leavings the workers may forget.

        Raises
        ------
        LaunchTimeout
        """
        end = time.perf_counter() + seconds
        try:
            while True:
                answer = await self._ask(turns.take_turn, owner, number, label, self.client.id)
                if answer.granted:
                    break
                tell(f"queued behind {answer.behind}")
                if time.perf_counter() > end:
                    raise LaunchTimeout(
                        ranks=(),
                        addresses=(),
                        timeout=seconds,
                        operation=label,
                        detail=f"it waited for its turn behind {answer.behind}",
                    )
                await asyncio.sleep(_POLL)
            yield answer.orphans
        finally:
            await self._tell(turns.give_up_turn, owner, number)

    async def _watched(self, work: Coroutine[Any, Any, Any], address: str) -> Any:
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([task], timeout=0.05 if self.local else 0.5))[0]:
                if address not in await self.present():
                    raise OSError("it has left the cluster")
            return task.result()
        finally:
            task.cancel()

    async def restart(self, address: str) -> bool:
        """Ask the nanny of a worker to end it and to start another; False if there is none."""
        try:
            await self.client._restart_workers([address], timeout=20.0, raise_for_error=False)
        except (ValueError, OSError):
            return False
        return True

    def hang_up(self) -> None:
        """Close the lines to the workers."""
        for line in self._lines.values():
            line.close()

    async def leave(self, owner: str) -> None:
        """Let the scheduler forget an owner."""
        await self._tell(turns.leave, owner)

    async def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._scheduler is not None:
            return function(*args, dask_scheduler=self._scheduler)
        return await self.client._run_on_scheduler(function, *args)

    async def _tell(self, function: Callable[..., Any], *args: Any) -> None:
        """Like `_ask`, where nobody waits for the answer and nobody needs it if all is gone."""
        if self._scheduler is not None:
            function(*args, dask_scheduler=self._scheduler)
            return
        work = asyncio.ensure_future(self.client._run_on_scheduler(function, *args))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _directly(self, address: str, method: str, args: tuple[Any, ...]) -> Any:
        line = self._lines.get(address)
        if line is None or line.broken:
            async with self._opening[address]:
                line = self._lines.get(address)
                if line is None or line.broken:
                    line = self._lines[address] = await self._open(address)
        return await line.ask(method, args)

    async def _open(self, address: str) -> Line:
        """A line to a worker, which is asked by Dask's own way where it listens."""
        response = await self.client.rpc(address).run(function=_CALL, args=_LISTEN, wait=True)
        if response["status"] != "OK":
            raise OSError(clean_exception(**response)[1])
        place, raised = response["result"]
        if raised is not None:
            raise raised
        return await Line.open(*place)

    async def _through_scheduler(self, address: str, method: str, args: tuple[Any, ...]) -> Any:
        answers = await self.client._run(
            runtime.call, method, *args, workers=[address], on_error="return"
        )
        return answers[address]


def _value(address: str, answer: Any) -> Any:
    """What a worker's method returned, or the raising of what it raised."""
    if isinstance(answer, OSError | TimeoutError):
        raise WorkerGoneError(address, answer) from answer
    if isinstance(answer, ImportError | AttributeError | pickle.UnpicklingError):
        raise VersionMismatch(
            f"worker {address} cannot run this dtoolkit ({type(answer).__name__}: {answer}): "
            "install the same version there and here"
        ) from answer
    if isinstance(answer, BaseException):
        raise DtoolkitError(f"worker {address} failed: {answer!r}") from answer
    value, raised = answer
    if raised is not None:
        raise raised
    return value


_CALL = cloudpickle.dumps(runtime.call)
_LISTEN = cloudpickle.dumps(("listen",))
