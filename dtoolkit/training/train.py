"""Training over the workers of a cluster: the two calls that start a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtoolkit.training.asked import Asked, injection_of, job_of
from dtoolkit.training.starting import start

if TYPE_CHECKING:
    from dtoolkit.cluster import Cluster
    from dtoolkit.training.run import Run
    from dtoolkit.training.training import Training

__all__ = ["submit_training", "train"]


def train(
    cluster: Cluster,
    task: Any,
    strategy: Any = "data-parallel",
    *,
    steps: int,
    seed: int | None = None,
    batch: int | None = None,
    accumulate: int = 1,
    partition: Any = None,
    optimizer: Any = None,
    schedule: Any = None,
    compression: Any = None,
    batch_norm: str | None = None,
    faults: Any = None,
    recovery: Any = "abort",
    deadline: float | None = -1,
    checkpoint: Any = None,
    resume: Any = None,
    evaluate_every: int | None = None,
    sparsity: Mapping[str, Any] | None = None,
    timeout: float | None = -1,
) -> Run:
    """Train a model over the workers of a cluster.

    Everything is checked here before anything is sent, the task by a trial with two samples.

    Parameters
    ----------
    cluster : Cluster
    task : Task
        What is learned; any object with the attributes of
        :class:`~dtoolkit.training.task.Task` will do, defined where you like.
    strategy : str or Strategy
        How replicas learn as one; ``dtoolkit.training.strategies.STRATEGIES`` has the names.
    steps : int
        Steps in all, those of a run that is resumed included.
    seed : int, optional
        Of all that is random; by default 0, or that of the run that is resumed.
    batch : int, optional
        Samples of a global batch, over all workers; by default the task's.
    accumulate : int
        Micro-batches a batch is cut into; there is one update for all of them.
    partition : "block", "cyclic", Layout or array of int, optional
        Who computes which sample; by default every batch is shared out evenly.
    optimizer, schedule : callable, optional
        In place of the task's.
    compression : str or Compressor, optional
        Makes what is exchanged smaller: "top-k", "random-k", "sign", or one of
        :mod:`dtoolkit.training.compression`.
    batch_norm : "sync" or "local", optional
        Whose statistics batch norm uses: those of all workers' samples together, or each worker's
        own. By default the strategy's choice; those whose workers do not step together have
        "local" alone.
    faults : fault or list, optional
        What goes wrong on purpose, such as ``[dt.faults.Kill(rank=2, at_step=5)]`` or
        ``[dt.faults.Slow(rank=1, factor=3)]``; each strikes once, however often a step is made.
    recovery : str or Policy
        What is done when something goes wrong: "abort" ends the run with a clear error; "restart"
        starts again from the last checkpoint, with every strategy. With "data-parallel" and
        "ordered" the workers that are left can go on themselves, to the same bits: "shrink" with
        fewer, "replica" until others join, "stacked" with shards that several hold (SPARe).
        :mod:`dtoolkit.training.recovery` has them with their settings.
    deadline : float or None
        Seconds without a sign of life after which a worker counts as hung and is ended. By default
        15, but for "abort" nobody looks (None).
    checkpoint : path or Checkpoint, optional
        Write the state there while the run goes on; a path alone: ten times. Who recovers from a
        checkpoint and names none has a temporary one.
    resume : path or Run, optional
        Go on from a saved run, a checkpoint, or a run.
    evaluate_every : int, optional
        Steps between two evaluations; there is one at the end in any case.
    sparsity : mapping, optional
        Makes the model sparse while it learns: keywords of :class:`dtoolkit.sparsity.Sparsifier`,
        such as ``{"method": "rigl", "density": 0.1}``; or ``{"method": "prunetrain"}`` with those
        of :class:`dtoolkit.sparsity.PruneTrain`, which cuts channels. A schedule by name has its
        last update after three quarters of `steps`, and keeps it when the run is resumed; an
        object stops where it says, which may be in a later part of a run that goes on. Only live
        values of gradients are exchanged ("data-parallel"); the history has ``density`` and
        ``live_parameters``, the run's state ``masks``.
    timeout : float or None
        Seconds until `LaunchTimeout`; by default the cluster's. None: no deadline.

    Returns
    -------
    Run

    Raises
    ------
    TypeError, ValueError
        An argument makes no sense, or does not fit what is resumed; before anything is sent.
    FloatingPointError
        A loss or a gradient is not finite.
    ReplicaMismatch
        Ranks that must hold the same state do not.
    RankError, WorkerLost, LaunchTimeout, ClusterTooSmall
        As of :meth:`Cluster.run`.

    Examples
    --------
    >>> run = dt.train(cluster, dt.training.tasks.digits(), steps=200, seed=0)  # doctest: +SKIP
    >>> run.history["loss"].iloc[-1]  # doctest: +SKIP
    """
    training = submit_training(
        cluster,
        task,
        strategy,
        steps=steps,
        seed=seed,
        batch=batch,
        accumulate=accumulate,
        partition=partition,
        optimizer=optimizer,
        schedule=schedule,
        compression=compression,
        batch_norm=batch_norm,
        faults=faults,
        recovery=recovery,
        deadline=deadline,
        checkpoint=checkpoint,
        resume=resume,
        evaluate_every=evaluate_every,
        sparsity=sparsity,
        timeout=timeout,
    )
    try:
        return training.result()
    except KeyboardInterrupt:
        training.cancel()
        raise


def submit_training(
    cluster: Cluster,
    task: Any,
    strategy: Any = "data-parallel",
    *,
    steps: int,
    seed: int | None = None,
    batch: int | None = None,
    accumulate: int = 1,
    partition: Any = None,
    optimizer: Any = None,
    schedule: Any = None,
    compression: Any = None,
    batch_norm: str | None = None,
    faults: Any = None,
    recovery: Any = "abort",
    deadline: float | None = -1,
    checkpoint: Any = None,
    resume: Any = None,
    evaluate_every: int | None = None,
    sparsity: Mapping[str, Any] | None = None,
    timeout: float | None = -1,
) -> Training:
    """Like :func:`train`, without waiting: for notebooks that show a run while it goes on.

    Returns
    -------
    Training
        Live history, progress, stop and cancel.
    """
    job = job_of(
        cluster,
        Asked(
            task=task,
            strategy=strategy,
            steps=steps,
            seed=seed,
            batch=batch,
            accumulate=accumulate,
            partition=partition,
            optimizer=optimizer,
            schedule=schedule,
            compression=compression,
            batch_norm=batch_norm,
            faults=faults,
            recovery=recovery,
            deadline=deadline,
            checkpoint=checkpoint,
            resume=resume,
            evaluate_every=evaluate_every,
            sparsity=sparsity,
        ),
    )
    return start(cluster, job, timeout=timeout, injection=injection_of(faults))
