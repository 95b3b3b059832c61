"""How long one phase takes on a network, and what it waits for (modelled)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dtoolkit.comm.amounts import bandwidth_text, bytes_text, plural, seconds_text
from dtoolkit.comm.links import Links
from dtoolkit.comm.network import Network
from dtoolkit.comm.traffic import Phase, Traffic

__all__ = ["PhaseTime", "launches_of", "link_frame", "time_of"]

ALIKE = 1e-9  # links whose times differ by less than this share are equally busy


@dataclass(frozen=True, eq=False)
class PhaseTime:
    """How long one phase takes (modelled).

    Attributes
    ----------
    name : str
    sent : int
        Bytes that move, each counted once, however many links it takes.
    exchange : float
        Seconds of the busiest link.
    work : float
        Seconds that the rank with most work computes while bytes move.
    after : float
        Seconds that the rank with most work computes after it.
    links : tuple of Links
        All links, with what loads them.
    busiest : (int, int) or None
        Group among the links, and the link in it, which is busiest; None where nothing moves.
    overlap : float
        Share of the shorter of exchange and work that hides behind the longer.
    fixed : float
        Seconds that pass whatever moves.
    """

    name: str
    sent: int
    exchange: float
    work: float
    after: float
    links: tuple[Links, ...]
    busiest: tuple[int, int] | None
    overlap: float = 1.0
    fixed: float = 0.0

    @property
    def seconds(self) -> float:
        """How long the phase takes."""
        longer, shorter = max(self.exchange, self.work), min(self.exchange, self.work)
        return self.fixed + longer + (1 - self.overlap) * shorter + self.after

    @property
    def bottleneck(self) -> str:
        """What the phase waits for, in words."""
        if self.fixed:
            return f"the launch itself: {seconds_text(self.fixed)}"
        if self.busiest is not None and self.exchange >= max(self.work, self.after):
            return _link_words(self)
        waited = self.after + (self.work if self.work > self.exchange else 0.0)
        if waited:
            return f"computing: {seconds_text(waited)} on the rank with most work"
        return "nothing: no bytes move"


def time_of(phase: Phase, network: Network, rate: float | None) -> PhaseTime:
    """Predict one phase; without a rate (nonzeros times columns a second), computing is free."""
    links = network.loads(phase.sent)
    longest = [float(group.seconds.max(initial=0.0)) for group in links]
    exchange = max(longest)
    busiest = None
    if phase.sent.any():
        group = next(i for i, t in enumerate(longest) if t >= exchange * (1 - ALIKE))
        busiest = (group, int(links[group].seconds.argmax()))
    work, after = (
        0.0 if rate is None else float(amount.max(initial=0.0)) / rate
        for amount in (phase.work, phase.after)
    )
    sent = int(phase.sent.sum())
    return PhaseTime(phase.name, sent, exchange, work, after, links, busiest, network.overlap)


def launches_of(traffic: Traffic, network: Network) -> PhaseTime:
    """Predict what launches take beside their phases."""
    still = network.loads(np.zeros((network.ranks, network.ranks), np.int64))
    fixed = traffic.launches * network.overhead
    return PhaseTime("launch", 0, 0.0, 0.0, 0.0, still, None, fixed=fixed)


def link_frame(step: PhaseTime) -> pd.DataFrame:
    """List all links of a phase, as :attr:`dtoolkit.comm.Prediction.links` has them."""
    busy = np.concatenate([links.seconds for links in step.links])
    return pd.DataFrame(
        {
            "link": [links.name(i) for links in step.links for i in range(len(links.bytes))],
            "phase": step.name,
            "bytes": np.concatenate([links.bytes for links in step.links]),
            "seconds": busy,
            "share": busy / step.exchange if step.exchange else busy,
        }
    )


def _link_words(step: PhaseTime) -> str:
    """Say which link is busiest: ``"node 3's way out: 1.2 GB at 50 GB/s"``."""
    assert step.busiest is not None
    group, index = step.busiest
    links = step.links[group]
    busy = links.seconds
    words = (
        f"{links.name(index)}: {bytes_text(int(links.bytes[index]))} at "
        f"{bandwidth_text(float(links.bandwidth[index]))}"
    )
    if links.latency[index] > 0.01 * busy[index]:
        words += f" and {seconds_text(float(links.latency[index]))} latency"
    alike = int((busy >= busy[index] * (1 - ALIKE)).sum()) - 1
    return words + (f" (as busy: {plural(alike, f'more {links.owner}')})" if alike else "")
