"""Networks of several dimensions that a person writes down, and how they are written in Python."""

from __future__ import annotations

from dtoolkit.comm import Network, topology
from dtoolkit.comm.topologies import TOPOLOGIES

__all__ = ["NAMED", "OWN", "grid", "grid_code", "parse_dimensions"]

OWN = "own"
"""Value of the choice that stands for a network of a person's own."""

NAMED = {name: name.replace("-", ": ", 1).replace("_", ", ") for name in TOPOLOGIES}
"""The networks that Themis was evaluated on: value to words."""

_FORM = "kind ranks bandwidth [latency], as in: switch 16 200GB/s 1us; ring 8 50GB/s"


def parse_dimensions(text: str, label: str = "Dimensions") -> list[tuple[str, ...]]:
    """Read dimensions, the first one inside; ``;`` or a new line stands between two.

    Returns
    -------
    list of tuple
        (kind, ranks, bandwidth) or (kind, ranks, bandwidth, latency), as text that
        :meth:`Network.dims` takes once ranks are whole numbers.

    Raises
    ------
    ValueError
        In words, naming the dimension that is wrong.
    """
    lines = [line.split() for line in text.replace("\n", ";").split(";") if line.strip()]
    if not lines:
        raise ValueError(f"{label}: nothing is written; want {_FORM}")
    for number, words in enumerate(lines, 1):
        if len(words) not in (3, 4) or not words[1].isdecimal():
            raise ValueError(f"{label}: dimension {number} is {' '.join(words)!r}; want {_FORM}")
    made = [tuple(words) for words in lines]
    try:
        Network.dims(_typed(made))
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error
    return made


def grid(kind: str, dimensions: str, latency: str) -> Network:
    """Build the chosen network; `latency` is that of the networks with a name."""
    if kind == OWN:
        return Network.dims(_typed(parse_dimensions(dimensions)))
    return topology(kind, latency=latency)


def grid_code(kind: str, dimensions: str, latency: str) -> str:
    """Python that builds what :func:`grid` does."""
    if kind == OWN:
        return f"dt.comm.Network.dims({_typed(parse_dimensions(dimensions))!r})"
    return f"dt.comm.topology({kind!r}, latency={latency!r})"


def _typed(lines: list[tuple[str, ...]]) -> list[tuple[str | int, ...]]:
    return [(words[0], int(words[1]), *words[2:]) for words in lines]
