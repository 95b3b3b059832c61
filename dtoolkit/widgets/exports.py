"""What leaves a panel: its figure, its data, its settings."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMAT", "figure_html", "read_settings", "settings_text", "table_csv"]

FORMAT = 1
"""Version of the settings' form."""


def figure_html(figure: go.Figure, title: str) -> bytes:
    """Return a page that holds the figure and Plotly itself, and needs no network.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Drawn for a light page.
    title : str
    """
    page = figure.to_html(
        include_plotlyjs=True, full_html=True, config={"displaylogo": False, "responsive": True}
    )
    head = f'<head><meta charset="utf-8"/><title>{_escaped(title)}</title>'
    return re.sub(r"<head>(<meta[^>]*>)?", lambda _: head, page, count=1).encode()


def table_csv(table: pd.DataFrame) -> bytes:
    """Return a table as comma-separated values with a line of names."""
    return str(table.to_csv(index=False)).encode()


def settings_text(panel: str, values: dict[str, Any]) -> str:
    """Write settings as JSON that :func:`read_settings` takes back."""
    return json.dumps({"panel": panel, "format": FORMAT, "settings": values}, indent=2) + "\n"


def read_settings(text: str | bytes, panel: str) -> dict[str, Any]:
    """Read settings.

    Parameters
    ----------
    text : str or bytes
        What :func:`settings_text` wrote.
    panel : str
        Name of the panel that they must be of.

    Raises
    ------
    ValueError
        If it is no JSON, or the settings of something else.
    """
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the settings are no JSON: {error}") from error
    if not isinstance(read, dict) or not isinstance(read.get("settings"), dict):
        raise ValueError(
            'the file has no settings: want {"panel": ..., "format": ..., "settings": {...}}'
        )
    if read.get("panel") != panel:
        raise ValueError(f"these are settings of {read.get('panel')!r}, and this is {panel!r}")
    if read.get("format") != FORMAT:
        raise ValueError(f"the settings have format {read.get('format')!r}, this reads {FORMAT}")
    return dict(read["settings"])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
