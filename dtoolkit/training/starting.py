"""How a run begins: one launch, or as many as its policy takes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dtoolkit.faults.injection import Injection
from dtoolkit.training.loop import Job, learn
from dtoolkit.training.records import Records
from dtoolkit.training.recovery.attempts import Attempts
from dtoolkit.training.recovery.kept import kept_for
from dtoolkit.training.recovery.noted import Noted
from dtoolkit.training.training import Training

if TYPE_CHECKING:
    from dtoolkit.cluster import Cluster, Launch

__all__ = ["start"]


def start(
    cluster: Cluster, job: Job, *, timeout: float | None, injection: Injection | None = None
) -> Training:
    """Start a run whose arguments make sense.

    Parameters
    ----------
    cluster : Cluster
    job : Job
    timeout : float or None
        Seconds for all of it; -1: the cluster's.
    injection : Injection, optional
        Faults that strike, once over all launches of the run.

    Raises
    ------
    ValueError
        The run is to be started again from a file that is not seen here.
    """
    policy = job.policy
    instruments = () if injection is None else (injection,)
    around = [one for one in cluster.instruments if isinstance(one, Injection)]
    texts = [*job.about["faults"], *(str(fault) for one in around for fault in one.left())]
    job = replace(job, about={**job.about, "faults": texts})
    records = Records(job.about["settings"]["workers"], free=job.strategy.free)
    noted = Noted(policy=policy.name, began=time.perf_counter(), injections=(*around, *instruments))

    def begin(job: Job, seconds: float | None) -> Launch:
        return cluster.submit(
            learn,
            job,
            timeout=seconds,
            elastic=policy.elastic,
            deadline=job.deadline,
            instruments=instruments,
        )

    if not policy.attempts:
        launch = begin(job, timeout)
        return Training(cluster, job, launch, records=records, noted=noted)
    job, kept = kept_for(cluster, job, needed=not policy.elastic)
    attempts = Attempts(
        begin,
        job,
        policy=policy,
        kept=kept,
        records=records,
        noted=noted,
        seconds=cluster.timeout if timeout == -1 else timeout,
    )
    return Training(cluster, job, attempts, records=records, noted=noted)
