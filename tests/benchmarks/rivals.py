"""What a person would use in place of the distributed product, each with the same interface.

A rival is a context manager; ``run()`` does one product, with its data in place and its result left
where it was computed.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import dtoolkit as dt

DEBIAN_PYTHON = "/usr/bin/python3"
PATIENCE = 120.0  # seconds for a rival to start, or to answer


class Skipped(Exception):
    """A rival is not installed."""


class Rival:
    """Base: what every rival is made of."""

    label = ""

    def __init__(
        self, A: sp.csr_array, B: np.ndarray, workers: int, cluster: dt.Cluster, plan: Any
    ) -> None:
        self.A, self.B, self.workers, self.cluster, self.plan = A, B, workers, cluster, plan

    def __enter__(self) -> Rival:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def run(self) -> None:
        raise AssertionError("every rival has its own")


class DaskBlocks(Rival):
    """A Dask array whose blocks are SciPy matrices, times one of NumPy blocks: ``da.dot``."""

    label = "Dask array of SciPy blocks"

    def __enter__(self) -> Rival:
        import dask
        import dask.array as da

        client = self.cluster.client
        starts = np.linspace(0, self.A.shape[0], self.workers + 1).astype(int)
        pairs = list(pairwise(starts))
        rows = [
            [
                da.from_delayed(
                    dask.delayed(sp.csr_matrix(self.A[a:b][:, c:d])),
                    shape=(b - a, d - c),
                    meta=sp.csr_matrix((0, 0), dtype=self.A.dtype),
                )
                for c, d in pairs
            ]
            for a, b in pairs
        ]
        self._A = client.persist(da.block(rows))
        self._B = client.persist(da.from_array(self.B, chunks=(tuple(b - a for a, b in pairs), -1)))
        self._wait([self._A, self._B])
        return self

    def run(self) -> None:
        import dask.array as da

        C = self.cluster.client.persist(da.dot(self._A, self._B))
        self._wait(C)

    def _wait(self, what: Any) -> None:
        from distributed import wait

        with self.cluster.client.as_current():
            wait(what, timeout=PATIENCE)


class Petsc(Rival):
    """PETSc's MatMatMult under ``mpirun -n 4``, with Debian's own Python."""

    label = "PETSc MatMatMult, mpirun -n 4"

    def __enter__(self) -> Rival:
        if self.A.dtype != np.float64:
            raise Skipped("as packaged it computes in double precision only")
        packages = _petsc_path()
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        sp.save_npz(folder / "A.npz", sp.csr_matrix(self.A.astype(np.float64)), compressed=False)
        np.save(folder / "B.npy", self.B.astype(np.float64))
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(self.workers)]
        self._process = subprocess.Popen(
            [
                *command,
                DEBIAN_PYTHON,
                str(Path(__file__).with_name("petsc_product.py")),
                str(folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1"},
        )
        if self._line() != "ready":
            raise Skipped("it did not start")
        return self

    def run(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        if self._line() != "done":
            raise RuntimeError("PETSc's process ended")

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE)
        self._folder.cleanup()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class BareGloo(Rival):
    """Four plain processes with torch's Gloo: same pieces, same exchange, same kernel, no more."""

    label = "bare Gloo loop, same exchange and kernel"

    def __enter__(self) -> Rival:
        import torch

        from dtoolkit.spmm.building import build

        context = multiprocessing.get_context("spawn")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._pipes, self._processes = [], []
        for rank, operand in enumerate(build(self.plan, self.A)):
            here, there = context.Pipe()
            shard = torch.from_numpy(self.B[self.plan.columns.indices(rank)])
            process = context.Process(
                target=_bare_rank,
                args=(rank, self.workers, port, operand, shard, there),
                daemon=True,
            )
            process.start()
            self._pipes.append(here)
            self._processes.append(process)
        self._answers()
        return self

    def run(self) -> None:
        for pipe in self._pipes:
            pipe.send("go")
        self._answers()

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.send("stop")
        for process in self._processes:
            process.join(timeout=10)

    def _answers(self) -> None:
        for pipe in self._pipes:
            if not pipe.poll(PATIENCE):
                raise RuntimeError("a process of the bare loop does not answer")
            pipe.recv()


def _bare_rank(rank: int, size: int, port: int, operand: Any, B: Any, pipe: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    bare = _bare_all_gather if operand.hops[0].whole else _bare_exchange
    product = bare(operand, B)
    product()
    pipe.send("ready")
    while pipe.recv() == "go":
        product()
        pipe.send("done")
    dist.destroy_process_group()


def _bare_all_gather(operand: Any, B: Any) -> Any:
    """Whole shards to all, received side by side; sent point to point from where they lie."""
    import torch
    import torch.distributed as dist

    from dtoolkit.spmm.kernels import multiply

    (hop,), (remote,) = operand.hops, operand.remote
    received = torch.empty(sum(hop.b_in), B.shape[1], dtype=B.dtype)
    places = torch.split(received, list(hop.b_in))
    size, me = len(places), operand.rank

    def product() -> torch.Tensor:
        order = [(me + step) % size for step in range(1, size)]
        works = [dist.irecv(places[q], q) for q in order]
        works += [dist.isend(B, q) for q in reversed(order)]
        C = multiply(operand.own, B)
        for work in works:
            work.wait()
        return multiply(remote, received, C, accumulate=True)

    return product


def _bare_exchange(operand: Any, B: Any) -> Any:
    """Rows by index and partial sums in one all-to-all-v of packed buffers."""
    import torch
    import torch.distributed as dist

    from dtoolkit.spmm.kernels import multiply

    (hop,), (remote,), (partial,) = operand.hops, operand.remote, operand.partial
    outgoing = [b + c for b, c in zip(hop.b_out, hop.c_out, strict=True)]
    incoming = [b + c for b, c in zip(hop.b_in, hop.c_in, strict=True)]
    send = torch.empty(sum(outgoing), B.shape[1], dtype=B.dtype)
    receive = torch.empty(sum(incoming), B.shape[1], dtype=B.dtype)
    parcels = torch.split(send, outgoing)
    arrived = torch.split(receive, incoming)

    def product() -> torch.Tensor:
        for peer, parcel in enumerate(parcels):
            b = hop.b_out[peer]
            torch.index_select(B, 0, hop.gather[peer], out=parcel[:b])
            multiply(partial[peer], B, parcel[b:])
        work = dist.all_to_all_single(receive, send, incoming, outgoing, async_op=True)
        C = multiply(operand.own, B)
        work.wait()
        multiply(remote, receive, C, accumulate=True)
        for peer, parcel in enumerate(arrived):
            if hop.c_in[peer]:
                C.index_add_(0, hop.scatter[peer], parcel[hop.b_in[peer] :])
        return C

    return product


def _petsc_path() -> str:
    """Folder of Debian's petsc4py."""
    if shutil.which("mpirun") is None or not Path(DEBIAN_PYTHON).exists():
        raise Skipped(
            "no mpirun (Debian: openmpi-bin python3-mpi4py python3-petsc4py python3-scipy)"
        )
    listed = subprocess.run(
        [
            "sh",
            "-c",
            "dpkg -L $(dpkg -l 'python3-petsc4py-real*' | awk '/^ii/ {print $2}' | tail -1)",
        ],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    found = [line for line in listed if line.endswith("dist-packages")]
    if not found:
        raise Skipped("no petsc4py (Debian: python3-petsc4py)")
    return found[0]


if __name__ == "__main__":
    sys.exit("run python -m tests.benchmarks.spmm")
