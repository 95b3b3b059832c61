"""Scaling studies: the two calls that start one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dtoolkit.training.sharding.formulas import STAGES
from dtoolkit.training.study.planning import plan_study
from dtoolkit.training.study.studying import Studying, StudyProgress

if TYPE_CHECKING:
    from dtoolkit.cluster import Cluster
    from dtoolkit.comm.network import Network
    from dtoolkit.training.study.result import Study

__all__ = ["study", "submit_study"]


def study(
    cluster: Cluster | None,
    models: Any,
    *,
    workers: Sequence[int],
    stages: Sequence[int] = STAGES,
    strategies: Sequence[Any] | Any = (),
    micro_batches: Sequence[int] | int = (8,),
    learning_rates: Sequence[float] | float | None = None,
    batch: int | None = None,
    scaling: Sequence[str] | str = ("strong", "weak"),
    samples: int = 4096,
    eta: int = 3,
    tokens: int = 512,
    device: Any = None,
    network: Network | None = None,
    memory_limit: int | str | None = None,
    precision: str = "mixed",
    seed: int = 0,
    file: str | os.PathLike[str] | None = None,
    on_progress: Callable[[StudyProgress], object] | None = None,
) -> Study:
    """Sweep over model sizes, workers, ZeRO's stages, micro-batches and learning rates.

    What fits the workers of the cluster is measured: samples a second, bytes, memory, and the loss
    after `samples` samples. The rest is modelled: memory and words by ZeRO's formulas, time by the
    peak of the device and the network. Of settings that differ in the learning rate alone, a funnel
    stops the bad ones early (successive halving) and says why.

    Parameters
    ----------
    cluster : Cluster or None
        None: everything is modelled. Each number of workers is measured on the first so many of
        them; on one that emulates a network, on the same kind of network with fewer ranks.
    models : task, size, sequence of them, or mapping of names to them
        A task (which can be measured and modelled), a number of parameters, text such as ``"13B"``
        ("580M", "1.2B", "3.7B" and "13B" have mT5's shape), or a
        :class:`~dtoolkit.training.study.ModelSize` (which can be modelled).
    workers : sequence of int
    stages : sequence of int
        Of ZeRO: 0 is plain data parallel; 1 shares out the optimizer's state, 2 gradients too, 3
        weights as well.
    strategies : strategies, or mapping of names to them
        Further ones, by name or object, which are measured alone.
    micro_batches : sequence of int
        Samples that a worker computes at once.
    learning_rates : sequence of float, optional
        In place of the task's own, where it is measured.
    batch : int, optional
        Samples of a step on the least number of workers; by default the task's. A batch that is no
        whole number of micro-batches of all workers is left out.
    scaling : "strong", "weak", or both
        Whether the batch stays as workers grow in number, or grows with them.
    samples : int
        That a setting is trained with, if nothing stops it.
    eta : int
        One in so many rivals goes on to the next round of the funnel, whose trainings are as many
        times longer.
    tokens : int
        Of a sample, for models of which only the size is known.
    device : Device or str, optional
        What is modelled: "V100", "A100", "H100", or a :class:`~dtoolkit.training.study.Device`.
    network : Network, optional
        What is modelled, with any number of ranks; it is taken with those of each setting
        (:meth:`~dtoolkit.comm.Network.with_ranks`). Its ``overlap`` says how much of the shorter of
        computing and sending hides behind the longer.
    memory_limit : int or str, optional
        Bytes a worker. What needs more by the formula is not measured.
    precision : {"mixed", "fp32"}
        Of what is modelled: 2 + 2 + 12 bytes a parameter for weights, gradients and Adam's state,
        or 4 + 4 + 8. What is measured is in single precision.
    seed : int
    file : path, optional
        What was measured is written there after each trial; a study that was killed goes on from it
        when it is called again with the same arguments.
    on_progress : callable, optional
        Called with a :class:`~dtoolkit.training.study.StudyProgress` after each trial, on a thread
        of its own.

    Returns
    -------
    Study
        ``results``, one table whose column ``source`` says "measured" or "modelled"; ``best``.

    Raises
    ------
    TypeError, ValueError
        An argument makes no sense, nothing could be measured or modelled, or `file` is of something
        else, of another study, or damaged; before anything is sent.
    OSError
        `file` cannot be written.
    ClusterClosed, ClusterTooSmall
        The cluster is not there any more.

    Notes
    -----
    In the setting of Benington et al. (arXiv 2310.05350), by the formulas of ZeRO (arXiv
    1910.02054): of P parameters on N workers 16 P; 4 P + 12 P/N; 2 P + 14 P/N; 16 P/N bytes, and
    2, 2, 2, 3 x P (N - 1)/N words, for the stages 0 to 3.

    Examples
    --------
    >>> from dtoolkit.comm import Network
    >>> network = Network.two_tier(nodes=128, ranks_per_node=8, inter="25GB/s", intra="300GB/s")
    >>> found = study(
    ...     None,
    ...     ["580M", "13B"],
    ...     workers=(8, 64, 512),
    ...     batch=512,
    ...     device="A100",
    ...     network=network,
    ...     scaling="strong",
    ...     micro_batches=1,
    ... )
    >>> int(found.best("40GB", model="13B", workers=64)["stage"])
    2
    """
    studying = submit_study(
        cluster,
        models,
        workers=workers,
        stages=stages,
        strategies=strategies,
        micro_batches=micro_batches,
        learning_rates=learning_rates,
        batch=batch,
        scaling=scaling,
        samples=samples,
        eta=eta,
        tokens=tokens,
        device=device,
        network=network,
        memory_limit=memory_limit,
        precision=precision,
        seed=seed,
        file=file,
        on_progress=on_progress,
    )
    try:
        return studying.result()
    except KeyboardInterrupt:
        studying.cancel()
        raise


def submit_study(
    cluster: Cluster | None,
    models: Any,
    *,
    file: str | os.PathLike[str] | None = None,
    on_progress: Callable[[StudyProgress], object] | None = None,
    **asked: Any,
) -> Studying:
    """Like :func:`study`, without waiting: for notebooks that show a study while it goes on.

    Returns
    -------
    Studying
        Progress, what is known so far, stop and cancel.
    """
    plan = plan_study(cluster, models, **asked)
    return Studying(cluster, plan, file=file, on_progress=on_progress)
