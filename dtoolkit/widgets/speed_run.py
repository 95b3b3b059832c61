"""DropCompute on the workers under SpeedPanel: the same steps waiting and dropping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtoolkit.cluster import Cluster
from dtoolkit.faults import Slow
from dtoolkit.training import Run, Training, submit_training, tasks
from dtoolkit.training.dropstudy import Straggling
from dtoolkit.training.droptrial import Met, Trial
from dtoolkit.training.strategies import DropCompute
from dtoolkit.widgets.work import Job

__all__ = ["code", "trial"]

SAMPLES = 4
"""Of the digits in a micro-batch: so few that delays are what a step takes."""

Tell = Callable[[str, int, int], object]


async def trial(
    job: Job, cluster: Cluster, work: Straggling, choice: str | float, steps: int, tell: Tell
) -> Trial:
    """Train a small model under drawn delays, waiting and dropping.

    Workers sleep through delays *and* computing, so that those that share cores do not slow each
    other down. The threshold is chosen on what the workers met while they waited.

    Parameters
    ----------
    job : Job
    cluster : Cluster
        Idle.
    work : Straggling
    choice : str or float
        As for :meth:`Straggling.threshold`.
    steps : int
        That count; one more comes before them.
    tell : callable
        ``tell(words, done, total)``.

    Raises
    ------
    DtoolkitError, ValueError
        What the workers say; a threshold that cannot be chosen.
    """
    ranks = await job.in_thread(lambda: cluster.size)
    same = _same(work, ranks, steps)
    waits = await _train(job, cluster, "data-parallel", same, tell, "waiting for the slowest")
    threshold = await job.in_thread(Met.of(work, waits).threshold, choice)
    drops = await _train(
        job, cluster, DropCompute(threshold), same, tell, f"dropping after {threshold:.3g} s"
    )
    return await job.in_thread(Trial.of, work, waits, drops)


def code(work: Straggling, one: Trial) -> str:
    """Python that measures the same; it goes on from what makes ``work``."""
    batch = SAMPLES * work.micro_batches * one.workers
    return (
        "\n# On workers, measured:\n"
        "from dtoolkit.training.droptrial import Trial\n\n"
        "same = {\n"
        f"    'steps': {one.steps + 1},\n    'seed': work.seed,\n"
        "    'accumulate': work.micro_batches,\n"
        "    'faults': [dt.faults.Slow(seconds=work.compute, delay=work.delay)],\n}\n"
        f"with dt.Cluster(workers={one.workers}) as cluster:\n"
        f"    task = dt.training.tasks.digits(batch={batch})\n"
        "    waits = dt.train(cluster, task, 'data-parallel', **same)\n"
        f"    strategy = dt.training.strategies.DropCompute({one.threshold!r})\n"
        "    drops = dt.train(cluster, task, strategy, **same)\n"
        "trial = Trial.of(work, waits, drops)\n"
        "print(trial.gain, trial.dropped)\n"
    )


def _same(work: Straggling, ranks: int, steps: int) -> dict[str, Any]:
    """What both runs have in common."""
    return {
        "task": tasks.digits(batch=SAMPLES * work.micro_batches * ranks),
        "steps": steps + 1,
        "seed": work.seed,
        "accumulate": work.micro_batches,
        "faults": [Slow(seconds=work.compute, delay=work.delay)],
    }


async def _train(
    job: Job, cluster: Cluster, strategy: Any, same: dict[str, Any], tell: Tell, words: str
) -> Run:
    """Train to the end; where the job is stopped the run is ended."""
    started: list[Training] = []

    def start() -> Training:
        job.check()
        started.append(submit_training(cluster, strategy=strategy, **same))
        if not job.wanted:  # stopped while it was sent: nobody else will end it
            started[0].cancel()
        return started[0]

    tell(f"Training, {words}", 0, same["steps"])
    try:
        training = await job.in_thread(start)
        training.on_step(
            lambda row: job.from_thread(
                tell, f"Training, {words}", int(row["step"]) + 1, same["steps"]
            )
        )
        return await training.wait()
    finally:
        for one in started:
            if not one.done():
                one.cancel()
