"""One or two traces side by side on one scale: by pairs of ranks, over time, or as a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import plotly.graph_objects as go

from dtoolkit.comm.replay import Replay
from dtoolkit.figures import traffic_panes as panes
from dtoolkit.figures.theme import (
    Mode,
    base_layout,
    bytes_text,
    count_text,
    notice,
    plain,
    plural,
    seconds_text,
    title,
)
from dtoolkit.figures.traffic_panes import Pane

if TYPE_CHECKING:
    from dtoolkit.comm.network import Network
    from dtoolkit.comm.trace import Trace

__all__ = ["VIEWS", "traffic_views"]

VIEWS = ("pairs", "time", "network")
"""Names of the views."""

_MARGIN = {"l": 62, "r": 96, "t": 96, "b": 56}
_LEGEND = 22  # pixels below a timeline
_GAP = 84  # pixels between pictures beside each other
_BETWEEN = 92  # between pictures below each other: an axis and a caption
_USUAL = {True: 820, False: 540}
_MOST_SIDE = 430  # pixels of a square picture
_LETTER = 6.6  # pixels of a letter of the subtitle, generously
_NARROW = 640  # pixels of width below which the subtitle says less


def traffic_views(
    traces: Mapping[str, Trace | Replay],
    *,
    view: Literal["pairs", "time", "network"] = "pairs",
    quantity: Literal["bytes", "messages"] = "bytes",
    since: float | None = None,
    until: float | None = None,
    network: Network | Sequence[Network] | None = None,
    beside: bool = True,
    width: int | None = None,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw one or two traces, on one scale.

    Parameters
    ----------
    traces : mapping of str to Trace or Replay
        One or two, by name.
    view : {"pairs", "time", "network"}
        Who sent how much to whom; who did what when; or the load of each link.
    quantity : {"bytes", "messages"}
        What is counted for pairs, and for the network where none is given. A message is an event of
        a rank that sent something to another.
    since, until : float, optional
        Seconds from the first event of each trace: what had ended in between is counted. Over time
        all events are drawn, and both as lines.
    network : Network or sequence of Network, optional
        For the network: its tiers are drawn with the modelled load of each link; several are one
        for each trace. By default each pair of ranks has its own link, with what was measured.
    beside : bool
        Two pictures beside each other, or below each other; those over time always are below.
    width : int, optional
        In pixels; by default the figure fills what it is put into.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        All of it is measured but for the load of a network's links.

    Raises
    ------
    ValueError
        There is no trace, or more than two; view or quantity have another name; or a network has
        other ranks than its trace.
    """
    if not 1 <= len(traces) <= 2:
        raise ValueError(f"traces: wanted one or two, got {len(traces)}")
    for name, value, known in (("view", view, VIEWS), ("quantity", quantity, panes.QUANTITIES)):
        if value not in known:
            raise ValueError(f"{name}={value!r}: wanted one of {', '.join(known)}")
    replays = [one if isinstance(one, Replay) else Replay(one) for one in traces.values()]
    networks = [network] * len(replays) if not isinstance(network, Sequence) else list(network)
    if len(networks) != len(replays):
        raise ValueError(f"network: got {len(networks)} for {len(replays)} traces")
    tree = view == "network" and networks[0] is not None
    high = [_high(view, one, net) for one, net in zip(replays, networks, strict=True)]
    places, room = _places(view, tree, high, beside, width or _USUAL[beside])
    margin = {**_MARGIN, "b": _MARGIN["b"] + (_LEGEND if view == "time" else 0)}
    height = room + margin["t"] + margin["b"]
    drawn = [
        Pane(one, net, since, until, number, *place)
        for number, (one, net, place) in enumerate(zip(replays, networks, places, strict=True))
    ]
    if view == "pairs":
        data, axes = panes.pairs(drawn, quantity)
    elif view == "time":
        data, axes = panes.timelines(drawn)
    elif tree:
        data, axes = panes.trees(drawn)
    else:
        data, axes = panes.circles(drawn, quantity)
    shared = base_layout(mode=mode)["xaxis"]
    head, below = _heading(drawn, view, tree, quantity, width or _USUAL[True])
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title={
                **title(head, below),
                "font": {"size": 15},
                "y": 1 - 14 / height,
                "yref": "container",
            },
            **{
                name: {**shared, **axis, "title": {**shared["title"], **axis.get("title", {})}}
                for name, axis in axes.items()
            },
            shapes=[shape for pane in drawn for shape in panes.cursor(pane)]
            if view == "time"
            else [],
            annotations=[
                *_captions(list(traces), drawn, quantity, alone=len(drawn) == 1),
                *[_empty(pane) for pane in drawn if not len(pane.replay)],
            ],
            hovermode="closest",
            showlegend=view == "time",
            legend={
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": -50 / room,
                "yanchor": "top",
                "itemsizing": "constant",
                "font": {"size": 12},
                "bgcolor": "rgba(0,0,0,0)",
            },
            margin=margin,
            width=width,
            height=height,
            autosize=width is None,
        ),
    )


def _high(view: str, replay: Replay, network: Network | None) -> int:
    """Pixels of a picture of its own height; 0 of one that is a square."""
    if view == "time":
        return min(max(32 * replay.ranks, 128), 420)
    if view == "network" and network is not None:
        return panes.tree_height(network)
    return 0


def _places(
    view: str, tree: bool, high: list[int], beside: bool, width: int
) -> tuple[list[tuple[list[float], list[float], float]], int]:
    """Where the pictures are, in shares of their room and in pixels of width; and its height."""
    inside = max(width - _MARGIN["l"] - _MARGIN["r"], 200)
    many = len(high)
    row = many == 2 and beside and view != "time"
    wide = (inside - _GAP) / 2 if row else inside
    square = view != "time" and not tree
    side = min(wide, _MOST_SIDE) if square else wide
    pixels = [round(side) if square else one for one in high]
    below = max(pixels) if row else sum(pixels) + _BETWEEN * (many - 1)
    found: list[tuple[list[float], list[float], float]] = []
    top = float(below)
    for number, one in enumerate(pixels):
        left = number * (side + _GAP) if row else 0
        across = [left / inside, min((left + side) / inside, 1.0)]
        found.append((across, [max(top - one, 0) / below, top / below], side))
        if not row:
            top -= one + _BETWEEN
    return found, round(below)


def _captions(
    names: list[str], drawn: list[Pane], quantity: str, *, alone: bool
) -> list[dict[str, Any]]:
    """Name each trace, and say what was sent, above its picture."""
    if alone:
        return []
    return [
        {
            "text": f"<b>{plain(name)}</b>: {_amount(pane, quantity)}",
            "x": pane.x[0],
            "y": pane.y[1],
            "xref": "paper",
            "yref": "paper",
            "xanchor": "left",
            "yanchor": "bottom",
            "yshift": 5,
            "showarrow": False,
            "font": {"size": 12.5},
        }
        for name, pane in zip(names, drawn, strict=True)
    ]


def _empty(pane: Pane) -> dict[str, Any]:
    """Say in the middle of a picture that there is nothing in it."""
    x, y = sum(pane.x) / 2, sum(pane.y) / 2
    return {**notice("no events"), "x": x, "y": y, "font": {"size": 13}}


def _amount(pane: Pane, quantity: str) -> str:
    total = int(pane.matrix(quantity).sum())
    return bytes_text(total) if quantity == "bytes" else count_text(total, "messages")


def _heading(
    drawn: list[Pane], view: str, tree: bool, quantity: str, width: int
) -> tuple[str, str]:
    what = {"pairs": "From rank to rank", "time": "Over time", "network": "Load by link"}[view]
    if not any(len(pane.replay) for pane in drawn):
        return "Nothing was recorded yet", "run something on workers, or read a trace"
    known = "bytes measured, times modelled" if tree else "measured"
    amounts = " and ".join(_amount(pane, quantity) for pane in drawn)
    pane = drawn[0]
    span = max(one.replay.span for one in drawn)
    words = [_when(pane, span)]
    if tree and pane.network is not None:
        words.append(plain(pane.network.name))
    if width >= _NARROW:
        words.append(plural(sum(len(one.replay) for one in drawn), "event"))
        cells = panes.binned(max(one.replay.ranks for one in drawn))
        words += [cells] if cells and view != "time" and not tree else []
    emulated = next((one.replay.emulated for one in drawn if one.replay.emulated), "")
    words += [f"emulated: {plain(emulated)}"] if emulated else []
    while len(words) > 1 and len("; ".join(words)) > (width - _MARGIN["l"]) / _LETTER:
        words.pop(1)
    return f"{what}: {amounts} ({known})", "; ".join(words)


def _when(pane: Pane, span: float) -> str:
    if pane.since is None and pane.until is None:
        return f"all of {seconds_text(span)}"
    until = seconds_text(span if pane.until is None else pane.until)
    if pane.since is None:
        return f"until {until} of {seconds_text(span)}"
    return f"{seconds_text(pane.since)} to {until} of {seconds_text(span)}"
