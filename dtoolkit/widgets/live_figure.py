"""One Plotly figure of a panel: made once, brought up to date in place, kept over a reload."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.basedatatypes import BasePlotlyType

from dtoolkit.widgets.work import at_home

__all__ = ["LiveFigure", "keep_for_reload"]


class LiveFigure:
    """A FigureWidget that follows figures made by pure functions.

    Each FigureWidget sends Plotly's whole library to the browser, so a panel has one. What is drawn
    is compared with what was drawn before, and only the difference is sent: where a person has
    zoomed in, that stays until the axes themselves change.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        The first one; the widget is built with its data and layout.
    name : str
        Of the file that it is saved to as a picture, without the ending.

    Attributes
    ----------
    widget : plotly.graph_objects.FigureWidget
    """

    def __init__(self, figure: go.Figure, name: str = "figure") -> None:
        self._drawn = plain = _plain(figure)
        self.widget = go.FigureWidget(data=plain["data"], layout=plain["layout"])
        self.widget._config = {
            "displaylogo": False,
            "responsive": True,
            "toImageButtonOptions": {"filename": name},  # else it is cut out of the title
        }
        self._keep()
        zoomed = at_home(lambda _: self._keep())
        self.widget.observe(zoomed, "_js2py_relayout")

    def draw(self, figure: go.Figure) -> None:
        """Bring the widget to what ``figure`` shows."""
        new, old = _plain(figure), self._drawn
        kinds = [trace["type"] for trace in new["data"]]
        same = _common([trace["type"] for trace in old["data"]], kinds)
        widget = self.widget
        if same < len(old["data"]):
            widget.data = widget.data[:same]
        with widget.batch_update():
            for trace, before, after in zip(widget.data, old["data"], new["data"], strict=False):
                _apply(trace, _difference(before, after, leaves=True))
            _apply(widget.layout, _difference(old["layout"], new["layout"]))
        if same < len(kinds):
            widget.add_traces(new["data"][same:])
        self._drawn = new
        self._keep()

    def _keep(self) -> None:
        keep_for_reload(self.widget, self._drawn)


def keep_for_reload(widget: go.FigureWidget, drawn: dict[str, Any]) -> None:
    """Let a browser that is reloaded find the figure as it is now.

    A browser that connects anew asks the kernel for the widget's state, which Plotly fills once, in
    the constructor. The state is set to the present data and layout; browsers that are connected
    have them already, so nothing is announced. This uses private names of plotly and traitlets.

    Parameters
    ----------
    widget : FigureWidget
    drawn : dict
        Data and layout as they were drawn. The widget's own are put over them, since they know
        where a person has zoomed; alone they will not do, because Plotly drops from them what a
        browser once reported as its default.
    """
    pairs = zip(drawn["data"], widget._data, strict=True)
    widget._trait_values["_widget_data"] = [_over(below, above) for below, above in pairs]
    widget._trait_values["_widget_layout"] = _over(drawn["layout"], widget._layout_obj._props)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Put one dictionary over another, at any depth."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            merged[key] = _over(below[key], above[key])
    return merged


def _plain(figure: go.Figure) -> dict[str, Any]:
    """Return data and layout as dictionaries that the widget can send.

    It sends arrays of one dimension as bytes, and others as JSON, which has no NaN: a gap is None.
    Arrays stay arrays, since the widget goes through lists number by number.
    """
    return {
        "data": [
            {key: _sendable(value) for key, value in trace.to_plotly_json().items()}
            for trace in figure.data
        ],
        "layout": figure.layout.to_plotly_json(),
    }


def _sendable(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.ndim < 2 or value.dtype.kind != "f":
        return value
    gaps = np.isnan(value)
    if not gaps.any():
        return value
    filled = value.astype(object)
    filled[gaps] = None
    return filled


def _common(old: list[str], new: list[str]) -> int:
    """Return how many traces at the start are of the same kinds."""
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    return same


def _difference(
    old: dict[str, Any], new: dict[str, Any], *, leaves: bool = False
) -> dict[str, Any]:
    """Return what changed, at any depth; what is gone becomes None, with `leaves` leaf by leaf.

    Traces need the latter: all of them are changed in one message, and Plotly refuses one in which
    the whole of something goes in one trace, and a part of it changes in another.
    """
    changed: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    if leaves:
        for key in changed:
            if isinstance(old[key], dict):
                changed[key] = _difference(old[key], {}, leaves=True)
    for key, value in new.items():
        if key not in old:
            changed[key] = value
        elif isinstance(value, dict) and isinstance(old[key], dict):
            if deeper := _difference(old[key], value, leaves=leaves):
                changed[key] = deeper
        elif _alike(value, old[key]):
            items = _Items(map(_difference, old[key], value))
            if any(items):
                changed[key] = items
        elif not _equal(old[key], value):
            changed[key] = value
    return changed


class _Items(list[dict[str, Any]]):
    """What changed in each of the shapes or notes of a figure."""


def _alike(new: Any, old: Any) -> bool:
    """Whether these are as many shapes or notes: moved one by one, nothing else is drawn anew."""
    return (
        isinstance(new, list)
        and isinstance(old, list)
        and len(new) == len(old)
        and all(isinstance(one, dict) for one in (*new, *old))
    )


def _equal(old: Any, new: Any) -> bool:
    if isinstance(old, np.ndarray) or isinstance(new, np.ndarray):
        a, b = np.asarray(old), np.asarray(new)
        numeric = a.dtype.kind in "fc" and b.dtype.kind in "fc"
        return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=numeric))
    return bool(old == new)


def _apply(target: BasePlotlyType, changed: dict[str, Any]) -> None:
    for key, value in changed.items():
        if isinstance(value, _Items):
            for part, difference in zip(target[key], value, strict=True):
                _apply(part, difference)
            continue
        known = isinstance(value, dict) and key in target  # an axis that is new is not there yet
        inner = target[key] if known else None
        if isinstance(inner, BasePlotlyType):
            _apply(inner, value)
        elif key != "type" or value != target[key]:
            target[key] = value
