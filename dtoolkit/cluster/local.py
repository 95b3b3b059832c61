"""Workers on this machine: started in a few seconds, replaced when they die, never left over."""

from __future__ import annotations

import logging
import multiprocessing.util
import os
import signal
import sys
import tempfile
from typing import Any

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster
from distributed.system import MEMORY_LIMIT

from dtoolkit.cluster.memory import give_back
from dtoolkit.cluster.reaping import Reaping

__all__ = ["LocalWorkers"]

_PRELOAD = [
    "distributed",
    "torch",
    "numba",
    "scipy.sparse",
    "pandas",
    "threadpoolctl",
    "dtoolkit",
    # What every optimizer of torch imports when it is made: 1 s and 66 MB, once and not a worker.
    "torch._dynamo",
    "dtoolkit.training",
    "dtoolkit.cluster.frozen",  # last: it is about all that was imported before
]


class LocalWorkers:
    """A Dask cluster of processes on this machine.

    Where fork servers exist, workers are forked from one process that has imported the heavy
    modules: they start faster and share that memory.

    Parameters
    ----------
    workers : int
    threads : int
        Threads a worker.
    memory_limit : int, float, str or None
        As Dask takes it.
    gpus : list of str
        GPU for each worker; empty to compute on the CPU.
    interface : str, optional
        Network interface to bind.
    """

    def __init__(
        self,
        workers: int,
        *,
        threads: int,
        memory_limit: int | float | str | None,
        gpus: list[str],
        interface: str | None,
    ) -> None:
        give_back()  # before workers want it: 190 MB of a kernel that has made large plans
        self._reaping = Reaping()
        self._pids: set[int] = set()
        # What Dask writes lies in one place that goes with the workers, whatever ends them.
        scratch = tempfile.mkdtemp(
            prefix="dtoolkit-workers-", dir=dask.config.get("temporary-directory", None)
        )
        self._reaping.remove(os.path.abspath(scratch))
        place = {"interface": interface} if interface else {"host": "127.0.0.1"}
        env = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        options = {
            **place,
            "nthreads": threads,
            "memory_limit": MEMORY_LIMIT // workers if memory_limit == "auto" else memory_limit,
            "dashboard": False,
            "local_directory": scratch,
            "silence_logs": logging.CRITICAL,
            "register": self._register,
            "start_method": _start_method(),
        }
        # Sockets of the fork server, which outlives a cluster but not this process.
        self._reaping.remove(multiprocessing.util.get_temp_dir(), in_use=True)
        gpu = [{"CUDA_VISIBLE_DEVICES": name} for name in gpus] or [{}] * workers
        pre_spawn = {"distributed.nanny.pre-spawn-environ": _environment()}
        with dask.config.set(pre_spawn | _calmer()):
            self.cluster = _Processes(
                scheduler={
                    "cls": Scheduler,
                    "options": {**place, "dashboard_address": ":0", "local_directory": scratch},
                },
                workers={
                    index: {"cls": _Nanny, "options": {**options, "env": env | gpu[index]}}
                    for index in range(workers)
                },
                # Dask reports a worker's death as an error of its own; the launch says it better.
                silence_logs=logging.CRITICAL,
            )
        self.client = Client(self.cluster, set_as_default=False)

    @property
    def scheduler(self) -> Any:
        """The scheduler, which runs in this process on the client's event loop."""
        return self.cluster.scheduler

    def kill(self, pid: int) -> None:
        """End a worker process, whatever state it is in; the nanny starts another."""
        if pid in self._pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has just died by itself
                return

    def remove_at_end(self, folder: str) -> None:
        """Have a temporary folder removed when this process ends, in whatever way."""
        self._reaping.remove(folder)

    def close(self) -> None:
        """End all workers, the scheduler, and the reaper."""
        # A stopped process does not answer its nanny's polite words.
        for nanny in self.cluster.workers.values():
            try:
                os.kill(nanny.pid, signal.SIGCONT)
            except (AttributeError, TypeError, ProcessLookupError):  # it is starting, or dead
                continue
        try:
            self.client.close(timeout=5)
            self.cluster.close(timeout=10)
        finally:
            self._reaping.end()

    def _register(self, pid: int) -> None:
        self._pids.add(pid)
        self._reaping.register(pid)


class _Processes(SpecCluster):
    """Never gives a worker up.

    Dask's own looks 15 seconds after a loss whether the worker is there again, and closes its nanny
    for good if it is not: also if it was, and has just died once more.
    """

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super(SpecCluster, self)._update_worker_status(op, msg)


class _Nanny(Nanny):
    """A nanny that starts its workers from the fork server and tells the reaper of each."""

    def __init__(self, *args: Any, register: Any, start_method: str, **kwargs: Any) -> None:
        self._register_pid = register
        self._start_method = start_method
        super().__init__(*args, **kwargs)

    async def instantiate(self) -> Any:
        """Start a worker process, now or in place of a dead one."""
        with dask.config.set({"distributed.worker.multiprocessing-method": self._start_method}):
            status = await super().instantiate()
        if self.pid:
            self._register_pid(self.pid)
        return status


def _environment() -> dict[str, Any]:
    """What worker processes find in their environment before they load anything."""
    return {
        **dask.config.get("distributed.nanny.pre-spawn-environ"),
        # A worker that dies makes torch's store print pages of C++ frames on the others.
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        # Dask lets the C library give back memory at once, which also keeps it from learning what
        # to keep: every array then costs fresh pages, two to four times its arithmetic.
        "MALLOC_TRIM_THRESHOLD_": str(min(128 << 20, MEMORY_LIMIT // 32)),
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    }


def _calmer() -> dict[str, str]:
    """Let Dask look less often at how its workers do, unless the user has said how often.

    Each look wakes a process; by default that takes 2 to 3% of a core for each worker, and for the
    scheduler, when nothing runs.
    """
    return {
        name: calm
        for name, (default, calm) in _LOOKS.items()
        if dask.config.get(name, default) == default
    }


_LOOKS = {
    "distributed.admin.tick.interval": ("20ms", "200ms"),
    "distributed.worker.profile.interval": ("10ms", "100ms"),
}


def _start_method() -> str:
    """Prepare the fork server, or fall back to spawn where there is none."""
    import multiprocessing

    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    from distributed.utils import get_mp_context

    _start_quiet_tracker()

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        # Dask sets a list of its own on the first call; it is replaced, not lengthened, because
        # it holds everything that is installed, heavy or not.
        get_mp_context().set_forkserver_preload(_PRELOAD)
    _start_uninterrupted_server()
    return "forkserver"


def _start_uninterrupted_server() -> None:
    """Start the fork server so that its workers never see an interrupt of the keyboard.

    Jupyter and terminals send it to the whole process group; it is for the kernel, which stops the
    ranks. A signal that is blocked here is blocked in all that this thread starts.
    """
    from multiprocessing import forkserver

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_quiet_tracker() -> None:
    """Start multiprocessing's resource tracker without its warning at exit.

    It cleans up after workers that were killed, and calls what it finds a leak.
    """
    from multiprocessing import resource_tracker

    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()
