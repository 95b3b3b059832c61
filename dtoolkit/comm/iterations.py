"""How long a training step takes when its collectives are scheduled: modelled.

A step computes layer by layer, forward and backward, on every rank alike. Weight gradients are
all-reduced over the copies of the model as soon as a bucket of them is there, while the backward
pass goes on; what layers split over ranks need from each other stops the computation. All
collectives of a step share the queues of the dimensions, and each is scheduled for itself, from
loads of 0. The step ends when the last gradient is there.

Source: S. Rashidi et al., ISCA 2022, arXiv 2110.04478; how a step is put together there is
*reconstructed*.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pandas as pd

from dtoolkit.comm import units
from dtoolkit.comm.amounts import grid_text, seconds_text
from dtoolkit.comm.arguments import (
    check_chunks,
    check_latency,
    check_order,
    check_stages,
    dimensions_of,
)
from dtoolkit.comm.collectives import Collective, Collectives, carve
from dtoolkit.comm.exact import rational
from dtoolkit.comm.network import Dimension, Network
from dtoolkit.comm.simulation import dimension_table
from dtoolkit.comm.themis import Policy, chosen, cite
from dtoolkit.comm.topologies import TOPOLOGIES, topology
from dtoolkit.comm.workloads import PAPER_GAINS, WORKLOADS, Layer, Workload, workload_named

__all__ = ["Iteration", "iteration", "iteration_gains"]


@dataclass(frozen=True, eq=False, repr=False)
class Iteration:
    """A training step as it would run (modelled; its workload is reconstructed).

    Attributes
    ----------
    workload : Workload
    dimensions : tuple of Dimension
    policy, order : str
    chunks : int
    latency : bool
    time : float
        Seconds from the first layer's forward pass until the last gradient is there.
    waits : DataFrame
        One row each time that computing stands still: layer, reason, start, end (seconds).
    bars : DataFrame
        One row a stage of a collective, as in a :class:`~dtoolkit.comm.Simulation`; chunks are
        numbered through. None with the ideal, which knows no dimensions.
    """

    workload: Workload
    dimensions: tuple[Dimension, ...]
    policy: str
    order: str
    chunks: int
    latency: bool
    time: float
    waits: pd.DataFrame
    bars: pd.DataFrame

    @property
    def compute(self) -> float:
        """Seconds in which the ranks compute."""
        return self.time - self.exposed

    @property
    def exposed(self) -> float:
        """Seconds in which nothing is computed: communication that nothing hides."""
        return float((self.waits["end"] - self.waits["start"]).sum())

    @cached_property
    def by_dimension(self) -> pd.DataFrame:
        """One row a dimension: dimension, kind, ranks, bandwidth, bytes, busy, utilisation."""
        return dimension_table(self.dimensions, self.bars, self.time)

    @property
    def utilisation(self) -> float:
        """Share of all bandwidth over the whole step that moves bytes; NaN with the ideal.

        Dimensions of one rank, in which nothing moves, are left out.
        """
        if self.policy == "ideal":
            return float("nan")
        could = self.time * sum(d.bandwidth for d in self.dimensions if d.ranks > 1)
        return float(self.bars["bytes"].sum()) / could if could else 0.0

    @property
    def name(self) -> str:
        """What was simulated, in a few words."""
        grid = grid_text([d.ranks for d in self.dimensions])
        queue = "" if self.policy == "ideal" else f", {self.order.upper()}"
        return f"step of {self.workload.name}, reconstructed, on {grid}, {self.policy}{queue}"

    def cite(self) -> str:
        """Source of the policy, as text."""
        return cite(self.policy)

    def __repr__(self) -> str:
        return (
            f"<Iteration (modelled): {self.name}: {seconds_text(self.time)}, of "
            f"which {seconds_text(self.exposed)} wait for communication>"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.figures.schedule_cards import iteration_card

        return iteration_card(self)


def iteration(
    workload: str | Workload,
    network: Network,
    policy: str | Policy = "baseline",
    order: str = "fifo",
    chunks: int = 64,
    latency: bool = True,
    bucket: int | str = "25MB",
) -> Iteration:
    """Tell how long a training step takes (modelled).

    Parameters
    ----------
    workload : {"ResNet-152", "GNMT", "DLRM", "Transformer-1T"} or Workload
        The named ones are reconstructed: see :mod:`dtoolkit.comm.workloads`.
    network : Network
    policy : {"baseline", "themis", "ideal"} or Policy
    order : {"fifo", "scf"}
    chunks : int
        Into how many chunks each collective is cut; at most 500,000 stages in the whole step.
    latency : bool
        As in :func:`dtoolkit.comm.simulate`.
    bucket : int or str
        Bytes of gradients that are all-reduced together, as data-parallel training does; 0: each
        layer's by themselves; more than there are: all at the end, so that nothing overlaps.

    Returns
    -------
    Iteration

    Raises
    ------
    ValueError
        Naming the argument that is wrong.
    """
    made = workload_named(workload)
    dimensions = dimensions_of(network)
    check_order(order)
    check_chunks(chunks)
    check_latency(latency)
    name = "ideal" if isinstance(policy, str) and policy == "ideal" else chosen(policy).name
    step = _Step(made, dimensions, units.size(bucket, "bucket"))
    if name != "ideal":
        check_stages(chunks, int(chunks) * step.stages)
    time, waits, queues = step.run(policy, order, int(chunks), bool(latency))
    return Iteration(
        made, dimensions, name, order, int(chunks), bool(latency), time, waits, queues.frame()
    )


def iteration_gains(
    networks: dict[str, Network] | None = None,
    workloads: Iterable[str | Workload] = tuple(WORKLOADS),
    *,
    policy: str | Policy = "themis",
    order: str = "scf",
    chunks: int = 64,
    latency: bool = True,
    bucket: int | str = "25MB",
) -> pd.DataFrame:
    """Compare a policy's training steps with the baseline's (FIFO), and with the bound (modelled).

    Parameters
    ----------
    networks : dict of str to Network, optional
        By default the six of :data:`dtoolkit.comm.topologies.TOPOLOGIES`.
    workloads : iterable of str or Workload
    policy, order, chunks, latency, bucket
        As in :func:`iteration`.

    Returns
    -------
    DataFrame
        Columns workload, network, baseline, policy, ideal (seconds of a step), gain (baseline over
        policy), bound (baseline over ideal), paper. The last is the mean that the paper states for
        its own simulator and workloads, NaN where it states none; ours are reconstructed, and where
        computing hides the gradients they gain less.
    """
    if networks is None:
        networks = {name: topology(name) for name in TOPOLOGIES}
    rows = []
    for workload in map(workload_named, workloads):
        for name, network in networks.items():
            plain, other, ideal = (
                iteration(workload, network, one, queue, chunks, latency, bucket).time
                for one, queue in (("baseline", "fifo"), (policy, order), ("ideal", "fifo"))
            )
            paper = PAPER_GAINS.get(workload.name, np.nan)
            rows.append(
                (workload.name, name, plain, other, ideal, plain / other, plain / ideal, paper)
            )
    columns = ["workload", "network", "baseline", "policy", "ideal", "gain", "bound", "paper"]
    return pd.DataFrame(rows, columns=columns)


class _Step:
    """The order in which a step computes, starts collectives, and waits for them."""

    def __init__(self, workload: Workload, dimensions: tuple[Dimension, ...], bucket: int) -> None:
        self._workload = workload
        self._dimensions = dimensions
        everyone = tuple((k, d.ranks) for k, d in enumerate(dimensions) if d.ranks > 1)
        copy, copies = carve(dimensions, workload.model_ranks)
        self._copy, self._everyone, self._copies = copy, everyone, copies
        self._buckets = _buckets(workload, bucket)
        self._joined, self._unjoined = _joined(workload)

    @property
    def stages(self) -> int:
        """Stages of all collectives, each in one chunk."""
        layers = self._workload.layers
        activations = 2 * sum(layer.activation > 0 for layer in layers)  # forward and backward
        exchanges = 2 * sum(layer.exchange > 0 for layer in layers)
        return (
            2 * activations * len(self._copy)
            + exchanges * len(self._everyone)
            + 2 * len(self._buckets) * len(self._copies)
        )

    def run(
        self, policy: str | Policy, order: str, chunks: int, latency: bool
    ) -> tuple[float, pd.DataFrame, Collectives]:
        """Compute and communicate; returns seconds, waits, and what was served."""
        layers = self._workload.layers
        times = [_picoseconds(t) for layer in layers for t in (layer.forward, layer.backward)]
        queues = Collectives(self._dimensions, policy, order, chunks, latency, self._kinds(), times)
        clock = _Clock(queues)
        self._forward(clock)
        gradients = self._backward(clock)
        clock.wait(gradients, layers[0].name, "gradient")
        return float(clock.now * queues.unit), clock.frame(), queues

    def _forward(self, clock: _Clock) -> None:
        under_way: list[int] = []
        for layer in self._workload.layers:
            if layer.joins:
                clock.wait(under_way, layer.name, "exchange")
            clock.spend(layer.forward)
            if layer.exchange:
                under_way += clock.start(self._exchange(layer.exchange))
            self._synchronise(clock, layer)
        clock.wait(under_way, layer.name, "exchange")

    def _backward(self, clock: _Clock) -> list[int]:
        """Compute gradients; returns the collectives that were started for them."""
        layers = self._workload.layers
        under_way: list[int] = []
        gradients: list[int] = []
        for i, layer in reversed(list(enumerate(layers))):
            if layer.exchange:
                if i in self._unjoined:
                    under_way += clock.start(self._exchange(layer.exchange))
                clock.wait(under_way, layer.name, "exchange")
            clock.spend(layer.backward)
            self._synchronise(clock, layer)
            if i in self._buckets:
                gradients += clock.start(self._gradient(self._buckets[i]))
            for nbytes in self._joined.get(i, ()):  # what its forward pass waited for goes back
                under_way += clock.start(self._exchange(nbytes))
        return gradients

    def _synchronise(self, clock: _Clock, layer: Layer) -> None:
        """All-reduce what the ranks of a copy need from each other, and wait for it."""
        if layer.activation:
            clock.wait(clock.start(self._activation(layer.activation)), layer.name, "activation")

    def _kinds(self) -> list[Collective]:
        layers = self._workload.layers
        return [
            *(self._activation(layer.activation) for layer in layers if layer.activation),
            *(self._exchange(layer.exchange) for layer in layers if layer.exchange),
            *(self._gradient(nbytes) for nbytes in self._buckets.values()),
        ]

    def _activation(self, nbytes: float) -> Collective:
        return Collective("all_reduce", rational(nbytes), self._copy)

    def _exchange(self, nbytes: float) -> Collective:
        return Collective("all_to_all", rational(nbytes), self._everyone)

    def _gradient(self, nbytes: float) -> Collective:
        return Collective("all_reduce", rational(nbytes), self._copies)


class _Clock:
    """The time of the ranks that compute."""

    def __init__(self, queues: Collectives) -> None:
        self._queues = queues
        self._waits: list[tuple[str, str, int, int]] = []
        self.now = 0

    def spend(self, seconds: float) -> None:
        """Compute."""
        self.now += int(_picoseconds(seconds) / self._queues.unit)

    def start(self, collective: Collective) -> list[int]:
        """Start a collective now."""
        return self._queues.start(collective, self.now)

    def wait(self, jobs: list[int], layer: str, reason: str) -> None:
        """Stand still until jobs are done, which are then forgotten."""
        until = self._queues.wait(jobs, self.now)
        jobs.clear()
        if until > self.now:
            self._waits.append((layer, reason, self.now, until))
        self.now = until

    def frame(self) -> pd.DataFrame:
        """Each time of standing still."""
        unit = self._queues.unit
        rows = [(layer, why, float(a * unit), float(b * unit)) for layer, why, a, b in self._waits]
        frame = pd.DataFrame(rows, columns=["layer", "reason", "start", "end"])
        return frame.astype({"layer": "str", "reason": "str", "start": float, "end": float})


def _buckets(workload: Workload, least: int) -> dict[int, float]:
    """Bytes of gradients that are all-reduced once a layer's backward pass has ended, by layer."""
    buckets, gathered = {}, 0.0
    for i in reversed(range(len(workload.layers))):
        gathered += workload.layers[i].gradient
        if gathered and (gathered >= least or i == 0):
            buckets[i], gathered = gathered, 0.0
    return buckets


def _joined(workload: Workload) -> tuple[dict[int, list[float]], set[int]]:
    """Bytes of the exchanges that each layer joins; and the layers whose exchanges none joins."""
    joined: dict[int, list[float]] = {}
    waiting: dict[int, float] = {}
    for i, layer in enumerate(workload.layers):
        if layer.joins:
            joined[i], waiting = list(waiting.values()), {}
        if layer.exchange:
            waiting[i] = layer.exchange
    return joined, set(waiting)


def _picoseconds(seconds: float) -> Fraction:
    """Seconds to the picosecond, so that they share a unit of time with everything else."""
    return Fraction(round(seconds * 10**12), 10**12)
