"""Gossip: every rank steps its own model and averages it with its neighbours', nobody with all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from dtoolkit.arrays.layout import as_layout
from dtoolkit.comm.standing import StandingSwap
from dtoolkit.training import mixing
from dtoolkit.training.averaging import average_over, batch_statistics, kept_buffers, whole_state
from dtoolkit.training.compression import as_compressor
from dtoolkit.training.local_step import (
    LocalStep,
    check_workers,
    load_local,
    local_state,
    local_step,
)
from dtoolkit.training.public_copies import PublicCopies
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["Gossip", "GossipPairs"]

_TAG = 7301  # of messages between neighbours
_GRAPHS = {"ring": mixing.ring, "complete": mixing.complete}


class Gossip(Strategy):
    """A local step, then a mean with the neighbours on a fixed graph, in every step.

    After Lian et al. (2017, D-PSGD). A rank steps with the mean gradient of its own samples, with
    an optimizer of its own. What it has moved is multiplied by its share of the step's samples over
    its mass (:mod:`dtoolkit.training.mixing`), and the models are mixed by weights that keep their
    mean by mass. So the mean of all models moves as the samples weigh, whoever has how many, and
    ranks without samples pass on what they hear. Weights are doubly stochastic where samples are
    even.

    Neighbours talk pair by pair; no collective operation takes part in a step. With one
    worker this is plain training. Where all are neighbours (two workers, or ``graph="complete"``)
    and the optimizer is plain SGD it equals one process to rounding.

    Buffers (running statistics of batch norm) stay a rank's own, since training does not read them;
    they are pooled by samples when the one model is asked for.

    With compression, neighbours keep public copies of each other's models, and differences to
    these travel (:mod:`dtoolkit.training.public_copies`): that is error feedback by itself, and
    ``error_feedback=False`` is refused.

    Parameters
    ----------
    graph : {"ring", "complete"}
    consensus : float, optional
        With compression: part of the way to the neighbours' public copies that a step goes, more
        than 0 and at most 1. By default what the compressor advises.

    Raises
    ------
    ValueError, TypeError
    """

    name: ClassVar[str] = "gossip"
    batch_norm: ClassVar[str] = "local"
    replicated: ClassVar[bool] = False
    graph: str
    promise: ClassVar[Promise] = Promise(
        trajectory="one process where all are neighbours, with plain SGD, to rounding",
        resume="bit-equal",
        other_workers="refused: every rank has a model of its own",
    )

    def __init__(self, graph: str = "ring", *, consensus: float | None = None) -> None:
        if graph not in _GRAPHS:
            raise ValueError(
                f"graph={graph!r}: wanted 'ring' or 'complete' (random pairs are another "
                "strategy, 'gossip-pairs')"
            )
        self.graph = graph
        self.consensus = _checked(consensus)

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        compressor = as_compressor(settings.compression)
        if compressor is not None and not compressor.error_feedback:
            raise ValueError(
                f"compression={compressor!r} with {self.name!r}: neighbours send differences to "
                "copies that both keep, which cannot lose anything; leave error_feedback=True"
            )
        if compressor is None and self.consensus is not None:
            raise ValueError(f"consensus={self.consensus} has a meaning with compression= alone")

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        self._replica = replica
        self._samples = 0  # of this rank, in the run
        self._mass = mixing.masses_of(_owned(replica))
        self._copies: PublicCopies | None = None
        compressor = as_compressor(replica.settings.compression)
        origin = replica.flat_parameters()
        # What is compressed has no size that is known beforehand: with it, one tells when it comes.
        self._swapping = StandingSwap(
            replica.comm, origin if compressor is None else origin.new_empty(0)
        )
        if compressor is not None and replica.size > 1:
            self._copies = PublicCopies(
                compressor, origin, seed=replica.settings.seed, rank=replica.rank
            )
            self._pace = self.consensus or compressor.pace(origin.numel())

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        planned = replica.sampler.planned(step, replica.rank)
        done = self._moved(replica, step, planned)
        self._samples += done.samples
        idle = 0.0
        row = self._matrix(replica, step)[replica.rank]
        near = [peer for peer in np.flatnonzero(row).tolist() if peer != replica.rank]
        if near:
            with replica.comm.phase("gossip"):
                replica.load_parameters(self._mixed(replica, step, near, row))
            idle = self._swapping.idle
        return StepReport(
            done.loss_sum,
            done.samples,
            planned,
            done.seconds,
            idle,
            local_steps=int(done.samples > 0),
        )

    def reconcile(self, replica: Replica) -> dict[str, torch.Tensor]:
        """See :meth:`Strategy.reconcile`: the mean by mass, which mixing would lead to."""
        learned = {name: value.detach() for name, value in replica.parameters}
        mean = average_over(replica.comm, learned, float(self._mass[replica.rank]))
        known = batch_statistics(replica.model)
        buffers = kept_buffers(replica.model)
        mean |= average_over(replica.comm, buffers, self._samples, statistics=known)
        return whole_state(replica.model, mean)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Strategy.own_state`: model, optimizer, and copies that neighbours keep."""
        replica = self._replica
        if replica.size == 1:
            return {}
        own = {**local_state(replica), "samples": self._samples, "workers": replica.size}
        return own if self._copies is None else own | {"copies": self._copies.own_state()}

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Strategy.restore`."""
        check_workers(self.name, own, self._replica.size)
        load_local(self._replica, own)
        self._samples = int(own["samples"])
        if self._copies is not None:
            if "copies" not in own:
                raise ValueError(
                    f"resume: this {self.name} run was saved without compression, so that "
                    "neighbours have no copies of each other: resume it without"
                )
            self._copies.restore(own["copies"])

    def cite(self) -> str:
        """What to cite."""
        return (
            "X. Lian et al., Can decentralized algorithms outperform centralized algorithms?, "
            "NeurIPS 2017; M. Assran et al., Stochastic gradient push for distributed deep "
            "learning, ICML 2019; A. Koloskova, S. Stich and M. Jaggi, Decentralized stochastic "
            "optimization and gossip algorithms with compressed communication, ICML 2019"
        )

    def summary(self) -> dict[str, Any]:
        """See :meth:`Strategy.summary`."""
        matrix = self._matrix(self._replica, 0)
        return {"graph": self.graph, "second eigenvalue": mixing.second_eigenvalue(matrix)}

    def _matrix(self, replica: Replica, step: int) -> mixing.Matrix:
        return _GRAPHS[self.graph](self._mass)

    def _moved(self, replica: Replica, step: int, planned: int) -> LocalStep:
        """A local step, multiplied by what its samples weigh."""
        mass, total = float(self._mass[replica.rank]), replica.sampler.planned(step)
        gain = mixing.gain(mass, planned, total, replica.size)
        if not planned or gain == 1:
            return local_step(replica, step)
        before = replica.flat_parameters()
        done = local_step(replica, step)
        replica.load_parameters(before + gain * (replica.flat_parameters() - before))
        return done

    def _mixed(
        self, replica: Replica, step: int, near: list[int], row: mixing.Matrix
    ) -> torch.Tensor:
        flat = replica.flat_parameters()
        copies = self._copies
        if copies is None:
            came = self._swapping.run(flat, near)
            here = {peer: one.to(flat.device) for peer, one in came.items()}
            return mixing.mixed({**here, replica.rank: flat}, row)
        self._swapping.run(flat[:0], near)
        came = _swap(replica.comm, {peer: copies.say(peer, flat, step=step) for peer in near})
        for peer, message in came.items():
            copies.hear(peer, message, step=step)
        return copies.mixed(flat, row, self._pace)


class GossipPairs(Gossip):
    """A local step, then a mean of random pairs, drawn for every step from the seed.

    As :class:`Gossip`, with a perfect matching in place of the graph (after Boyd et al. 2006,
    Randomized gossip algorithms). Of an odd number of workers one is left out of a step.

    Parameters
    ----------
    consensus : float, optional
        As of :class:`Gossip`.
    """

    name: ClassVar[str] = "gossip-pairs"
    graph = "pairs"
    promise: ClassVar[Promise] = Promise(
        trajectory="one process with two workers and plain SGD, to rounding",
        resume="bit-equal",
        other_workers="refused: every rank has a model of its own",
    )

    def __init__(self, *, consensus: float | None = None) -> None:
        self.consensus = _checked(consensus)

    def cite(self) -> str:
        """What to cite."""
        return (
            "S. Boyd, A. Ghosh, B. Prabhakar and D. Shah, Randomized gossip algorithms, IEEE "
            f"Transactions on Information Theory 2006; {super().cite()}"
        )

    def summary(self) -> dict[str, Any]:
        """See :meth:`Strategy.summary`."""
        return {"graph": self.graph}

    def _matrix(self, replica: Replica, step: int) -> mixing.Matrix:
        drawn = mixing.matching(replica.size, seed=replica.settings.seed, step=step)
        return mixing.pairs(self._mass, drawn)


def _owned(replica: Replica) -> list[int]:
    """What each rank computes of the whole set, or of a batch where batches are cut anew."""
    if replica.settings.partition is None:
        return [replica.sampler.planned(0, rank) for rank in range(replica.size)]
    layout = as_layout(
        replica.settings.partition, len(replica.examples), replica.size, name="partition"
    )
    return [int(size) for size in layout.sizes]


def _swap(comm: Any, messages: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Send a tensor to each neighbour and receive one from each."""
    sent = [comm.send(message, peer, _TAG, wait=False) for peer, message in messages.items()]
    came = {peer: comm.recv(peer, _TAG)[0] for peer in sorted(messages)}
    for one in sent:
        one.wait()
    return came


def _checked(consensus: float | None) -> float | None:
    if consensus is not None and (isinstance(consensus, bool) or not 0 < consensus <= 1):
        raise ValueError(f"consensus={consensus!r}: wanted more than 0 and at most 1")
    return consensus
