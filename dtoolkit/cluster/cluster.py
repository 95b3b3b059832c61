"""The cluster: where launches run."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from dtoolkit.cluster.gang import Gang
from dtoolkit.cluster.launch import Launch
from dtoolkit.cluster.local import LocalWorkers
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.remote import Remote
from dtoolkit.cluster.wire import dump_call
from dtoolkit.comm.trace import Trace
from dtoolkit.errors import ClusterClosed

__all__ = ["Cluster"]

_OPEN: weakref.WeakSet[Cluster] = weakref.WeakSet()


class Cluster:
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

    Attributes
    ----------
    trace : Trace
        What the ranks sent, over all launches since the last ``trace.clear()``.
    client : distributed.Client

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
    ) -> None:
        _check(workers, client, threads, device, timeout)
        self.timeout = timeout
        self.trace = Trace(ranks=workers or 0)
        self._local: LocalWorkers | None = None
        if client is None:
            gpus = _gpus(device)
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
        kill = self._local.kill if self._local is not None else None
        self._gang = Gang(client, size=workers, kill=kill, trace=self.trace)
        _OPEN.add(self)
        if self._local is not None:
            self._gang.post(self._gang.muster(_soon(30.0))).result(60.0)

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
            getattr(function, "__qualname__", repr(function)),
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
        restore: Callable[[list[int]], None] | None = None,
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
        launch = self._gang.submit(
            getattr(function, "__qualname__", repr(function)),
            lambda members: calls if per_rank is not None else calls * len(members),
            handles=handles,
            timeout=self._seconds(timeout),
            keep=key,
        )
        sizes = self._wait(launch)
        homes = [m.address for m in self._gang.members]
        if into is not None:
            into.homes, into.nbytes = homes, sizes
            return into
        return Remote(key, homes, sizes, self._gang.free, restore)

    def put(self, remote: Remote, values: dict[int, Any]) -> None:
        """Put objects under an existing handle on some ranks, where they were lost.

        Parameters
        ----------
        remote : Remote
        values : dict
            Rank to object.
        """
        members = self._gang.members
        for rank, value in values.items():
            call, _ = dump_call(value, (), {})
            address = members[rank].address
            work = self._gang.call(address, "put", remote.key, call, timeout=120.0)
            remote.nbytes[rank] = self._gang.post(work).result(130.0)
            remote.homes[rank] = address

    def fetch(self, remote: Remote, rank: int) -> Any:
        """The object of a handle on one rank, brought to the client."""
        work = self._gang.call(remote.homes[rank], "get", remote.key, timeout=300.0)
        return pickle.loads(self._gang.post(work).result(310.0))

    # ------------------------------------------------------------------------------- looking

    @property
    def workers(self) -> list[Member]:
        """The workers by rank, as the next launch would take them."""
        self._check_open()
        return list(self._gang.post(self._gang.muster(_soon(30.0))).result(60.0))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.workers)

    @property
    def pids(self) -> list[int]:
        """Process id of each rank's worker."""
        return [member.pid for member in self.workers]

    @property
    def dashboard(self) -> str:
        """Link to Dask's dashboard."""
        return str(self.client.dashboard_link)

    @property
    def status(self) -> str:
        """In words: open or closed, and what runs."""
        if self._gang.closed:
            return "closed"
        running = list(self._gang._queue)
        return "idle" if not running else f"{running[0]!r}, {len(running) - 1} waiting"

    @property
    def held(self) -> list[int]:
        """Bytes of distributed data that each rank's worker holds."""

        async def ask() -> list[int]:
            calls = [self._gang.call(m.address, "held") for m in self._gang.members]
            return list(await asyncio.gather(*calls))

        self._check_open()
        return self._gang.post(ask()).result(60.0)

    def socket_bytes(self) -> NDArray[np.int64]:
        """Bytes that the kernel counted on the sockets of the group since it formed.

        Returns
        -------
        ndarray of int64, shape (ranks, ranks)
            ``[source, target]``, as the target's kernel received them, protocol of Gloo included.
            Two calls around a launch tell what it moved, independently of the trace. Zeros before
            the first launch; -1 where the system does not count (macOS).
        """

        async def ask() -> list[Any]:
            calls = [self._gang.call(m.address, "connections") for m in self._gang.members]
            return list(await asyncio.gather(*calls))

        self._check_open()
        answers = self._gang.post(ask()).result(60.0)
        return _by_rank(answers)

    # ------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """End what runs, free the data, and end the workers if this cluster started them."""
        if self._gang.closed:
            return
        self._gang.post(self._gang.close()).result(15.0)
        if self._local is not None:
            self._local.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._gang.closed:
            return "<Cluster: closed>"
        members = self._gang.members
        devices = ", ".join(sorted({m.device for m in members})) or "not looked at yet"
        return f"<Cluster: {len(members)} ranks on {devices}; {self.status}>"

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

    def _seconds(self, timeout: float | None) -> float | None:
        self._check_open()
        if timeout is None:
            return None
        if timeout == -1:
            return self.timeout
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds or None, got {timeout}")
        return float(timeout)

    def _check_open(self) -> None:
        if self._gang.closed:
            raise ClusterClosed("the cluster is closed: make a new one")


def _check(
    workers: int | None,
    client: Client | None,
    threads: int,
    device: str | None,
    timeout: float | None,
) -> None:
    if sys.platform == "win32":
        raise OSError("dtoolkit runs on Linux and macOS; on Windows use WSL2")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be an integer of at least 1, got {workers!r}")
    if client is not None:
        if not isinstance(client, Client):
            raise TypeError(f"client must be a distributed.Client, got {type(client).__name__}")
        if client.asynchronous:
            raise ValueError(
                "client was made with asynchronous=True; make it as Client(address), which runs "
                "its event loop in a thread of its own"
            )
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads must be an integer of at least 1, got {threads!r}")
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device must be 'cpu' or 'cuda', got {device!r}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds or None, got {timeout}")


def _gpus(device: str | None) -> list[str]:
    """Names of the GPUs to use, as CUDA_VISIBLE_DEVICES takes them. CUDA is not initialised."""
    if device == "cpu":
        return []
    import torch

    count = torch.cuda.device_count()
    if device == "cuda" and not count:
        raise ValueError("device='cuda', but torch sees no GPU on this machine")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(i) for i in range(count)]


def _soon(seconds: float) -> float:
    import time

    return time.perf_counter() + seconds


def _by_rank(answers: Sequence[Any]) -> NDArray[np.int64]:
    """Received bytes by source and target, from each rank's ports and connections."""
    size = len(answers)
    total = np.zeros((size, size), np.int64)
    # The end that connected knows whom it called by the port; the end that accepted is found as
    # the mirror image of that connection.
    caller = {}
    for rank, (ports, found) in enumerate(answers):
        for local, remote, _, _ in found:
            if remote in ports and local not in ports:
                caller[(local, remote)] = (rank, ports.index(remote))
    for _, found in answers:
        for local, remote, _, received in found:
            if (local, remote) in caller:
                me, peer = caller[(local, remote)]
            elif (remote, local) in caller:
                peer, me = caller[(remote, local)]
            else:
                continue
            total[peer, me] += received
    return total
