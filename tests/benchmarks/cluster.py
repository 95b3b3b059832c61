"""How quick a cluster is: ready, an empty launch, its memory, tracing, and its exchanges.

``python -m tests.benchmarks.cluster [--quick]`` prints a table and exits 1 where a must is missed.
The exchanges are compared with bare ``torch.distributed`` over Gloo, on the same workers, in the
same launch, one after the other in turn.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import dtoolkit as dt
from tests.benchmarks.common import Check, machine, options, table, verdict

MEGABYTES_A_PEER = 4


def empty(ctx: Any) -> None:
    """Nothing."""


def pss(pid: int) -> float:
    """Proportional memory of a process, in MB; -1 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return -1.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def exchanges(ctx: Any, rounds: int) -> dict[str, list[float]]:
    """Seconds of each exchange by round: ours, ours untraced, and bare Gloo's."""
    import torch.distributed

    comm, group = ctx.comm, ctx.comm._transport.group
    elements = MEGABYTES_A_PEER << 18
    sends = [torch.ones(elements) for _ in range(ctx.size)]
    out = [torch.empty(elements) for _ in range(ctx.size)]
    flat, into = torch.cat(sends), torch.empty(elements * ctx.size)
    big, small = torch.ones(elements), torch.ones(10)
    traced = ctx.recorder.enabled

    def untraced(work: Any) -> Any:
        def run() -> None:
            ctx.recorder.enabled = False
            work()
            ctx.recorder.enabled = traced

        return run

    def all_to_all() -> None:
        comm.all_to_all(sends, out=out)

    candidates = {
        "all_to_all": all_to_all,
        "all_to_all untraced": untraced(all_to_all),
        "all_to_all Gloo": lambda: group.alltoall_base(into, flat, [], []).wait(),
        "all_reduce": lambda: comm.all_reduce(big),
        "all_reduce Gloo": lambda: group.allreduce([big.clone()]).wait(),
        "all_reduce of 10": lambda: comm.all_reduce(small),
        "all_reduce of 10 Gloo": lambda: group.allreduce([small.clone()]).wait(),
        "barrier": comm.barrier,
    }
    times: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for turn in range(rounds + 1):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            comm.barrier()
            began = time.perf_counter()
            candidates[name]()
            if turn:
                times[name].append(time.perf_counter() - began)
    return times


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    rounds = chosen.rounds or (20 if chosen.quick else 100)
    print(machine())
    began = time.perf_counter()
    cluster = dt.Cluster(workers=4, device="cpu")
    ready = time.perf_counter() - began
    try:
        cluster.run(empty)
        memory = [pss(pid) for pid in cluster.pids]
        launches = []
        for _ in range(5 * rounds):
            began = time.perf_counter()
            cluster.run(empty)
            launches.append(time.perf_counter() - began)
        by_rank = cluster.run(exchanges, rounds, timeout=300)
    finally:
        cluster.close()
    # A collective call is over when its last rank is.
    worst = {
        name: [max(times) for times in zip(*(r[name] for r in by_rank), strict=True)]
        for name in by_rank[0]
    }
    rows = [
        (name, f"{1e3 * statistics.median(times):.3f}", f"{1e3 * min(times):.3f}")
        for name, times in {"empty launch": launches, **worst}.items()
    ]
    print(table(rows, ("4 workers, ms", "median", "least")))
    cost = statistics.median(
        a / b for a, b in zip(worst["all_to_all"], worst["all_to_all untraced"], strict=True)
    )
    ratio = statistics.median(
        a / b for a, b in zip(worst["all_to_all"], worst["all_to_all Gloo"], strict=True)
    )
    print(f"all_to_all, {MEGABYTES_A_PEER} MB a peer, over bare Gloo's: {ratio:.2f}")
    return verdict(
        [
            Check("seconds until 4 workers are ready", ready, 6.0),
            Check("MB of all workers (PSS)", sum(memory), 500.0),
            Check("ms of an empty launch", 1e3 * statistics.median(launches), 10.0),
            Check("traced all_to_all over untraced", cost, 1.03),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
