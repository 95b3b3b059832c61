"""Colours and layout defaults, shared by all figures and cards, and numbers with their units.

Categories are drawn in Okabe and Ito's palette (M. Okabe and K. Ito, "Color Universal Design",
2008), without its black and its yellow, one of which vanishes on every background. Amounts are
drawn in Cividis (J. R. Nunez et al., PLOS ONE 13(7), 2018), which reads alike with and without
colour blindness. Backgrounds are transparent, and the ink is by default a grey that stands out from
white and from black.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dtoolkit.comm.amounts import bytes_text, count_text, plural, seconds_text

__all__ = [
    "CATEGORIES",
    "CIVIDIS",
    "FATE_COLOURS",
    "Mode",
    "base_layout",
    "bytes_text",
    "category_colours",
    "cividis",
    "count_text",
    "ink_on",
    "notice",
    "plain",
    "plural",
    "seconds_text",
    "ticks",
    "title",
]

Mode = Literal["auto", "light", "dark"]

CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#999999")

CIVIDIS = (
    "#00224e", "#123570", "#3b496c", "#575d6d", "#707173",
    "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
)  # fmt: skip

# What happens to a nonzero in a plan, in the same colour in every figure.
FATE_COLOURS = {"local": "#999999", "by column": "#0072B2", "by row": "#E69F00"}

_INK = {"auto": "#767676", "light": "#24292f", "dark": "#e6e6e6"}
_GRID = "rgba(128,128,128,0.25)"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"


def base_layout(*, mode: Mode = "auto", **layout: Any) -> dict[str, Any]:
    """Return the layout that all figures share, with what is particular to one put over it.

    Parameters
    ----------
    mode : {"auto", "light", "dark"}
        Ink for any background, for a light, or for a dark one; the background itself is always
        transparent.
    **layout
        Further entries of a Plotly layout; ``xaxis`` and ``yaxis`` are merged with the shared ones.

    Returns
    -------
    dict
        For ``plotly.graph_objects.Figure(layout=...)``.

    Raises
    ------
    ValueError
        For an unknown mode.
    """
    if mode not in _INK:
        raise ValueError(f"mode must be one of {', '.join(_INK)}, got {mode!r}")
    axis: dict[str, Any] = {
        "gridcolor": _GRID,
        "linecolor": _GRID,
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
        "tickcolor": _GRID,
        "title": {"standoff": 8},
    }
    shared: dict[str, Any] = {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": _FONT, "size": 13, "color": _INK[mode]},
        "colorway": list(CATEGORIES),
        "margin": {"l": 64, "r": 24, "t": 88, "b": 56},
        "hoverlabel": {"font": {"family": _FONT, "size": 13}},
        "modebar": {
            "remove": ["sendChartToCloud"],
            "bgcolor": "rgba(0,0,0,0)",
            "color": _INK[mode],
            "activecolor": CATEGORIES[0],
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "xanchor": "left"},
    }
    for name in ("xaxis", "yaxis"):
        own = layout.pop(name, {})
        shared[name] = {**axis, **own, "title": {**axis["title"], **own.get("title", {})}}
    return {**shared, **layout}


def title(text: str, subtitle: str = "") -> dict[str, Any]:
    """Return a Plotly title at the left edge, with a smaller second line."""
    return {
        "text": text,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": 0.96,
        "yanchor": "top",
        "font": {"size": 17},
        "subtitle": {"text": subtitle, "font": {"size": 12.5}},
    }


def ticks(each: bool, *, about: int = 0) -> dict[str, Any]:
    """Tick each whole number, or about so many (0: as many as there is room for).

    The mode is always stated. Plotly writes the one that it has derived into the layout of a figure
    on a page, where it stays when the figure changes: ticks at each of 4 ranks became ticks at each
    of 128, which took a second to draw.
    """
    if each:
        return {"tickmode": "linear", "tick0": 0, "dtick": 1}
    return {"tickmode": "auto", "nticks": about}


def notice(text: str) -> dict[str, Any]:
    """Return a Plotly annotation that stands in the middle of a figure without data."""
    return {
        "text": text,
        "x": 0.5,
        "y": 0.5,
        "xref": "paper",
        "yref": "paper",
        "showarrow": False,
        "font": {"size": 15},
    }


def category_colours(names: list[str]) -> dict[str, str]:
    """Give each name a colour: always the same ones for the same names, in sorted order."""
    ordered = sorted(set(names))
    return {name: CATEGORIES[i % len(CATEGORIES)] for i, name in enumerate(ordered)}


def cividis(share: float) -> str:
    """Return the colour of a share between 0 and 1, as ``#rrggbb``."""
    position = min(max(share, 0.0), 1.0) * (len(CIVIDIS) - 1)
    low = min(int(position), len(CIVIDIS) - 2)
    a, b = (np.array(_rgb(CIVIDIS[i]), dtype=float) for i in (low, low + 1))
    r, g, b = (round(c) for c in a + (b - a) * (position - low))
    return f"#{r:02x}{g:02x}{b:02x}"


def ink_on(colour: str) -> str:
    """Return black or white, whichever reads better on a ``#rrggbb`` colour."""
    r, g, b = (c / 255 for c in _rgb(colour))
    luminance = 0.2126 * r**2.2 + 0.7152 * g**2.2 + 0.0722 * b**2.2
    return "#000000" if luminance > 0.18 else "#ffffff"


def plain(text: str) -> str:
    """Escape what Plotly would take for markup or for a field of a template."""
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("%{", "%&#123;")):
        text = text.replace(sign, entity)
    return text


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
