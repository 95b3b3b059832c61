"""What every figure and every card must hold."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import plotly.graph_objects as go

SERVER = re.compile(r"https?://|//cdn|src=|url\(|@import|<script|javascript:", re.IGNORECASE)


def check_figure(figure, *, size=1_000_000):
    """Validate, and return the figure as plain JSON."""
    assert isinstance(figure, go.Figure)
    go.Figure(figure.to_dict(), skip_invalid=False)
    text = figure.to_json()
    assert len(text) < size
    document = json.loads(text)
    layout = document["layout"]
    assert layout["modebar"]["remove"] == ["sendChartToCloud"]
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
    assert layout["title"]["text"]
    for axis in ("xaxis", "yaxis"):
        assert layout[axis]["title"]["text"]
    assert not SERVER.search(text)
    for trace in document["data"]:
        assert "hovertemplate" in trace or trace.get("hoverinfo") == "skip"
    return document


def check_card(html, *, size=20_000, links=()):
    """Parse a card as XML, and return its root and the list of its pictures."""
    assert len(html.encode()) < size
    without = html
    for link in links:
        without = without.replace(link, "")
    assert not SERVER.search(without)
    assert not re.search(r"<(script|style|link|img|iframe)\b|\son\w+=", html)
    root = ET.fromstring(html)
    pictures = root.findall(".//svg")
    for picture in pictures:
        assert picture.get("role") == "img"
        assert len(picture.get("aria-label")) > 10
        for text in picture.iter("text"):
            assert text.get("fill") in ("currentColor", "#000000", "#ffffff")
    return root, pictures


def words(root):
    """All text of a card."""
    return " ".join("".join(root.itertext()).split())
