"""One or two traces side by side: by pairs of ranks, over time, or as a network of links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dtoolkit.comm import Trace
from dtoolkit.figures.bins import bin_matrix, edges
from dtoolkit.figures.theme import (
    CIVIDIS,
    Mode,
    base_layout,
    bytes_text,
    cividis,
    count_text,
    notice,
    plain,
    plural,
    seconds_text,
    title,
)
from dtoolkit.figures.timeline import event_lines

__all__ = ["VIEWS", "played", "span_of", "traffic_views"]

VIEWS = ("pairs", "time", "network")
"""Names of the views."""

_MOST_CELLS = 128  # of a heatmap in each direction
_MOST_NODES, _BINS = 64, 8  # ranks that are drawn as a network, and classes of loads
_HEIGHT = 460


def span_of(trace: Trace) -> tuple[float, float]:
    """Return when the first event of a trace began and the last one ended, in seconds."""
    events = trace.events
    if not events:
        return 0.0, 0.0
    return min(one.start for one in events), max(one.end for one in events)


def played(trace: Trace, share: float, span: tuple[float, float] | None = None) -> Trace:
    """Return what had ended when a share of the time of a trace was over.

    Parameters
    ----------
    trace : Trace
    share : float
        0 to 1.
    span : (float, float), optional
        Time that the share is of; by default that of the trace.
    """
    if share >= 1:
        return trace
    first, last = span_of(trace) if span is None else span
    limit = first + share * (last - first)
    kept = [one for one in trace.events if one.end <= limit]
    return Trace(kept, ranks=trace.ranks, clock_error=trace.clock_error, emulated=trace.emulated)


def traffic_views(
    traces: Mapping[str, Trace],
    *,
    view: Literal["pairs", "time", "network"] = "pairs",
    quantity: Literal["bytes", "messages"] = "bytes",
    share: float = 1.0,
    width: int | None = None,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw one or two traces side by side, on one scale.

    Parameters
    ----------
    traces : mapping of str to Trace
        One or two, by name.
    view : {"pairs", "time", "network"}
        Who sent how much to whom; who did what when; or ranks on a circle with the load of each
        link.
    quantity : {"bytes", "messages"}
        For pairs and network. A message is an event of a rank that sent something to another.
    share : float
        Share of the time, 0 to 1, up to which events are counted; the view over time shows all of
        them and a line there.
    width : int, optional
        In pixels.
    mode : {"auto", "light", "dark"}

    Returns
    -------
    plotly.graph_objects.Figure
        All of it is measured.

    Raises
    ------
    ValueError
        There is no trace, there are more than two, or the view has another name.
    """
    if not 1 <= len(traces) <= 2:
        raise ValueError(f"traces: wanted one or two, got {len(traces)}")
    if view not in VIEWS:
        raise ValueError(f"view={view!r}: wanted one of {', '.join(VIEWS)}")
    if view == "time":
        data, axes, marks = _over_time(traces, share, mode)
    else:
        matrices = [_matrix(played(one, share), quantity) for one in traces.values()]
        most = max((int(one.max(initial=0)) for one in matrices), default=0)
        draw = _pairs if view == "pairs" else _network
        data, axes, marks = draw(matrices, most, quantity, mode)
    notes = _captions(traces, share, quantity)
    empty = not any(len(one) for one in traces.values())
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title=title(*_title(traces, view, share)),
            **axes,
            shapes=marks,
            annotations=[notice("no events: nothing was recorded yet")] if empty else notes,
            hovermode="closest",
            showlegend=view == "time",
            legend={"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"},
            width=width,
            height=_HEIGHT,
            margin={"l": 64, "r": 24 if view != "pairs" else 84, "t": 116, "b": 60},
        ),
    )


def _matrix(trace: Trace, quantity: str) -> NDArray[np.int64]:
    if quantity == "bytes":
        return trace.matrix()
    found = np.zeros_like(trace.matrix())
    for one in trace.events:
        sent = np.asarray(one.sent)
        found[one.rank, : len(sent)] += sent > 0
    return found


def _domains(many: int, gap: float) -> list[list[float]]:
    return [[0.0, 1.0]] if many == 1 else [[0.0, 0.5 - gap / 2], [0.5 + gap / 2, 1.0]]


def _pairs(
    matrices: list[NDArray[np.int64]], most: int, quantity: str, mode: Mode
) -> tuple[list[Any], dict[str, Any], list[Any]]:
    data: list[Any] = []
    axes: dict[str, Any] = {}
    for number, (matrix, domain) in enumerate(
        zip(matrices, _domains(len(matrices), 0.16), strict=True)
    ):
        tag = "" if number == 0 else str(number + 1)
        n = len(matrix)
        cells = bin_matrix(matrix, _MOST_CELLS)
        starts = edges(n, len(cells))[:-1] if len(cells) else np.zeros(0, int)
        unit = "B" if quantity == "bytes" else " messages"
        data.append(
            go.Heatmap(
                z=cells,
                x=starts,
                y=starts,
                zmin=0,
                zmax=max(most, 1),
                colorscale=[[i / (len(CIVIDIS) - 1), c] for i, c in enumerate(CIVIDIS)],
                xaxis=f"x{tag}",
                yaxis=f"y{tag}",
                showscale=number == 0,
                colorbar={
                    "title": {"text": quantity, "side": "right"}, "thickness": 12,
                    "tickformat": "~s", "outlinewidth": 0,
                },
                hovertemplate=f"rank %{{y}} to rank %{{x}}: %{{z:.4~s}}{unit}<extra></extra>",
            )
        )  # fmt: skip
        each = {"tickmode": "linear", "dtick": 1} if n <= 16 else {"tickmode": "auto", "nticks": 8}
        axes |= _axes(tag, domain, "to rank", "from rank" if number == 0 else "", mode)
        axes[f"xaxis{tag}"] |= {"showgrid": False, "constrain": "domain", **each}
        axes[f"yaxis{tag}"] |= {
            "showgrid": False, "autorange": "reversed", "constrain": "domain",
            "scaleanchor": f"x{tag}", **each,
        }  # fmt: skip
    return data, axes, []


def _over_time(
    traces: Mapping[str, Trace], share: float, mode: Mode
) -> tuple[list[Any], dict[str, Any], list[Any]]:
    data: list[Any] = []
    axes: dict[str, Any] = {}
    marks = []
    spans = [span_of(one) for one in traces.values()]
    reach = max(last - first for first, last in spans) * 1e3
    shown: set[str] = set()
    for number, (trace, span, domain) in enumerate(
        zip(traces.values(), spans, _domains(len(traces), 0.1), strict=True)
    ):
        tag = "" if number == 0 else str(number + 1)
        frame = trace.frame()
        ranks = max(trace.ranks, int(frame["rank"].max()) + 1 if len(frame) else 1)
        for line in event_lines(frame, ranks, span[0]):
            line.update(
                xaxis=f"x{tag}", yaxis=f"y{tag}", showlegend=line.name not in shown,
                legendgroup=line.name,
            )  # fmt: skip
            shown.add(line.name)
            data.append(line)
        axes |= _axes(
            tag, domain, "time from the first event (ms)", "rank" if number == 0 else "", mode
        )
        axes[f"xaxis{tag}"] |= {"range": [0, max(reach, 1e-6) * 1.01]}
        axes[f"yaxis{tag}"] |= {"range": [ranks - 0.5, -0.5], "showgrid": False}
        if share < 1:
            at = share * (span[1] - span[0]) * 1e3
            marks.append(
                {"type": "line", "xref": f"x{tag}", "yref": f"y{tag} domain", "x0": at, "x1": at,
                 "y0": 0, "y1": 1, "line": {"color": "#D55E00", "width": 2, "dash": "dot"}}
            )  # fmt: skip
    return data, axes, marks


def _network(
    matrices: list[NDArray[np.int64]], most: int, quantity: str, mode: Mode
) -> tuple[list[Any], dict[str, Any], list[Any]]:
    """Ranks on a circle; a link is as wide and as bright as what went over it, both ways."""
    data: list[Any] = []
    axes: dict[str, Any] = {}
    for number, (matrix, domain) in enumerate(
        zip(matrices, _domains(len(matrices), 0.06), strict=True)
    ):
        tag = "" if number == 0 else str(number + 1)
        if len(matrix) > _MOST_NODES:
            matrix = bin_matrix(matrix, _MOST_NODES)
        n = len(matrix)
        angle = 2 * np.pi * np.arange(n) / max(n, 1) - np.pi / 2
        x, y = np.cos(angle), -np.sin(angle)
        data += _links(matrix, x, y, max(most, 1), quantity, tag)
        sent = matrix.sum(axis=1)
        data.append(
            go.Scatter(
                x=x, y=y, mode="markers+text", text=[str(i) for i in range(n)],
                marker={"size": 26 if n <= 16 else 14, "color": "#0072B2",
                        "line": {"width": 1, "color": "white"}},
                textfont={"color": "white", "size": 12 if n <= 16 else 9},
                customdata=[[_amount(v, quantity)] for v in sent],
                hovertemplate="rank %{text} sent %{customdata[0]}<extra></extra>",
                xaxis=f"x{tag}", yaxis=f"y{tag}", showlegend=False,
            )
        )  # fmt: skip
        axes |= _axes(tag, domain, "", "", mode)
        hidden = {"visible": False, "range": [-1.25, 1.25]}
        axes[f"xaxis{tag}"] |= hidden
        axes[f"yaxis{tag}"] |= hidden | {"scaleanchor": f"x{tag}"}
    return data, axes, []


def _links(
    matrix: NDArray[np.int64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    most: int,
    quantity: str,
    tag: str,
) -> list[Any]:
    """One line a class of loads, and a point in the middle of each link to hover over."""
    both = matrix + matrix.T
    a, b = np.nonzero(np.triu(both, 1))
    load = both[a, b] / (2 * most)
    classes = np.minimum((load * _BINS).astype(int), _BINS - 1)
    lines = []
    for number in range(_BINS):
        of = classes == number
        gaps = np.full(int(of.sum()), np.nan)
        lines.append(
            go.Scatter(
                x=np.stack([x[a[of]], x[b[of]], gaps], axis=1).ravel(),
                y=np.stack([y[a[of]], y[b[of]], gaps], axis=1).ravel(),
                mode="lines", connectgaps=False, hoverinfo="skip", showlegend=False,
                line={"color": cividis(number / (_BINS - 1)), "width": 1 + 1.3 * number},
                xaxis=f"x{tag}", yaxis=f"y{tag}",
            )
        )  # fmt: skip
    told = [
        [f"{i} to {j}: {_amount(matrix[i, j], quantity)}, {j} to {i}: "
         f"{_amount(matrix[j, i], quantity)}"]
        for i, j in zip(a, b, strict=True)
    ]  # fmt: skip
    lines.append(
        go.Scatter(
            x=(x[a] + x[b]) / 2,
            y=(y[a] + y[b]) / 2,
            mode="markers", marker={"size": 14, "color": "rgba(0,0,0,0)"}, customdata=told,
            hovertemplate="%{customdata[0]}<extra></extra>", showlegend=False,
            xaxis=f"x{tag}", yaxis=f"y{tag}",
        )
    )  # fmt: skip
    return lines


def _axes(tag: str, domain: list[float], x: str, y: str, mode: Mode) -> dict[str, Any]:
    shared = base_layout(mode=mode)["xaxis"]
    return {
        f"xaxis{tag}": {
            **shared, "title": {"text": x, "standoff": 8}, "domain": domain, "anchor": f"y{tag}",
        },
        f"yaxis{tag}": {**shared, "title": {"text": y, "standoff": 8}, "anchor": f"x{tag}"},
    }  # fmt: skip


def _captions(traces: Mapping[str, Trace], share: float, quantity: str) -> list[dict[str, Any]]:
    """Name each trace, and say what was sent, above its picture."""
    found = []
    for (name, trace), domain in zip(traces.items(), _domains(len(traces), 0.1), strict=True):
        part = played(trace, share)
        sent = bytes_text(part.total) if quantity == "bytes" else plural(len(part), "event")
        found.append(
            {
                "text": f"<b>{plain(name)}</b>: {sent}", "x": domain[0], "y": 1, "xref": "paper",
                "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 6,
                "showarrow": False, "font": {"size": 13},
            }
        )  # fmt: skip
    return found


def _title(traces: Mapping[str, Trace], view: str, share: float) -> tuple[str, str]:
    what = {
        "pairs": "who sent how much to whom", "time": "who did what when",
        "network": "the load of each link",
    }[view]  # fmt: skip
    first, last = span_of(next(iter(traces.values())))
    emulated = next((one.emulated for one in traces.values() if one.emulated), "")
    words = [f"up to {share:.0%} of the time"] if share < 1 else []
    words += [f"{seconds_text(last - first)} from the first to the last event"]
    words += [f"emulated: {emulated}"] if emulated else []
    return f"Traffic (measured): {what}", "; ".join(words)


def _amount(value: Any, quantity: str) -> str:
    return bytes_text(int(value)) if quantity == "bytes" else count_text(int(value), "messages")
