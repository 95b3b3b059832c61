"""The cluster: where launches run."""

from __future__ import annotations

import os
import threading
import weakref

from distributed import Client

from dtoolkit.cluster.arguments import check_arguments, gpus_of
from dtoolkit.cluster.gang import Gang
from dtoolkit.cluster.launching import Launching
from dtoolkit.cluster.local import LocalWorkers
from dtoolkit.cluster.nodes import check_emulation, ranks_to_emulate
from dtoolkit.comm.network import Network
from dtoolkit.comm.trace import Trace

__all__ = ["Cluster"]


class Cluster(Launching):
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
