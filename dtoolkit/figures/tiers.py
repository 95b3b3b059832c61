"""Tiers of a network, laid out as a tree: where each link is drawn, and what it carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtoolkit.comm.amounts import bandwidth_text
from dtoolkit.figures.bins import edges
from dtoolkit.figures.theme import bytes_text, plain, seconds_text

if TYPE_CHECKING:
    from dtoolkit.comm.links import Links
    from dtoolkit.comm.network import Network
    from dtoolkit.comm.prediction import Prediction

__all__ = ["Tier", "lay_out", "sizes"]

MAX_LINKS = 256  # drawn in all; beyond, neighbours are drawn as one


@dataclass(frozen=True)
class Tier:
    """What is drawn of one tier: a line from each of its members up to what connects them.

    Attributes
    ----------
    words : str
        What the tier is called.
    member : str
        What one line belongs to.
    x, up : float64 arrays
        Foot and head of each line, in ranks.
    busy : float64 array
        Seconds of the busiest link behind each line.
    hover : list of str
        What each line says.
    """

    words: str
    member: str
    x: NDArray[np.float64]
    up: NDArray[np.float64]
    busy: NDArray[np.float64]
    hover: list[str]


def sizes(network: Network) -> list[int]:
    """Return the members of each tier: ranks first, and last what the top switch connects."""
    if network.table is not None:
        return [network.ranks, len(network.table.host_capacity)]
    counts = [network.ranks]
    for d in network.dimensions[:-1]:
        counts.append(counts[-1] // d.ranks)
    return counts


def lay_out(network: Network, made: Prediction | None) -> list[Tier]:
    """Lay out the tiers of a network, from the ranks up, with the load that was predicted."""
    counts = sizes(network)
    cap = max(1, MAX_LINKS // len(counts))
    bins = [edges(count, min(count, cap)) for count in counts]
    place = _places(network)  # of each rank, on x
    member = np.arange(network.ranks)  # of each rank, its member in this tier
    tiers = []
    for level, size in enumerate(counts):
        above = _above(network, level, member)
        foot = _centres(place, member, size, bins[level])
        if level + 1 < len(counts):
            heads = _centres(place, above, counts[level + 1], bins[level + 1])
            middle = (bins[level][:-1] + bins[level][1:] - 1) // 2
            over = np.zeros(size, dtype=np.int64)
            over[member] = above
            up = heads[np.searchsorted(bins[level + 1], over[middle], side="right") - 1]
        else:
            up = np.full(len(foot), (network.ranks - 1) / 2)
        busy, hover = _load(network, made, level, member, size, bins[level])
        tiers.append(
            Tier(
                _tier_words(network, level),
                _member_words(network, level),
                foot,
                up,
                busy,
                hover,
            )
        )
        member = above
    return tiers


def _places(network: Network) -> NDArray[np.float64]:
    """Place ranks on x, those of a host together."""
    order = np.argsort(network.nodes, kind="stable")
    place = np.empty(network.ranks)
    place[order] = np.arange(network.ranks)
    return place


def _above(network: Network, level: int, member: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return of each rank its member in the next tier."""
    if network.table is not None:
        return network.nodes.astype(np.int64) if level == 0 else np.zeros_like(member)
    return member // network.dimensions[level].ranks


def _centres(
    place: NDArray[np.float64], member: NDArray[np.int64], size: int, cuts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Place each drawn member in the middle of its ranks."""
    drawn = np.searchsorted(cuts, member, side="right") - 1
    count = np.bincount(drawn, minlength=len(cuts) - 1)
    return np.bincount(drawn, weights=place, minlength=len(cuts) - 1) / np.maximum(count, 1)


def _load(
    network: Network,
    made: Prediction | None,
    level: int,
    member: NDArray[np.int64],
    size: int,
    cuts: NDArray[np.int64],
) -> tuple[NDArray[np.float64], list[str]]:
    """Say how long the links behind each line are busy, and with what."""
    count = len(cuts) - 1
    busy = np.zeros(count)
    hover = [_who(network, level, a, b - 1) for a, b in _pairs(cuts)]
    for number, group in enumerate(_of_tier(made, level)):
        owners = member if group.owner == "rank" else np.arange(size)
        line = np.searchsorted(cuts, owners, side="right") - 1
        steps = [step.links for step in made.steps] if made else []
        same = [_of_level(links, level)[number] for links in steps]
        seconds = np.sum([g.seconds for g in same], axis=0)
        moved = np.sum([g.bytes for g in same], axis=0)
        longest, total = np.zeros(count), np.zeros(count, dtype=np.int64)
        np.maximum.at(longest, line, seconds)
        np.add.at(total, line, moved)
        busy = np.maximum(busy, longest)
        kind = plain(group.words.replace(" {}", ""))
        for i in range(count):
            hover[i] += (
                f"<br>{kind}: {bytes_text(int(total[i]))}, busy {seconds_text(float(longest[i]))}"
            )
    return busy, hover


def _of_tier(made: Prediction | None, level: int) -> list[Links]:
    return _of_level(made.steps[0].links, level) if made else []


def _of_level(links: tuple[Links, ...], level: int) -> list[Links]:
    return [group for group in links if group.tier == level]


def _pairs(cuts: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))


def _who(network: Network, level: int, first: int, last: int) -> str:
    """Name the members behind one line."""
    word = _member_words(network, level)
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"


def _member_words(network: Network, level: int) -> str:
    if level == 0:
        return "rank"
    if network.table is not None:
        return "host"
    return "node" if level == 1 else f"group of {level} dimensions,"


def _tier_words(network: Network, level: int) -> str:
    """Name a tier, and how fast it is."""
    if network.table is not None:
        return ("a rank", "a host, all of its ranks")[level]
    d = network.dimensions[level]
    speed = bandwidth_text(d.bandwidth)
    if network.kind == "flat":
        return f"any pair<br>{speed}"
    if network.kind == "two-tier":
        return f"{('inside a node', 'between nodes')[level]}<br>{speed} a rank"
    return f"{level}: {d.kind} of {d.ranks:,}<br>{speed} a rank"
