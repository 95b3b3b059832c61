"""The part of a cluster that runs functions: once on every rank, at the same time."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dtoolkit.cluster.instrument import Instrument, check_instruments
from dtoolkit.cluster.launch import Launch
from dtoolkit.cluster.link import WorkerGoneError
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.remote import Remote
from dtoolkit.cluster.terms import FOREVER, Terms, check_deadline
from dtoolkit.cluster.view import View
from dtoolkit.cluster.wire import dump_call
from dtoolkit.errors import WorkerLost

__all__ = ["Launching"]


class Launching(View):
    """Launches, and the data that they leave on the workers."""

    timeout: float | None
    _instruments: tuple[Instrument, ...] = ()

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout: float | None = -1,
        elastic: bool = False,
        deadline: float | None = None,
        instruments: Sequence[Instrument] = (),
        **kwargs: Any,
    ) -> list[Any]:
        """Run ``function(ctx, *args, **kwargs)`` once on every rank at the same time.

        Parameters
        ----------
        function : callable
            May be defined in a notebook cell.
        *args, **kwargs
            Sent to every rank; handles to data on the workers and distributed arrays become the
            rank's own object.
        timeout : float or None
            Seconds until `LaunchTimeout`; by default the cluster's. None: no such end.
        elastic : bool
            A loss raises `PeerLost` in the function on the survivors, which may go on after
            ``ctx.rebuild()``; by default a loss ends all.
        deadline : float, optional
            A rank that gives no sign of life for so many seconds is hung: its process is ended for
            good, within a second more, and it counts as lost. Signs are that its worker answers
            and that the rank waits for others in the communicator, or begins or ends an operation,
            or calls ``ctx.step``, ``ctx.log`` or ``ctx.expose``; imports and compilation count as
            well. By default nobody looks.
        instruments : sequence of Instrument
            What is attached to this launch, beside those of :meth:`instrumented`.

        Returns
        -------
        list
            What the function returned, by rank.

        Raises
        ------
        RankError
            A rank raised; the others were stopped.
        WorkerLost
            A worker was lost, or hung.
        LaunchTimeout
            The timeout passed.
        ClusterTooSmall
            Workers are missing and did not come in time.
        """
        return self._wait(
            self.submit(
                function,
                *args,
                timeout=timeout,
                elastic=elastic,
                deadline=deadline,
                instruments=instruments,
                **kwargs,
            )
        )

    def submit(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout: float | None = -1,
        elastic: bool = False,
        deadline: float | None = None,
        instruments: Sequence[Instrument] = (),
        **kwargs: Any,
    ) -> Launch:
        """Like :meth:`run`, without waiting.

        Returns
        -------
        Launch
        """
        call, handles = dump_call(function, args, kwargs)
        return self._gang.submit(
            _name_of(function),
            lambda members: [call] * len(members),
            Terms(
                self._seconds(timeout),
                elastic=elastic,
                silence=check_deadline(deadline),
                instruments=self._carried(instruments),
            ),
            handles=handles,
        )

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """Instruments that every launch carries now: see :meth:`instrumented`."""
        return self._instruments

    @contextmanager
    def instrumented(self, *instruments: Instrument) -> Iterator[None]:
        """Attach instruments to every launch of this cluster that is started inside.

        Products, arrays and training too. Blocks may stand in each other.

        Raises
        ------
        TypeError
            Something is no instrument.
        """
        before = self._instruments
        self._instruments = (*before, *check_instruments(instruments))
        try:
            yield
        finally:
            self._instruments = before

    def keep(
        self,
        function: Callable[..., Any],
        *args: Any,
        per_rank: Sequence[tuple[Any, ...]] | None = None,
        restore: Callable[[list[int]], object] | None = None,
        into: Remote | None = None,
        timeout: float | None = -1,
        deadline: float | None = None,
        instruments: Sequence[Instrument] = (),
        **kwargs: Any,
    ) -> Remote:
        """Like :meth:`run`, but each rank's result stays on its worker.

        Parameters
        ----------
        function : callable
        *args, **kwargs
        per_rank : sequence of tuple, optional
            Further positional arguments for each rank, sent to that rank alone.
        restore : callable, optional
            ``restore(ranks)`` makes the results of these ranks again after a loss.
        into : Remote, optional
            An existing handle, whose objects are replaced.
        timeout : float or None
        deadline : float, optional
        instruments : sequence of Instrument

        Returns
        -------
        Remote
            A handle; the results are freed when it is dropped.
        """
        key = into.key if into is not None else f"{self._gang.topic}/{uuid.uuid4().hex[:16]}"
        calls, handles = self._calls(function, args, kwargs, per_rank)

        def orders(members: Sequence[Member]) -> list[bytes]:
            if per_rank is None:
                return calls * len(members)
            if len(calls) != len(members):
                raise ValueError(f"per_rank has {len(calls)} tuples for {len(members)} ranks")
            return calls

        launch = self._gang.submit(
            _name_of(function),
            orders,
            Terms(
                self._seconds(timeout),
                keep=key,
                silence=check_deadline(deadline),
                instruments=self._carried(instruments),
            ),
            handles=handles,
        )
        # Also where it fails: some ranks may have kept their results.
        self._gang.placed(key, [m.address for m in self._gang.members])
        try:
            sizes = self._wait(launch)
        except BaseException:
            if into is None:
                launch.add_done_callback(lambda _: self._gang.free(key))
            raise
        self._gang.placed(key, launch.homes)
        if into is not None:
            self._gang.free(key, keep=launch.homes)
            into.homes, into.nbytes = list(launch.homes), sizes
            return into
        return Remote(key, launch.homes, sizes, self._gang.free, restore)

    def put(self, remote: Remote, values: dict[int, Any]) -> None:
        """Put objects under an existing handle on some ranks, where they were lost.

        Parameters
        ----------
        remote : Remote
        values : dict
            Rank to object.
        """
        self._check_open()
        # What was freed under this key and not yet forgotten must not take the new objects along.
        self._gang.ask(self._gang.sweep(), 30.0)
        members = self._gang.members
        for rank, value in values.items():
            call, _ = dump_call(value, (), {})
            address = members[rank].address
            work = self._gang.call(address, "put", remote.key, call, timeout=120.0)
            remote.nbytes[rank] = self._ask_worker(work, rank, 130.0)
            remote.homes[rank] = address
            self._gang.placed(remote.key, [address])

    def fetch(self, remote: Remote, rank: int) -> Any:
        """The object of a handle on one rank, brought to the client."""
        self._check_open()
        work = self._gang.call(remote.homes[rank], "get", remote.key, timeout=300.0)
        return pickle.loads(self._ask_worker(work, rank, 310.0))

    # ------------------------------------------------------------------------------- helpers

    def _calls(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        per_rank: Sequence[tuple[Any, ...]] | None,
    ) -> tuple[list[bytes], list[Remote]]:
        calls, handles = [], []
        for own in [()] if per_rank is None else per_rank:
            call, found = dump_call(function, (*args, *own), kwargs)
            calls.append(call)
            handles += found
        return calls, handles

    def _wait(self, launch: Launch) -> Any:
        try:
            return launch.result()
        except KeyboardInterrupt:
            launch.cancel()
            raise

    def _ask_worker(self, work: Coroutine[Any, Any, Any], rank: int, timeout: float) -> Any:
        try:
            return self._gang.ask(work, timeout)
        except WorkerGoneError as gone:
            raise WorkerLost(
                ranks=[rank], addresses=[gone.address], operation="a transfer of data"
            ) from gone

    def _carried(self, instruments: Sequence[Instrument]) -> tuple[Instrument, ...]:
        return (*self._instruments, *check_instruments(instruments))

    def _seconds(self, timeout: float | None) -> float:
        self._check_open()
        if timeout is None:
            return FOREVER
        if timeout == -1:
            return FOREVER if self.timeout is None else self.timeout
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds or None, got {timeout}")
        return float(timeout)


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))
