"""The cluster: where launches run."""

from __future__ import annotations

import os
import pickle
import threading
import uuid
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from distributed import Client

from dtoolkit.cluster.arguments import check_arguments, gpus_of
from dtoolkit.cluster.gang import Gang
from dtoolkit.cluster.launch import Launch
from dtoolkit.cluster.link import WorkerGoneError
from dtoolkit.cluster.local import LocalWorkers
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.nodes import check_emulation, ranks_to_emulate
from dtoolkit.cluster.remote import Remote
from dtoolkit.cluster.view import View
from dtoolkit.cluster.wire import dump_call
from dtoolkit.comm.network import Network
from dtoolkit.comm.trace import Trace
from dtoolkit.errors import WorkerLost

__all__ = ["Cluster"]


class Cluster(View):
    """Worker processes that run one function at the same time, each as one rank.

    Parameters
    ----------
    workers : int, optional
        Ranks. On this machine: processes to start; by default one for each GPU, or one for each
        core, at most 4. With `client`: workers that each launch takes; by default all that are
        there.
    client : distributed.Client, optional
        A client of any Dask cluster (CUDA, SSH, Slurm, Kubernetes): its workers are used, and left
        alone at the end.
    threads : int
        Threads a worker computes with (local workers).
    memory_limit : int, float, str or None
        Memory of a worker as Dask takes it (local workers); by default an equal share.
    device : {"cpu", "cuda"}, optional
        Where local workers compute; by default on GPUs if there are any.
    interface : str, optional
        Network interface that local workers bind; by default the loopback.
    timeout : float or None
        Seconds that a launch may take where it does not say so itself.
    emulate : Network, optional
        Hold every message between workers back until this network would have delivered it, so that
        a slower one can be felt on one machine; its ranks are the workers. Computing is as fast as
        it is. Traces, cards and figures say "emulated".

    Attributes
    ----------
    trace : Trace
        What the ranks sent, over all launches since the last ``trace.clear()``.
    client : distributed.Client
    emulate : Network or None

    Raises
    ------
    ValueError
        An argument makes no sense.

    Examples
    --------
    >>> with Cluster(workers=2) as cluster:  # doctest: +SKIP
    ...     cluster.run(lambda ctx: ctx.rank)
    [0, 1]

    Notes
    -----
    Messages between workers are not encrypted: use trusted networks.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        client: Client | None = None,
        threads: int = 1,
        memory_limit: int | float | str | None = "auto",
        device: str | None = None,
        interface: str | None = None,
        timeout: float | None = 600.0,
        emulate: Network | None = None,
    ) -> None:
        check_arguments(workers, client, threads, device, timeout)
        if emulate is not None:
            workers = ranks_to_emulate(emulate, workers, client)
        self.timeout = timeout
        self.emulate = emulate
        self.trace = Trace(ranks=workers or 0, emulated="" if emulate is None else emulate.name)
        self._local: LocalWorkers | None = None
        if client is None:
            gpus = gpus_of(device)
            count = workers or len(gpus) or min(4, os.cpu_count() or 1)
            self._local = LocalWorkers(
                count,
                threads=threads,
                memory_limit=memory_limit,
                gpus=[gpus[i % len(gpus)] for i in range(count)] if gpus else [],
                interface=interface,
            )
            client = self._local.client
            workers = count
        self.client = client
        self._gang = Gang(
            client,
            size=workers,
            scheduler=self._local.scheduler if self._local is not None else None,
            kill=self._local.kill if self._local is not None else None,
            trace=self.trace,
            emulate=emulate,
        )
        # A cluster that is made again by the same notebook cell ends its predecessor.
        self._finalizer = weakref.finalize(self, _abandon, self._gang, self._local)
        self._finalizer.atexit = False  # Dask and the reaper see to that
        if self._local is not None or emulate is not None:
            try:
                members = self.workers
                if emulate is not None:
                    check_emulation(emulate, members)
            except BaseException:
                self.close()
                raise

    @property
    def is_local(self) -> bool:
        """Whether its workers are processes of its own on this machine."""
        return self._local is not None

    # ------------------------------------------------------------------------------ running

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout: float | None = -1,
        elastic: bool = False,
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
            Seconds until `LaunchTimeout`; by default the cluster's. None: no deadline.
        elastic : bool
            A loss raises `PeerLost` in the function on the survivors, which may go on after
            ``ctx.rebuild()``; by default a loss ends all.

        Returns
        -------
        list
            What the function returned, by rank.

        Raises
        ------
        RankError
            A rank raised; the others were stopped.
        WorkerLost
            A worker was lost.
        LaunchTimeout
            The deadline passed.
        ClusterTooSmall
            Workers are missing and did not come in time.
        """
        return self._wait(self.submit(function, *args, timeout=timeout, elastic=elastic, **kwargs))

    def submit(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout: float | None = -1,
        elastic: bool = False,
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
            handles=handles,
            timeout=self._seconds(timeout),
            elastic=elastic,
        )

    def keep(
        self,
        function: Callable[..., Any],
        *args: Any,
        per_rank: Sequence[tuple[Any, ...]] | None = None,
        restore: Callable[[list[int]], object] | None = None,
        into: Remote | None = None,
        timeout: float | None = -1,
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
            _name_of(function), orders, handles=handles, timeout=self._seconds(timeout), keep=key
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

    def remove_at_end(self, folder: str) -> None:
        """Have a temporary folder removed once the cluster or this process ends, in whatever way.

        Parameters
        ----------
        folder : str
            Its absolute path; on a cluster whose workers are elsewhere nothing is done.
        """
        if self._local is not None:
            self._local.remove_at_end(folder)

    # ------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """End what runs, free the data, and end the workers if this cluster started them."""
        if not self._gang.closed:
            self._finalizer.detach()
            _end(self._gang, self._local)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._gang.closed:
            return "<Cluster: closed>"
        members = self._gang.members
        devices = ", ".join(sorted({m.device for m in members})) or "not looked at yet"
        emulated = "" if self.emulate is None else f", emulated: {self.emulate.name}"
        return f"<Cluster: {len(members)} ranks on {devices}{emulated}; {self.status}>"

    def _repr_html_(self) -> str:
        from dtoolkit.figures import cluster_card

        return cluster_card(self)

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

    def _seconds(self, timeout: float | None) -> float | None:
        self._check_open()
        if timeout is None:
            return None
        if timeout == -1:
            return self.timeout
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds or None, got {timeout}")
        return float(timeout)


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def _end(gang: Gang, local: LocalWorkers | None) -> None:
    try:
        gang.ask(gang.close(), 15.0)
    except (RuntimeError, TimeoutError):  # the client is closed, or its loop does not answer
        gang.closed = True
    finally:
        if local is not None:
            local.close()


def _abandon(gang: Gang, local: LocalWorkers | None) -> None:
    """End what belongs to a cluster that was dropped; on a thread, since it takes a while."""
    threading.Thread(target=_end, args=(gang, local), name="dtoolkit-end", daemon=True).start()
