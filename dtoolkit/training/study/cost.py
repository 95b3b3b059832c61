"""What a step costs with ZeRO's stages: memory, words, time; pure functions (modelled).

Memory and words are those of :mod:`dtoolkit.training.sharding.formulas`; time is that of a device
which reaches a share of its peak, and of messages in a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dtoolkit.comm.network import Network
from dtoolkit.training.sharding.formulas import PRECISIONS, memory, words
from dtoolkit.training.study.device import Device
from dtoolkit.training.study.sizes import ModelSize

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True)
class Estimate:
    """A step of a setting (modelled).

    Attributes
    ----------
    state, activations : float
        Bytes a worker.
    bytes : float
        That a worker sends in a step.
    compute, exchange : float
        Seconds of a step's operations, and of its messages in a ring.
    seconds : float
        Of a step: the longer of the two, and what of the shorter one the network hides not.
    samples_per_second : float
        Of all workers.
    """

    state: float
    activations: float
    bytes: float
    compute: float
    exchange: float
    seconds: float
    samples_per_second: float

    @property
    def memory(self) -> float:
        """Bytes a worker."""
        return self.state + self.activations


def estimate(
    model: ModelSize,
    *,
    workers: int,
    stage: int,
    micro_batch: int,
    accumulate: int,
    device: Device,
    network: Network,
    precision: str = "mixed",
) -> Estimate:
    """Model a step.

    Gradients are summed once in it. Weights that are shared out (stage 3) are gathered for the
    forward and for the backward pass of every micro-batch, so that 1 + 2 x `accumulate` words a
    parameter travel; with one micro-batch the 3 of the formula.

    Parameters
    ----------
    model : ModelSize
    workers, stage, micro_batch, accumulate : int
        A worker computes `accumulate` micro-batches of `micro_batch` samples in a step.
    device : Device
    network : Network
        Of as many ranks as there are workers. Its ``overlap`` says how much of the shorter of
        computing and sending hides behind the longer.
    precision : {"mixed", "fp32"}
        Words that travel are as wide as gradients.

    Raises
    ------
    ValueError
        Naming the argument.
    """
    if accumulate < 1:
        raise ValueError(f"accumulate={accumulate!r}: wanted at least 1")
    if network.ranks != workers:
        raise ValueError(f"network has {network.ranks} ranks for {workers} workers")
    state = memory(model.parameters, workers, stage, precision=precision)
    wide = PRECISIONS[precision][1]
    each = micro_batch * accumulate
    rate = device.flops * device.efficiency
    compute = model.flops * each / rate + accumulate * float(device.overhead)
    # Beyond one micro-batch only the gathers of stage 3 are made again.
    sent = words(model.parameters, workers, stage)
    if stage == 3:
        sent *= (1 + 2 * accumulate) / 3
    exchange = 0.0
    if workers > 1:
        piece = -(-model.parameters * wide // workers)
        hops = round(sent * workers / model.parameters)
        exchange = hops * _hop(network, piece)
    longer, shorter = max(compute, exchange), min(compute, exchange)
    seconds = longer + (1 - network.overlap) * shorter
    return Estimate(
        state=state,
        activations=model.activation * micro_batch,
        bytes=wide * sent,
        compute=compute,
        exchange=exchange,
        seconds=seconds,
        samples_per_second=each * workers / seconds,
    )


@lru_cache(maxsize=256)
def _hop(network: Network, nbytes: int) -> float:
    """Seconds in which every rank sends so many bytes to the next one of the ring."""
    n = network.ranks
    sent = np.zeros((n, n), np.int64)
    sent[np.arange(n), (np.arange(n) + 1) % n] = nbytes
    return max(float(links.seconds.max(initial=0.0)) for links in network.loads(sent))
