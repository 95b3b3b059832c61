"""Seeded random plans of faults against policies that must outlive them, to the bit.

``python -m tests.training.random_faults [--runs 100]`` trains a small model under so many plans for
each of the policies, compares every run with the one without faults, looks for what was left
behind, prints a table, and exits 1 on any difference. A run that lost too much must say so, start
again from its checkpoint, and end with the same bits all the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.util import get_temp_dir
from typing import Any

from torch import nn

import dtoolkit as dt
from dtoolkit.faults import Fault, random_plan
from dtoolkit.training import Run, Task
from tests.cluster.kills import FILES, THREADS, inventory, leftover_processes
from tests.training.toys import toy

WORKERS, STEPS = 4, 10
DEADLINE = 1.0  # seconds
KINDS = {
    "kill": 8.0, "raise": 2.0, "nan": 1.0, "inf": 1.0, "bitflip": 2.0, "memory": 1.0, "cut": 1.0,
    "hang": 0.7,
}  # fmt: skip


@dataclass
class Trial:
    """One run under one plan.

    Attributes
    ----------
    policy, seed, plan
    seconds : float
        That it took.
    recovered, restarted : int
        Failures that were got over by those that were left, and by a restart.
    wrong : list of str
        What should not be.
    """

    policy: str
    seed: int
    plan: tuple[Fault, ...]
    seconds: float = 0.0
    recovered: int = 0
    restarted: int = 0
    wrong: list[str] = field(default_factory=list)


def model() -> nn.Module:
    """With dropout, which draws by shard."""
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.25), nn.Linear(6, 2))


def task() -> Task:
    """A perceptron with NAdam, a schedule and a smaller last batch."""
    return toy(model=model)


def plan_of(seed: int) -> tuple[Fault, ...]:
    """Faults of one run; seeds take turns with how they arrive."""
    return random_plan(
        seed=seed,
        ranks=WORKERS,
        steps=STEPS,
        mtbf=4.0,
        arrivals="weibull" if seed % 2 else "exponential",
        kinds=KINDS,
        where=("begin", "backward", "exchange"),
    )


def run_under(cluster: dt.Cluster, whole: Run, policy: str, seed: int) -> Trial:
    """Train under the plan of a seed, and judge how it ended."""
    trial = Trial(policy, seed, plan_of(seed))
    began = time.perf_counter()
    try:
        run = dt.train(
            cluster, task(), steps=STEPS, recovery=policy, faults=trial.plan, deadline=DEADLINE,
            evaluate_every=4, timeout=60,
        )  # fmt: skip
    except Exception as error:
        trial.wrong.append(f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200])
        return trial
    finally:
        trial.seconds = time.perf_counter() - began
    differs = run.state.differs_from(whole.state)
    if differs:
        trial.wrong.append(f"differs in {', '.join(differs[:3])}")
    if run.history["samples"].tolist() != whole.history["samples"].tolist():
        trial.wrong.append("the history lacks samples")
    seen = [entry for entry in run.recoveries if entry.kind != "unnoticed"]
    trial.restarted = sum(entry.how.startswith("started again") for entry in seen)
    trial.recovered = len(seen) - trial.restarted
    return trial


def campaign(
    runs: int,
    policies: Sequence[str] = ("replica", "stacked"),
    *,
    first: int = 0,
    report: Callable[[Trial], None] = lambda trial: None,
) -> tuple[list[Trial], list[str]]:
    """Many runs of each policy on a cluster of their own.

    Returns
    -------
    trials : list of Trial
    leftovers : list of str
        Processes, files, sockets and threads that should be gone.
    """
    trials, leftovers = [], []
    with _own_folder() as folder, dt.Cluster(workers=WORKERS, device="cpu", timeout=60) as cluster:
        pids = cluster._local._pids if cluster._local is not None else set()
        whole = dt.train(cluster, task(), steps=STEPS, evaluate_every=4)
        cluster.run(_settled)
        before, mine = cluster.run(inventory), inventory(None)
        for policy in policies:
            for seed in range(first, first + runs):
                trials.append(run_under(cluster, whole, policy, seed))
                report(trials[-1])
        after, now = cluster.run(inventory), inventory(None)
        if files := [name for name in os.listdir(folder) if name.startswith("dtoolkit-run-")]:
            leftovers.append(f"files {files}")
    fresh = (max(files for files, _ in before), max(threads for _, threads in before))
    grown = [*((f"rank {rank}", fresh, one) for rank, one in enumerate(after))]
    for name, then, found in [*grown, ("this process", mine, now)]:
        if found[0] > then[0] + FILES:
            leftovers.append(f"{name}: {then[0]} open files and sockets before, {found[0]} after")
        if found[1] > then[1] + THREADS:
            leftovers.append(f"{name}: {then[1]} threads before, {found[1]} after")
    if left := leftover_processes(pids):
        leftovers.append(f"processes {left}")
    return trials, leftovers


def _settled(ctx: Any) -> None:
    ctx.comm.barrier()


@contextmanager
def _own_folder() -> Iterator[str]:
    """A folder of temporary files that nobody else uses."""
    before = tempfile.tempdir
    get_temp_dir()  # that of multiprocessing lives until this process ends: not in here
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before


def main() -> int:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="plans for each policy")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--policies", default="replica,stacked")
    chosen = parser.parse_args()
    print(f"{'policy':9} {'seed':>5} {'time':>8} {'got over':>9} {'restarts':>9}  plan")

    def report(trial: Trial) -> None:
        words = "; ".join(map(str, trial.plan)) or "no faults"
        wrong = f"  WRONG: {'; '.join(trial.wrong)}" if trial.wrong else ""
        print(
            f"{trial.policy:9} {trial.seed:5} {trial.seconds:6.2f} s {trial.recovered:9} "
            f"{trial.restarted:9}  {words}{wrong}",
            flush=True,
        )

    policies = chosen.policies.split(",")
    trials, leftovers = campaign(chosen.runs, policies, first=chosen.first, report=report)
    for policy in policies:
        own = [trial for trial in trials if trial.policy == policy]
        print(
            f"{policy}: {len(own)} runs, {sum(len(t.plan) for t in own)} faults, "
            f"{sum(t.recovered for t in own)} got over by who was left, "
            f"{sum(t.restarted for t in own)} by a restart; "
            f"{sum(not t.wrong for t in own)} equal to the bit"
        )
    for line in leftovers:
        print("left over:", line)
    return 1 if leftovers or any(trial.wrong for trial in trials) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
