"""The product on one GPU against cuSPARSE and the device's own copy bandwidth.

``python -m tests.benchmarks.gpu`` starts a gang of one rank on a GPU and prints, for the matrices
of the product benchmark, the bytes that a product must at least move (the matrix, B and C once)
over its time, as a share of the bandwidth of a device-to-device copy: for ``A @ B`` on the cluster,
timed on the rank, and for ``torch.sparse_csr @ dense`` (cuSPARSE) alone. Where there is no GPU it
says so and exits 0.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

import numpy as np
import torch

import dtoolkit as dt
from tests.benchmarks.common import Check, machine, options, table, verdict

ROWS, DEGREE, COLUMNS = 200_000, 16, 64
LIMIT = 1.25  # time over cuSPARSE's own


def on_the_rank(ctx: dt.cluster.Context, operand: dt.spmm.Operand, B: torch.Tensor, rounds: int):
    """Median seconds of a product, of cuSPARSE alone, and of a copy, by CUDA events."""
    whole = operand.own.as_torch
    source = torch.empty(1 << 28, dtype=torch.uint8, device=ctx.device)
    target = torch.empty_like(source)
    return {
        "product": _seconds(lambda: dt.spmm.product(ctx, operand, B), rounds),
        "cuSPARSE": _seconds(lambda: whole @ B, rounds),
        "copy": _seconds(lambda: target.copy_(source), rounds) / (2 * source.numel()),
        "device": torch.cuda.get_device_name(ctx.device),
    }


def main() -> int:
    chosen = options(__doc__)
    rounds = chosen.rounds or (10 if chosen.quick else 50)
    print(machine())
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return 0
    rows, checks = [], []
    with dt.Cluster(workers=1, device="cuda") as cluster:
        for name, local in (("scattered", None), ("local", 2_000)):
            for dtype in ("float32", "float64"):
                A = dt.data.power_law(
                    ROWS, DEGREE, seed=0, local=local, values="normal", dtype=dtype
                )
                B = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(dtype)
                plan = dt.plan(A, parts=1)
                dA, dB = dt.distribute(cluster, A, plan), dt.distribute(cluster, B, plan)
                (found,) = cluster.run(on_the_rank, dA, dB, rounds)
                least = A.nnz * (A.data.itemsize + 4) + 2 * B.nbytes
                share = {k: least / found[k] * found["copy"] for k in ("product", "cuSPARSE")}
                rows.append(
                    [f"{name} {dtype}", *(f"{share[k]:.0%}" for k in share), found["device"]]
                )
                ratio = found["product"] / found["cuSPARSE"]
                checks.append(Check(f"{name} {dtype}: product over cuSPARSE", ratio, LIMIT))
    print(table(rows, ["share of copy bandwidth", "product", "cuSPARSE", "device"]))
    return verdict(checks)


def _seconds(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times[3:])


if __name__ == "__main__":
    sys.exit(main())
