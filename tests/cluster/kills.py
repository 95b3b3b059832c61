"""Kill workers, many times in a row and in every situation, and hold what happens to a bound.

``python -m tests.cluster.kills [--kills 50]`` prints a table and exits 1 on any failure.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch

import dtoolkit as dt
from dtoolkit.errors import WorkerLost

IN_TIME = 2.0  # seconds from the kill to the error
FILES = 20  # file descriptors that a process may have more in the end than after the first launch
THREADS = 8  # the same for threads


def small_all_reduces(ctx: Any) -> None:
    """All-reduces of 10 elements, until something happens."""
    while True:
        ctx.comm.all_reduce(torch.ones(10))


def large_all_reduces(ctx: Any) -> None:
    """All-reduces of a million elements."""
    while True:
        ctx.comm.all_reduce(torch.ones(1_000_000))


def large_all_to_alls(ctx: Any) -> None:
    """All-to-alls of 5 MB a peer."""
    own = [torch.ones(5 << 18) for _ in range(ctx.size)]
    while True:
        ctx.comm.all_to_all(own)


def agreed_all_to_alls(ctx: Any) -> None:
    """All-to-alls of 5 MB a peer as a product makes them: agreed on, and in one piece."""
    counts = [5 << 18] * ctx.size
    own, came = torch.ones(2, sum(counts))
    while True:
        ctx.comm.all_to_all_v(own, counts, counts, out=came, agreed=True)


def some_all_to_alls(ctx: Any) -> int:
    """Twenty all-to-alls of 5 MB a peer."""
    own = [torch.ones(5 << 18) for _ in range(ctx.size)]
    for _ in range(20):
        ctx.comm.all_to_all(own)
    return os.getpid()


def subgroup_all_reduces(ctx: Any) -> None:
    """All-reduces in pairs of ranks."""
    pair = ctx.comm.split(ctx.rank // 2)
    while True:
        pair.all_reduce(torch.ones(1000))


def computing(ctx: Any) -> None:
    """No communication at all."""
    while True:
        torch.ones(100).sum()


def nothing(ctx: Any) -> None:
    """Return at once."""


# What runs, and how long after its start the kill comes.
SITUATIONS: dict[str, tuple[Callable[[Any], object], float]] = {
    "all-reduce of 10": (small_all_reduces, 0.1),
    "all-reduce of 1M": (large_all_reduces, 0.15),
    "all-to-all, 5 MB a peer": (large_all_to_alls, 0.15),
    "the same, agreed on": (agreed_all_to_alls, 0.15),
    "while the group forms": (some_all_to_alls, 0.0),
    "in a subgroup": (subgroup_all_reduces, 0.1),
    "no communication": (computing, 0.05),
    "between launches": (nothing, 0.0),
    "two at once": (small_all_reduces, 0.1),
}


@dataclass
class Trial:
    """One kill and what came of it."""

    situation: str
    ranks: tuple[int, ...]
    seconds: float = 0.0
    again: float = 0.0
    faults: list[str] = field(default_factory=list)


def total(ctx: Any) -> float:
    """A launch whose result is known."""
    return float(ctx.comm.all_reduce(torch.full((1000,), float(ctx.rank)))[-1])


def inventory(ctx: Any) -> tuple[int, int]:
    """Open files and threads of a rank's process, once what ends has ended."""
    import threading

    end = time.perf_counter() + 3
    while any(t.name == "dtoolkit-drop" for t in threading.enumerate()):
        if time.perf_counter() > end:
            break
        time.sleep(0.02)
    return len(os.listdir("/dev/fd")), psutil.Process().num_threads()


def kill(cluster: dt.Cluster, situation: str, ranks: tuple[int, ...], wait: float) -> Trial:
    """Kill the workers of some ranks in a situation, and judge what happens."""
    function, delay = SITUATIONS[situation]
    trial = Trial(situation, ranks)
    pids = cluster.pids
    if situation == "while the group forms":
        cluster._gang.break_group()
    launch = cluster.submit(function, timeout=30)
    if situation == "between launches":
        launch.result()
    else:
        time.sleep(delay + (wait if delay else 0.3 * wait))
    start = time.perf_counter()
    for rank in ranks:
        os.kill(pids[rank], signal.SIGKILL)
    if situation == "between launches":
        time.sleep(0.3)
    else:
        judge(trial, launch, start, {pids[rank] for rank in ranks})
    start = time.perf_counter()
    try:
        if cluster.run(total, timeout=30) != [6.0] * 4:
            trial.faults.append("the next launch gave a wrong sum")
    except Exception as error:
        trial.faults.append(f"the next launch: {error!r}"[:200])
    trial.again = time.perf_counter() - start
    return trial


def judge(trial: Trial, launch: Any, start: float, killed: set[int]) -> None:
    """Hold the error of a launch against what was done to it."""
    try:
        pids = launch.result(30)
        if killed & set(pids):
            trial.faults.append("a result from a worker that was dead")
        # Else the kill came before the launch had begun, which then ran on the replacement.
    except WorkerLost as error:
        trial.seconds = time.perf_counter() - start
        if not set(error.ranks) <= set(trial.ranks):
            trial.faults.append(f"named ranks {error.ranks}")
    except BaseException as error:
        trial.seconds = time.perf_counter() - start
        trial.faults.append(f"{error!r}"[:200])
    if trial.seconds > IN_TIME:
        trial.faults.append(f"took {trial.seconds:.2f} s")


def campaign(
    cluster: dt.Cluster, kills: int, seed: int, report: Callable[[Trial], None] = lambda t: None
) -> tuple[list[Trial], list[str]]:
    """Kill `kills` times in a mixture of situations.

    Returns
    -------
    trials : list of Trial
    leftovers : list of str
        What grew beyond its bound.
    """
    chance = random.Random(seed)
    mixture = list(SITUATIONS)
    chance.shuffle(mixture)
    cluster.run(total)
    before = cluster.run(inventory)
    mine = (len(os.listdir("/dev/fd")), psutil.Process().num_threads())
    trials = []
    for number in range(kills):
        situation = mixture[number % len(mixture)]
        count = 2 if situation == "two at once" else 1
        # Every rank in turn: also rank 0, whose worker has the store of the group.
        ranks = tuple(sorted((number // 2 + r) % 4 for r in range(count)))
        trials.append(kill(cluster, situation, ranks, 0.1 * chance.random()))
        report(trials[-1])
    after = cluster.run(inventory)
    now = (len(os.listdir("/dev/fd")), psutil.Process().num_threads())
    leftovers = []
    fresh = (max(f for f, _ in before), max(t for _, t in before))
    for name, then, grown in [
        *((f"rank {rank}", fresh, found) for rank, found in enumerate(after)),
        ("this process", mine, now),
    ]:
        if grown[0] > then[0] + FILES:
            leftovers.append(f"{name}: {then[0]} open files before, {grown[0]} after")
        if grown[1] > then[1] + THREADS:
            leftovers.append(f"{name}: {then[1]} threads before, {grown[1]} after")
    return trials, leftovers


def leftover_processes(known: set[int], seconds: float = 5.0) -> list[int]:
    """Worker processes that are there long after their cluster has closed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        left = [pid for pid in known if psutil.pid_exists(pid) and not _is_zombie(pid)]
        if not left:
            return []
        time.sleep(0.05)
    return left


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def main() -> int:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="10 kills, under a minute")
    chosen = parser.parse_args()
    print(f"{'situation':26} {'ranks':8} {'error after':>12} {'next launch':>12}")

    def report(trial: Trial) -> None:
        ranks = ",".join(map(str, trial.ranks))
        told = f"{trial.seconds:.3f} s" if trial.seconds else "-"
        words = "; ".join(trial.faults) or "right"
        print(
            f"{trial.situation:26} {ranks:8} {told:>12} {trial.again:10.2f} s  {words}", flush=True
        )

    with dt.Cluster(workers=4, device="cpu") as cluster:
        pids = cluster._local._pids if cluster._local is not None else set()
        trials, leftovers = campaign(
            cluster, 10 if chosen.quick else chosen.kills, chosen.seed, report
        )
    left = leftover_processes(pids)
    if left:
        leftovers.append(f"processes {left} are there after the cluster has closed")
    wrong = [t for t in trials if t.faults]
    times = sorted(t.seconds for t in trials if t.seconds)
    print(
        f"{len(trials)} kills, {len(wrong)} wrong; error after {times[len(times) // 2]:.3f} s in "
        f"the middle, {times[-1]:.3f} s at most; slowest next launch "
        f"{max(t.again for t in trials):.2f} s"
    )
    for line in leftovers:
        print("left over:", line)
    return 1 if wrong or leftovers else 0


if __name__ == "__main__":
    sys.exit(main())
