"""How long traffic takes on a network, and which link is the bottleneck (modelled).

A phase lasts as long as its busiest link: its bytes over its bandwidth, and the latency of the
slowest message on it (:mod:`dtoolkit.comm.links`). What a rank computes while bytes move overlaps;
the phase lasts as long as the longer of the two, and where a network was measured on which not all
of the shorter one hides behind it, longer by the rest. Then comes what the ranks compute after it,
as long as the one that has most. Phases follow each other, and all ranks wait for the slowest. What
a launch takes by itself comes on top, where the network knows it.
Left out are contention inside switches, routes that adapt, and everything that a rank does but to
send, receive and multiply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from dtoolkit.comm.amounts import plural, seconds_text
from dtoolkit.comm.network import Network
from dtoolkit.comm.phase_time import PhaseTime, launches_of, link_frame, time_of
from dtoolkit.comm.rates import dtype_name
from dtoolkit.comm.traffic import Traffic

if TYPE_CHECKING:
    from dtoolkit.comm.trace import Trace

__all__ = ["Prediction", "predict"]


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """How long traffic takes on a network (modelled).

    Attributes
    ----------
    network : Network
    label : str
        What was predicted, in a few words.
    steps : tuple of PhaseTime
        The phases, one after the other.
    exchange_only : bool
        Whether time to compute is left out, because the network does not say how fast ranks are.
    """

    network: Network
    label: str
    steps: tuple[PhaseTime, ...]
    exchange_only: bool

    @cached_property
    def seconds(self) -> float:
        """How long all phases take, one after the other."""
        return sum(step.seconds for step in self.steps)

    @property
    def phases(self) -> pd.DataFrame:
        """One row a phase, in order.

        Returns
        -------
        DataFrame
            Columns phase; exchange, seconds of the busiest link; compute, seconds of the rank with
            most work while bytes move; after, seconds of the rank with most work after it; seconds,
            the longer of exchange and compute with what of the shorter one does not hide behind it,
            and after; bottleneck, in words.
        """
        return pd.DataFrame(
            {
                "phase": [step.name for step in self.steps],
                "exchange": [step.exchange for step in self.steps],
                "compute": [step.work for step in self.steps],
                "after": [step.after for step in self.steps],
                "seconds": [step.seconds for step in self.steps],
                "bottleneck": [step.bottleneck for step in self.steps],
            }
        )

    @property
    def links(self) -> pd.DataFrame:
        """One row a link and phase.

        Returns
        -------
        DataFrame
            Columns link, in words; phase; bytes, int64; seconds, that it is busy; share, of the
            seconds of the phase's busiest link.
        """
        parts = [link_frame(step) for step in self.steps]
        return pd.concat(parts, ignore_index=True)

    def by_phase(self) -> pd.DataFrame:
        """Sum up phases of one name, as a trace of many calls has them.

        Returns
        -------
        DataFrame
            Indexed by phase, in order of first appearance; columns exchange, compute, after and
            seconds are sums, and bottleneck is that of the longest.
        """
        frame = self.phases
        groups = frame.groupby("phase", sort=False)
        total = groups[["exchange", "compute", "after", "seconds"]].sum()
        longest = frame.loc[groups["seconds"].idxmax().reindex(total.index)]
        return total.assign(bottleneck=longest["bottleneck"].to_numpy())

    @property
    def bottleneck(self) -> str:
        """What takes most of the time, in words: a link with its bytes, or computing."""
        frame = self.by_phase()
        main = frame["seconds"].idxmax()
        words = str(frame["bottleneck"][main])
        return f"{words} (in {main})" if len(frame) > 1 and self.seconds else words

    @property
    def error(self) -> float | None:
        """Relative error of the network, where it was measured."""
        return self.network.table.error if self.network.table is not None else None

    def __repr__(self) -> str:
        of = f" of {self.label}" if self.label else ""
        lines = [
            f"<Prediction{of} on {self.network.name} (modelled): {seconds_text(self.seconds)}",
            f"  bottleneck: {self.bottleneck}",
            *_phase_lines(self),
        ]
        if self.exchange_only:
            lines.append("  time to compute is left out: the network has no rate")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        from dtoolkit.figures.network_cards import prediction_card

        return prediction_card(self)


def predict(
    what: Traffic | Trace | Any,
    network: Network,
    *,
    k: int | None = None,
    dtype: Any = None,
    c_dtype: Any = None,
) -> Prediction:
    """Predict how long traffic takes on a network (modelled).

    Parameters
    ----------
    what : Traffic, Plan or Trace
        A plan is asked for its traffic with ``k``, ``dtype`` and ``c_dtype`` (``plan.demand``), a
        trace for what was measured (``trace.traffic``).
    network : Network
        Of as many ranks. Where it has a rate (``rate=``), time to compute is in the prediction.
    k : int, optional
        Dense columns, for a plan; 64 by default.
    dtype : dtype, optional
        Of the dense operands, for a plan; float32 by default. For a traffic it chooses among the
        network's rates, in place of the traffic's own.
    c_dtype : dtype, optional
        Of the result, for a plan; by default ``dtype``.

    Returns
    -------
    Prediction

    Raises
    ------
    ValueError
        If the ranks differ, or ``k`` or ``c_dtype`` come with what is not a plan, or ``dtype`` or
        ``c_dtype`` is none, or ``what`` is nothing that has traffic.
    """
    if not isinstance(network, Network):
        raise ValueError(f"network is a {type(network).__name__}: wanted a dtoolkit.comm.Network")
    traffic = _traffic(what, k, dtype, c_dtype)
    if traffic.ranks != network.ranks:
        raise ValueError(
            f"the traffic is of {plural(traffic.ranks, 'rank')} and the network ({network.name}) "
            f"of {network.ranks:,}: make a network of {plural(traffic.ranks, 'rank')}"
        )
    computes = any(phase.work.any() or phase.after.any() for phase in traffic.phases)
    known = traffic.dtype if dtype is None or (traffic.dtype and traffic is not what) else dtype
    rate = network.rate_of(known) if computes else None
    steps = tuple(time_of(phase, network, rate) for phase in traffic.phases)
    if traffic.launches and network.overhead:
        steps = (launches_of(traffic, network), *steps)
    return Prediction(network, traffic.label, steps, computes and rate is None)


def _traffic(what: Any, k: int | None, dtype: Any, c_dtype: Any) -> Traffic:
    """Ask what is to be predicted for its traffic."""
    if not isinstance(what, Traffic) and hasattr(what, "demand"):
        of = "float32" if dtype is None else dtype
        return what.demand(k=64 if k is None else k, dtype=of, c_dtype=c_dtype)
    if k is not None or c_dtype is not None:
        raise ValueError("k and c_dtype turn the rows of a plan into bytes; this is not a plan")
    if dtype is not None:
        dtype_name(dtype)  # refuses what is none, also where the network has one rate for all
    if isinstance(what, Traffic):
        return what
    if callable(getattr(what, "traffic", None)):
        return what.traffic()
    raise ValueError(f"{type(what).__name__} has no traffic: wanted a Traffic, a plan or a trace")


def _phase_lines(prediction: Prediction) -> Iterator[str]:
    """Write the first phases, one a line, where there are several."""
    frame = prediction.by_phase()
    if len(frame) == 1:
        return
    for name, row in frame.head(8).iterrows():
        yield f"  {name}: {seconds_text(row.seconds)}, {row.bottleneck}"
    if len(frame) > 8:
        yield f"  and {plural(len(frame) - 8, 'more phase')}"
