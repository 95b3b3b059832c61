"""Pictures of one or two traces: heatmaps, timelines, links of ranks, tiers of networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dtoolkit.comm.prediction import predict
from dtoolkit.comm.replay import Replay
from dtoolkit.figures.bins import bin_matrix, edges
from dtoolkit.figures.network import network as network_figure
from dtoolkit.figures.theme import CATEGORIES, CIVIDIS, bytes_text, cividis, ticks
from dtoolkit.figures.tiers import lay_out, sizes
from dtoolkit.figures.timeline import event_lines

if TYPE_CHECKING:
    import pandas as pd

    from dtoolkit.comm.network import Network

__all__ = [
    "QUANTITIES",
    "Pane",
    "binned",
    "circles",
    "cursor",
    "pairs",
    "timelines",
    "tree_height",
    "trees",
]

QUANTITIES = ("bytes", "messages")
"""What can be counted."""

Drawn = tuple[list[Any], dict[str, Any]]

MOST_CELLS = 256  # of a heatmap in each direction
MOST_NODES, CLASSES = 64, 8  # ranks that are drawn on a circle, and classes of loads
MOST_EVENTS = 5_000  # drawn one by one; of more, those that touch on the screen are one
FINEST = 1_500  # parts of the time that are told apart then
ROOM = 52  # pixels that a number in a cell takes
_SCALE = [[i / (len(CIVIDIS) - 1), c] for i, c in enumerate(CIVIDIS)]


@dataclass(frozen=True, eq=False)
class Pane:
    """One trace, and where it is drawn.

    Attributes
    ----------
    replay : Replay
    network : Network or None
    since, until : float or None
        Seconds of the window that counts.
    number : int
        0 or 1.
    x, y : list of float
        Domains, in shares of the figure.
    side : float
        Width in pixels.
    """

    replay: Replay
    network: Network | None
    since: float | None
    until: float | None
    number: int
    x: list[float]
    y: list[float]
    side: float

    @property
    def tag(self) -> str:
        """What the names of its axes end in."""
        return str(self.number + 1) if self.number else ""

    def matrix(self, quantity: str) -> NDArray[np.int64]:
        """What the ranks sent each other in the window."""
        return self.replay.matrix(self.since, self.until, messages=quantity == "messages")

    def most(self, quantity: str) -> int:
        """What the scale must reach, so that it stays as it is while time goes on."""
        now = int(self.matrix(quantity).max(initial=0))
        if self.since is None:
            whole = self.replay.matrix(messages=quantity == "messages")
            return max(now, int(whole.max(initial=0)))
        until = self.replay.span if self.until is None else self.until
        width = until - self.since
        return max(now, self.replay.peak(width, messages=quantity == "messages"))

    def axes(self, x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
        """Its axes; kind and mode of ticks are always stated, since a page keeps the old ones."""
        common = {"type": "linear", "showgrid": False, "showticklabels": True, "tickangle": 0}
        return {
            f"xaxis{self.tag}": {**common, "domain": self.x, "anchor": f"y{self.tag}", **x},
            f"yaxis{self.tag}": {**common, "domain": self.y, "anchor": f"x{self.tag}", **y},
        }


def binned(ranks: int) -> str:
    """Say how many ranks a cell of the heatmap stands for, where it is more than one."""
    each = f"{ranks / MOST_CELLS:.3g}"
    return f"a cell sums {each} × {each} ranks" if ranks > MOST_CELLS else ""


def pairs(panes: list[Pane], quantity: str) -> Drawn:
    """Draw heatmaps of ranks by ranks."""
    most = max(pane.most(quantity) for pane in panes)
    data: list[Any] = []
    axes: dict[str, Any] = {}
    for pane in panes:
        n = pane.replay.ranks
        cells = bin_matrix(pane.matrix(quantity), MOST_CELLS)
        cuts = edges(n, max(len(cells), 1))
        middle = (cuts[:-1] + cuts[1:] - 1) / 2
        texts = None
        if n and pane.side / n >= ROOM:
            texts = [[_amount(v, quantity) if v else "" for v in row] for row in cells]
        unit = "%{z:,} bytes" if quantity == "bytes" else "%{z:,} messages"
        about = "rank" if len(cells) == n else "ranks about"
        data.append(
            go.Heatmap(
                z=cells,
                x=middle,
                y=middle,
                zmin=0,
                zmax=max(most, 1),
                colorscale=_SCALE,
                xaxis=f"x{pane.tag}",
                yaxis=f"y{pane.tag}",
                text=texts,
                texttemplate="%{text}" if texts else None,
                xgap=1 if n <= 64 else 0,
                ygap=1 if n <= 64 else 0,
                showscale=pane is panes[-1],
                colorbar=_bar(pane, quantity),
                hovertemplate=f"{about} %{{y}} → {about} %{{x}}: {unit}<extra></extra>",
            )
        )
        named = ticks(n <= 16, about=8)
        axes |= pane.axes(
            {"title": {"text": "to rank (number)"}, "range": [-0.5, max(n, 1) - 0.5], **named},
            {"title": {"text": "from rank (number)"}, "range": [max(n, 1) - 0.5, -0.5], **named},
        )
    return data, axes


def timelines(panes: list[Pane]) -> Drawn:
    """Draw events over time, one lane a rank, all on one scale of time."""
    reach = max(pane.replay.span for pane in panes) * 1e3
    names = {name for pane in panes for name in pane.replay.operation}
    shown: set[str] = set()
    data: list[Any] = []
    axes: dict[str, Any] = {}
    for pane in panes:
        n = max(pane.replay.ranks, 1)
        frame = merged(pane.replay.frame(), reach / 1e3 / FINEST)
        for line in event_lines(frame, n, 0.0, beside=names):
            line.update(
                xaxis=f"x{pane.tag}",
                yaxis=f"y{pane.tag}",
                showlegend=line.name not in shown,
                legendgroup=line.name,
            )
            shown.add(line.name)
            data.append(line)
        axes |= pane.axes(
            {
                "title": {"text": "time from the first event (ms)"},
                "range": [-0.005 * reach, max(reach, 1e-6) * 1.005],
                "showgrid": True,
                **ticks(False),
            },
            {
                "title": {"text": "rank (number)"},
                "range": [n - 0.5, -0.5],
                **ticks(n <= 16, about=8),
            },
        )
    return data, axes


def merged(frame: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Join events of a rank's operation that are nearer than a gap, where there are too many."""
    if len(frame) <= MOST_EVENTS:
        return frame
    frame = frame.sort_values(["operation", "rank", "start"], kind="stable", ignore_index=True)
    who = frame.groupby(["operation", "rank"], sort=False)
    reach = who["end"].cummax().groupby(who.ngroup()).shift()
    joined = (frame["start"] <= reach + gap).to_numpy()  # a first one has no reach, and is not
    together = frame.groupby(np.cumsum(~joined), sort=False)
    kinds = {
        **dict.fromkeys(("launch", "rank", "operation", "phase"), "first"),
        **dict.fromkeys(("seconds", "bytes_sent", "bytes_received"), "sum"),
        "start": "min",
        "end": "max",
    }
    return together.agg(kinds).reset_index(drop=True)


def cursor(pane: Pane) -> list[dict[str, Any]]:
    """Mark on a timeline which time counts: until a line, or between two."""
    where = {"xref": f"x{pane.tag}", "yref": f"y{pane.tag} domain", "y0": 0, "y1": 1}
    line = {"color": CATEGORIES[3], "width": 2, "dash": "dot"}
    found = [
        {**where, "type": "line", "x0": 1e3 * at, "x1": 1e3 * at, "line": line}
        for at in (pane.since, pane.until)
        if at is not None
    ]
    if pane.since is not None:
        end = pane.replay.span if pane.until is None else pane.until
        found.append(
            {
                **where,
                "type": "rect",
                "x0": 1e3 * pane.since,
                "x1": 1e3 * end,
                "fillcolor": CATEGORIES[3],
                "opacity": 0.14,
                "line": {"width": 0},
            }
        )
    return found


def circles(panes: list[Pane], quantity: str) -> Drawn:
    """Draw ranks on a circle; a link is as wide and as bright as what went over it, both ways."""
    found = [bin_matrix(pane.matrix(quantity), MOST_NODES) for pane in panes]
    whole = [
        bin_matrix(pane.replay.matrix(messages=quantity == "messages"), MOST_NODES)
        if pane.since is None
        else one
        for pane, one in zip(panes, found, strict=True)
    ]
    most = max(1, *(int((one + one.T).max(initial=0)) for one in whole))
    data: list[Any] = []
    axes: dict[str, Any] = {}
    for pane, matrix in zip(panes, found, strict=True):
        n = len(matrix)
        cuts = edges(pane.replay.ranks, max(n, 1))[:-1]
        angle = 2 * np.pi * np.arange(n) / max(n, 1) - np.pi / 2
        x, y = np.cos(angle), -np.sin(angle)
        names = [str(first) for first in cuts.tolist()[:n]]
        data += _links(pane, matrix, (x, y), names, most, quantity, bar=pane is panes[-1])
        data.append(
            go.Scatter(
                x=x,
                y=y,
                mode="markers+text",
                text=names,
                marker={
                    "size": 26 if n <= 16 else 14,
                    "color": CATEGORIES[0],
                    "line": {"width": 1, "color": "white"},
                },
                textfont={"color": "white", "size": 12 if n <= 16 else 8},
                customdata=[_amount(v, quantity) for v in matrix.sum(axis=1)],
                hovertemplate="rank %{text} sent %{customdata}<extra></extra>",
                xaxis=f"x{pane.tag}",
                yaxis=f"y{pane.tag}",
                showlegend=False,
            )
        )
        # Not made invisible: a page does not draw what comes to such an axis later.
        hidden = {"range": [-1.15, 1.15], "title": {"text": ""}, "showticklabels": False,
                  "ticks": "", "linecolor": "rgba(0,0,0,0)", **ticks(False)}  # fmt: skip
        axes |= pane.axes(hidden, hidden)
    return data, axes


def trees(panes: list[Pane]) -> Drawn:
    """Draw networks as their tiers, with the modelled load of each link."""
    data: list[Any] = []
    axes: dict[str, Any] = {}
    made, busiest = [], 0.0
    for pane in panes:
        assert pane.network is not None
        made.append(predict(pane.replay.traffic(pane.since, pane.until), pane.network))
        whole = predict(pane.replay.traffic(), pane.network) if pane.since is None else made[-1]
        for one in (whole, made[-1]):
            tiers = lay_out(pane.network, one)
            busiest = max([busiest, *(float(t.busy.max(initial=0)) for t in tiers)])
    for pane, one in zip(panes, made, strict=True):
        assert pane.network is not None
        drawn = network_figure(pane.network, one, busiest=busiest)
        for trace in drawn.data:
            trace.update(xaxis=f"x{pane.tag}", yaxis=f"y{pane.tag}", showlegend=False)
            if trace.marker.colorbar.thickness:
                trace.marker.update(showscale=pane is panes[-1])
                trace.marker.colorbar.update(_bar(pane, "busy (s)"))
            data.append(trace)
        x, y = (drawn.layout[name].to_plotly_json() for name in ("xaxis", "yaxis"))
        keep = ("title", "range", "tickvals", "ticktext", "showticklabels")
        given = [{key: axis[key] for key in keep if key in axis} for axis in (x, y)]
        modes = [
            {"tickmode": "array"} if "tickvals" in axis else ticks(False, about=8) for axis in given
        ]
        if pane.y == panes[0].y and pane.x != panes[0].x and pane.network == panes[0].network:
            given[1] |= {"title": {"text": ""}, "showticklabels": False}  # the first one has them
        axes |= pane.axes({**modes[0], **given[0]}, {**modes[1], **given[1], "ticks": ""})
    return data, axes


def tree_height(network: Network) -> int:
    """Pixels of the picture of a network."""
    return 40 + 120 * len(sizes(network))


def _links(
    pane: Pane,
    matrix: NDArray[np.int64],
    at: tuple[NDArray[np.float64], NDArray[np.float64]],
    names: list[str],
    most: int,
    quantity: str,
    *,
    bar: bool,
) -> list[Any]:
    """One line a class of loads, and a point on each link to hover over."""
    x, y = at
    both = matrix + matrix.T
    a, b = np.nonzero(np.triu(both, 1))
    load = both[a, b]
    classes = np.minimum(load * CLASSES // most, CLASSES - 1)
    axes = {"xaxis": f"x{pane.tag}", "yaxis": f"y{pane.tag}", "showlegend": False}
    lines = []
    for number in range(CLASSES):
        of = classes == number
        gaps = np.full(int(of.sum()), np.nan)
        lines.append(
            go.Scatter(
                x=np.stack([x[a[of]], x[b[of]], gaps], axis=1).ravel(),
                y=np.stack([y[a[of]], y[b[of]], gaps], axis=1).ravel(),
                mode="lines",
                connectgaps=False,
                hoverinfo="skip",
                line={"color": cividis((number + 0.5) / CLASSES), "width": 2 + number},
                **axes,
            )
        )
    third = 0.56  # beside the middle, where all opposite pairs of a circle meet
    lines.append(
        go.Scatter(
            x=third * x[a] + (1 - third) * x[b],
            y=third * y[a] + (1 - third) * y[b],
            mode="markers",
            marker={
                "size": 9,
                "color": load,
                "cmin": 0,
                "cmax": most,
                "colorscale": _SCALE,
                "line": {"width": 1, "color": CATEGORIES[-1]},
                "showscale": bar,
                "colorbar": _bar(pane, f"{quantity}, both ways"),
            },
            customdata=[
                f"{names[i]} → {names[j]}: {_amount(matrix[i, j], quantity)}<br>"
                f"{names[j]} → {names[i]}: {_amount(matrix[j, i], quantity)}"
                for i, j in zip(a, b, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
            **axes,
        )
    )
    return lines


def _bar(pane: Pane, what: str) -> dict[str, Any]:
    """The scale of colours, at the right of a picture."""
    return {
        "title": {"text": what, "side": "right"},
        "x": pane.x[1],
        "xanchor": "left",
        "xpad": 10,
        "y": pane.y[1],
        "yanchor": "top",
        "ypad": 0,
        "len": pane.y[1] - pane.y[0],
        "lenmode": "fraction",
        "thickness": 12,
        "outlinewidth": 0,
        "tickformat": "~s",
        "ticksuffix": {"bytes": "B", "busy (s)": "s"}.get(what.partition(",")[0], ""),
    }


def _amount(value: Any, quantity: str) -> str:
    return bytes_text(int(value)) if quantity == "bytes" else f"{int(value):,}"
