"""What a stage of a pipeline does when, and with which weights: one forward, one backward.

Stage i of P runs P - 1 - i forwards ahead; from then on each forward is followed by a backward
(1F1B, PipeDream: Narayanan et al., SOSP 2019). In the asynchronous pipeline the gradient of a
micro-batch is an update at once, and nobody waits for the pipeline to empty: a stage updates its
newest weights with gradients of those that the micro-batch has met in its forward, P - 1 - i
updates ago. All of this follows from the order of work alone, however long things take.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["Work", "delay_of", "one_forward_one_backward", "version_of", "versions_kept"]

Work = tuple[Literal["forward", "backward"], int]


def delay_of(stage: int, stages: int) -> int:
    """Updates between the weights of a gradient and those it is applied to: P - 1 - i.

    Parameters
    ----------
    stage : int
        From 0, which reads the inputs.
    stages : int

    Raises
    ------
    ValueError
        There is no such stage.
    """
    if not 0 <= stage < stages:
        raise ValueError(f"stage={stage} of {stages}: wanted 0 to {stages - 1}")
    return stages - 1 - stage


def versions_kept(stage: int, stages: int) -> int:
    """Versions of its weights that a stage holds, the newest included: P - i."""
    return delay_of(stage, stages) + 1


def version_of(stage: int, stages: int, micro: int) -> int:
    """Version that forward and backward of a micro-batch use: updates that were made before it.

    The first micro-batches, which fill the pipeline, meet the first weights.
    """
    return max(0, micro - delay_of(stage, stages))


def one_forward_one_backward(stage: int, stages: int, micros: int) -> list[Work]:
    """What a stage does with some micro-batches, in order.

    Parameters
    ----------
    stage, stages : int
    micros : int
        Micro-batches from the filling of the pipeline until it is empty.

    Returns
    -------
    list of ("forward" or "backward", int)
    """
    ahead = min(delay_of(stage, stages), micros)
    order: list[Work] = [("forward", micro) for micro in range(ahead)]
    for micro in range(micros):
        if micro + ahead < micros:
            order.append(("forward", micro + ahead))
        order.append(("backward", micro))
    return order
