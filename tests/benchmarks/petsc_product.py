"""The product in PETSc; run by mpirun with Debian's Python, which knows nothing of dtoolkit.

Reads a line from standard input on rank 0 for each product. PETSc as packaged computes in double
precision only.
"""

import sys
from pathlib import Path

import numpy as np
import petsc4py
import scipy.sparse as sp

petsc4py.init(["-mat_block_size", "1"])
from mpi4py import MPI  # noqa: E402
from petsc4py import PETSc  # noqa: E402


def main(folder: Path) -> None:
    world = MPI.COMM_WORLD
    A = sp.load_npz(folder / "A.npz").tocsr()
    B = np.load(folder / "B.npy")
    n, k = B.shape
    first, last = (n * r // world.size for r in (world.rank, world.rank + 1))
    mine = A[first:last]
    csr = (mine.indptr.astype(PETSc.IntType), mine.indices.astype(PETSc.IntType), mine.data)
    left = PETSc.Mat().createAIJ(
        ((last - first, n), (last - first, A.shape[1])), csr=csr, comm=world
    )
    shard = np.asfortranarray(B[first:last])
    right = PETSc.Mat().createDense(
        ((last - first, n), (k, k) if world.size == 1 else (None, k)), array=shard, comm=world
    )
    for matrix in (left, right):
        matrix.assemble()
    result = left.matMult(right)
    world.Barrier()
    while True:
        if world.rank == 0:
            print("ready" if not hasattr(main, "began") else "done", flush=True)
        main.began = True
        order = world.bcast(sys.stdin.readline() if world.rank == 0 else None, root=0)
        if not order:
            return
        left.matMult(right, result=result)
        world.Barrier()


main(Path(sys.argv[1]))
