"""How long a scheduled collective takes on a network of dimensions: modelled, stage by stage.

Each stage of a chunk takes its bytes over the dimension's bandwidth, and a latency for each step of
the dimension's algorithm: ``p - 1`` on a ring, 1 among fully connected ranks (each sends to all at
once), and ``log2 p`` through a switch (halving and doubling; rounded up where ``p`` is no power of
two). A dimension of one rank has no stage, and its bandwidth is not there to be used. The model has
no congestion inside a dimension, no cost of starting an operation, and no compute: it is the model
of the paper's reference figures, not a measurement.

Source: S. Rashidi et al., ISCA 2022, arXiv 2110.04478.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtoolkit.comm import units
from dtoolkit.comm.amounts import bytes_text, grid_text, plural, seconds_text
from dtoolkit.comm.arguments import (
    check_chunks,
    check_latency,
    check_operation,
    check_order,
    check_stages,
    dimensions_of,
)
from dtoolkit.comm.exact import floats, rational
from dtoolkit.comm.network import Dimension, Network
from dtoolkit.comm.schedules import Schedule, schedule, stage_count
from dtoolkit.comm.serving import serve
from dtoolkit.comm.themis import Policy, cite

__all__ = ["Simulation", "dimension_table", "simulate"]


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """A collective as it would run (modelled).

    Attributes
    ----------
    dimensions : tuple of Dimension
    size : int
        Bytes of the whole tensor on a rank.
    operation, policy, order : str
    chunks : int
    latency : bool
        Whether latencies count.
    time : float
        Seconds.
    schedule : Schedule or None
        None for the ideal, which no schedule stands for.
    bars : DataFrame
        One row a stage, in order of its beginning: chunk (-1 for the ideal), dimension, operation,
        start and end (seconds), bytes (that each rank sends).
    """

    dimensions: tuple[Dimension, ...]
    size: int
    operation: str
    policy: str
    order: str
    chunks: int
    latency: bool
    time: float
    schedule: Schedule | None
    bars: pd.DataFrame

    @property
    def utilisation(self) -> float:
        """Share of all bandwidth, over all dimensions and the whole time, that moves bytes: 0 to 1.

        Dimensions weigh by their bandwidth; those of one rank, in which nothing moves, count not.
        It is the ideal's time over this time, and 0 where nothing moves and no time passes.
        """
        return min(1.0, self.ideal / self.time) if self.time else 0.0

    @cached_property
    def ideal(self) -> float:
        """Seconds if all bandwidth were in use all the time; a bound that ignores latency.

        ``2 S (1 - 1/ranks)`` bytes of an all-reduce of S bytes (half of that for the others) over
        the bandwidths' sum. Dimensions of one rank are left out of it: no order can use them, so
        that with them the bound would be out of reach.
        """
        return float(_ideal_seconds(self.dimensions, self.size, self.operation))

    @property
    def bytes_sent(self) -> NDArray[np.float64]:
        """Bytes that each rank sends in each dimension."""
        return self.by_dimension["bytes"].to_numpy()

    @cached_property
    def by_dimension(self) -> pd.DataFrame:
        """One row a dimension: dimension, kind, ranks, bandwidth, bytes, busy, utilisation.

        Busy seconds count latencies; utilisation is bytes over what the bandwidth could have moved.
        """
        return dimension_table(self.dimensions, self.bars, self.time)

    @property
    def name(self) -> str:
        """What was simulated, in a few words."""
        grid = grid_text([d.ranks for d in self.dimensions])
        queue = "" if self.policy == "ideal" else f", {self.order.upper()}"
        return (
            f"{self.operation.replace('_', '-')} of {bytes_text(self.size)} on {grid}, "
            f"{self.policy}{queue}"
        )

    def cite(self) -> str:
        """Source of the policy, as text."""
        return cite(self.policy)

    def __repr__(self) -> str:
        chunks = "" if self.policy == "ideal" else f", {plural(self.chunks, 'chunk')}"
        latency = "" if self.latency else ", without latency"
        used = f"{self.utilisation:.1%} of the bandwidth used" if self.time else "nothing moves"
        return (
            f"<Simulation (modelled): {self.name}{chunks}{latency}: "
            f"{seconds_text(self.time)}, {used}>"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.figures.schedule_cards import simulation_card

        return simulation_card(self)


def simulate(
    network: Network,
    size: int | str,
    policy: str | Policy | Schedule = "baseline",
    order: str = "fifo",
    chunks: int = 64,
    latency: bool = True,
    operation: str = "all_reduce",
) -> Simulation:
    """Tell how long a collective of all ranks takes under a policy (modelled).

    Parameters
    ----------
    network : Network
        Of dimensions, two-tier (two switches, the ranks of a node first) or flat (one switch).
    size : int or str
        Bytes of the whole tensor on a rank: what an all-reduce and a reduce-scatter start with, and
        what an all-gather ends with; text has a unit: ``"100MB"``.
    policy : {"baseline", "themis", "ideal"}, Policy or Schedule
        What chooses the order of each chunk; ``"ideal"`` is the bound where all bandwidth is in use
        all the time. A user's own policy is any object like
        :class:`dtoolkit.comm.themis.Policy`; a schedule is taken as it is.
    order : {"fifo", "scf"}
        In a dimension's queue: first come, first served, or the stage that moves fewest bytes
        first.
    chunks : int
        Into how many equal chunks the tensor is cut; at most 500,000 stages, which take about ten
        seconds to simulate (an all-reduce has two a chunk and dimension). A given schedule has its
        own.
    latency : bool
        False: latencies count as 0.
    operation : {"all_reduce", "reduce_scatter", "all_gather"}

    Returns
    -------
    Simulation

    Raises
    ------
    ValueError
        Naming the argument that is wrong.

    Examples
    --------
    >>> import dtoolkit as dt
    >>> network = dt.comm.topology("2D-SW_SW")
    >>> plain = dt.comm.simulate(network, "1GB")
    >>> themis = dt.comm.simulate(network, "1GB", policy="themis", order="scf")
    >>> round(plain.time / themis.time, 3)
    1.533
    """
    dimensions = dimensions_of(network)
    amount = units.size(size, "size")
    check_order(order)
    check_chunks(chunks)
    check_latency(latency)
    check_operation(operation)
    if isinstance(policy, Schedule):
        plan = _fitting(policy, dimensions, operation)
        check_stages(plan.chunks, stage_count(dimensions, plan.chunks, operation))
    elif isinstance(policy, str) and policy == "ideal":
        return _ideal(dimensions, amount, operation, order, chunks, bool(latency))
    else:
        plan = schedule(network, policy, chunks=chunks, operation=operation)
    time, bars = _run(plan, dimensions, amount, order, bool(latency))
    return Simulation(
        dimensions, amount, operation, plan.policy, order, plan.chunks, bool(latency), time, plan,
        bars,
    )  # fmt: skip


def dimension_table(
    dimensions: tuple[Dimension, ...], bars: pd.DataFrame, time: float
) -> pd.DataFrame:
    """Sum up bars by dimension: dimension, kind, ranks, bandwidth, bytes, busy, utilisation."""
    where = bars["dimension"].to_numpy()
    busy, sent = np.zeros(len(dimensions)), np.zeros(len(dimensions))
    np.add.at(busy, where, (bars["end"] - bars["start"]).to_numpy())
    np.add.at(sent, where, bars["bytes"].to_numpy())
    bandwidth = np.array([d.bandwidth for d in dimensions])
    could = bandwidth * time
    return pd.DataFrame(
        {
            "dimension": np.arange(len(dimensions)),
            "kind": [d.kind for d in dimensions],
            "ranks": [d.ranks for d in dimensions],
            "bandwidth": bandwidth,
            "bytes": sent,
            "busy": busy,
            "utilisation": np.divide(sent, could, out=np.zeros_like(could), where=could > 0),
        }
    )


def _run(
    plan: Schedule, dimensions: tuple[Dimension, ...], size: int, order: str, latency: bool
) -> tuple[float, pd.DataFrame]:
    """Serve all chunks, which are there from the beginning."""
    each = Fraction(size, plan.chunks)
    queues, unit = serve(plan, dimensions, each, order, latency)
    stages = [plan.stages(chunk) for chunk in range(plan.chunks)]
    said = [stages[s.job][s.stage] for s in queues.served]
    nbytes = {moved: float(moved * each) for moved in {stage.moved for stage in said}}
    bars = _frame(
        chunk=[s.job for s in queues.served],
        dimension=[stage.dimension for stage in said],
        operation=[stage.operation for stage in said],
        start=floats((s.start for s in queues.served), unit),
        end=floats((s.end for s in queues.served), unit),
        nbytes=[nbytes[stage.moved] for stage in said],
    )
    return float(max(queues.ended.values()) * unit), bars


def _ideal(
    dimensions: tuple[Dimension, ...],
    size: int,
    operation: str,
    order: str,
    chunks: int,
    latency: bool,
) -> Simulation:
    """All dimensions busy all the time, half of it with each half of an all-reduce."""
    time = _ideal_seconds(dimensions, size, operation)
    halves = ["reduce_scatter", "all_gather"] if operation == "all_reduce" else [operation]
    lasts = time / len(halves)
    used = [k for k, d in enumerate(dimensions) if d.ranks > 1]
    rows = [(half, k) for half in range(len(halves)) for k in used if time]
    bars = _frame(
        chunk=[-1] * len(rows),
        dimension=[k for _, k in rows],
        operation=[halves[half] for half, _ in rows],
        start=[float(half * lasts) for half, _ in rows],
        end=[float((half + 1) * lasts) for half, _ in rows],
        nbytes=[float(lasts * rational(dimensions[k].bandwidth)) for _, k in rows],
    )
    return Simulation(
        dimensions, size, operation, "ideal", order, int(chunks), latency, float(time), None, bars
    )


def _ideal_seconds(dimensions: tuple[Dimension, ...], size: int, operation: str) -> Fraction:
    ranks = prod(d.ranks for d in dimensions)
    moved = size * (1 - Fraction(1, ranks)) * (2 if operation == "all_reduce" else 1)
    used = [rational(d.bandwidth) for d in dimensions if d.ranks > 1]
    return moved / sum(used) if used else Fraction(0)


def _fitting(plan: Schedule, dimensions: tuple[Dimension, ...], operation: str) -> Schedule:
    shape = tuple(d.ranks for d in dimensions)
    if plan.shape != shape:
        raise ValueError(
            f"the schedule is for {grid_text(plan.shape)}, the network has {grid_text(shape)}"
        )
    if plan.operation != operation:
        raise ValueError(f"the schedule is for {plan.operation}, operation is {operation!r}")
    return plan


def _frame(*, nbytes: list[float], **columns: Any) -> pd.DataFrame:
    frame = pd.DataFrame({**columns, "bytes": nbytes})
    kinds = {"chunk": "int64", "dimension": "int64", "operation": "str"}
    return frame.astype({**kinds, **dict.fromkeys(("start", "end", "bytes"), "float64")})
