"""Networks of several dimensions that a person writes down, and how they are written in Python."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dtoolkit.comm import Network
from dtoolkit.comm.arguments import dimensions_of
from dtoolkit.comm.dimension import Dimension
from dtoolkit.comm.topologies import TOPOLOGIES

__all__ = ["MOST", "NAMED", "OWN", "Written", "grid", "grid_code", "named_text", "read", "text_of"]

OWN = "own"
"""Value of the choice that stands for a network of a person's own."""

NAMED = {name: name.replace("-", ": ", 1).replace("_", ", ") for name in TOPOLOGIES}
"""The networks that Themis was evaluated on: value to words."""

MOST = 6
"""Dimensions that are drawn."""

Written = tuple[str, int, str] | tuple[str, int, str, str]
"""Kind, ranks, bandwidth and, where it is stated, latency of a dimension, as they were written."""

_FORM = "a line a dimension, such as: ring 16 x 200GB/s, 1us"
_LINE = re.compile(
    r"(?P<kind>[a-z][a-z _-]*?)\s*(?:\bof\b)?\s*(?P<ranks>\d+)\s*(?:[x×,:]|\bat\b)?\s+"
    r"(?P<bandwidth>[\d.]+\s*[a-z/]*)(?:\s*[\s,]\s*(?P<latency>[\d.]+\s*[a-zµμ]+))?",
    re.IGNORECASE,
)


def read(text: str, label: str = "Dimensions") -> tuple[Written, ...]:
    """Read dimensions, the first one inside: a line each, or ``;`` between two.

    Parameters
    ----------
    text : str
        Each ``kind ranks x bandwidth[, latency]``; ``x`` and the comma may be left out.
    label : str
        For the error.

    Raises
    ------
    ValueError
        In words, naming the line that is wrong.
    """
    lines = [line.strip() for line in text.replace("\n", ";").split(";") if line.strip()]
    if not lines:
        raise ValueError(f"{label}: nothing is written; want {_FORM}")
    if len(lines) > MOST:
        raise ValueError(f"{label}: {len(lines)} dimensions are written, want {MOST} at most")
    made = tuple(_line(line, f"{label}, line {n}") for n, line in enumerate(lines, 1))
    try:
        Network.dims(made)  # ranks of all together
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error
    return made


def grid(kind: str, dimensions: str, latency: str) -> Network:
    """Build the network; `latency` is that of dimensions that state none."""
    return Network.dims(_whole(read(dimensions), latency))


def grid_code(kind: str, dimensions: str, latency: str) -> str:
    """Python that builds what :func:`grid` does."""
    if kind != OWN:
        return f"dt.comm.topology({kind!r}, latency={latency!r})"
    rows = "".join(f"    {one!r},\n" for one in _whole(read(dimensions), latency))
    return f"dt.comm.Network.dims([\n{rows}])"


def named_text(name: str) -> str:
    """Write one of the networks with a name, without latencies."""
    return text_of(TOPOLOGIES[name])


def text_of(network: Any) -> str:
    """Write dimensions as :func:`read` reads them.

    Parameters
    ----------
    network : Network, str, or iterable of Dimension or (kind, ranks, bandwidth[, latency])
        A network of dimensions, of two tiers or flat; a text is checked alone.

    Raises
    ------
    ValueError
        It has no dimensions, or is not written as dimensions are.
    """
    if isinstance(network, str):
        read(network, "network")
        return network
    made = network if isinstance(network, Network) else Network.dims(tuple(network))
    text = "\n".join(_written(one) for one in dimensions_of(made))
    read(text, "network")
    return text


def _line(line: str, where: str) -> Written:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"{where} is {line!r}: want {_FORM}")
    kind, ranks = found["kind"].strip(), int(found["ranks"])
    bandwidth = found["bandwidth"].replace(" ", "")
    made: Written = (kind, ranks, bandwidth)
    if found["latency"]:
        made = (kind, ranks, bandwidth, found["latency"].replace(" ", ""))
    Dimension.of(made, where)
    return made


def _whole(lines: Iterable[Written], latency: str) -> list[tuple[str | int, ...]]:
    return [one if len(one) == 4 else (*one, latency) for one in lines]


def _written(one: Dimension) -> str:
    latency = f", {one.latency * 1e6:.12g}us" if one.latency else ""
    return f"{one.kind} {one.ranks} x {one.bandwidth / 1e9:.12g}GB/s{latency}"
