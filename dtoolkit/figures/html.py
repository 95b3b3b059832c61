"""The frame of a card, and the pieces it is made of, as HTML that carries its own style.

Colours come from JupyterLab's theme where there is one and else from the page; nothing is loaded,
nothing runs. Whatever comes from outside is escaped here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["card", "facts", "legend", "link", "picture", "table"]

_BORDER = "var(--jp-border-color2,#8887)"  # once a row: kept short
_FAINT = "color:var(--jp-ui-font-color2, inherit)"
_CARD = (
    f"border:1px solid {_BORDER};border-radius:6px;padding:10px 14px;margin:4px 0;max-width:980px;"
    "font-family:var(--jp-ui-font-family, system-ui, sans-serif);font-size:13px;line-height:1.5;"
    "color:var(--jp-ui-font-color1, inherit);background:transparent"
)
_BADGE = (
    f"border:1px solid {_BORDER};border-radius:9px;padding:0 8px;margin:0 6px;font-size:11px;"
    "white-space:nowrap"
)
_CELL = "padding:3px 12px 3px 0"
_NUMBER = re.compile(r"[\d.,+−–-]|$")  # what columns of numbers begin with
_TERM = "margin:0;padding:0;float:none;width:auto"  # JupyterLab floats the terms of lists


def card(noun: str, heading: str, *pieces: str, badge: str = "") -> str:
    """Frame the pieces (HTML) under a noun, a badge and a heading (text)."""
    mark = f'<span style="{_BADGE}">{escape(badge)}</span>' if badge else " "
    return (
        f'<div class="dtk-card" style="{_CARD}"><div style="margin-bottom:6px">'
        f'<strong style="font-size:14px">{escape(noun)}</strong>{mark}{escape(heading)}</div>'
        '<div style="display:flex;flex-wrap:wrap;gap:14px 28px;align-items:flex-start">'
        f"{''.join(pieces)}</div></div>"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """List names and values (text) in two columns."""
    rows = "".join(
        f'<dt style="{_TERM};font-weight:normal;{_FAINT}">{escape(name)}</dt>'
        f'<dd style="{_TERM};overflow-wrap:anywhere">{escape(value)}</dd>'
        for name, value in pairs
    )
    return (
        '<dl style="display:grid;grid-template-columns:max-content minmax(0,max-content);'
        f'gap:1px 14px;margin:0;width:auto;max-width:420px">{rows}</dl>'
    )


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, label: str = ""
) -> str:
    """Write a table of text, with a caption that says what it is.

    With a label it is a region that the keyboard reaches, so that it can be scrolled, as wide as
    there is room. Columns of numbers stand on the right.
    """
    written = [list(row) for row in rows]
    right = [
        bool(written) and i > 0 and all(_NUMBER.match(row[i]) for row in written)
        for i in range(len(head))
    ]
    cell = [f"{_CELL};text-align:{'right' if one else 'left'}" for one in right]
    top = "".join(
        f'<th scope="col" style="{style};font-weight:600;vertical-align:bottom">{escape(name)}</th>'
        for name, style in zip(head, cell, strict=True)
    )
    body = "".join(
        f'<tr style="border-top:1px solid {_BORDER}">'
        + "".join(
            f'<td style="{style}">{escape(text)}</td>'
            for text, style in zip(row, cell, strict=True)
        )
        + "</tr>"
        for row in written
    )
    region = (
        f' role="region" tabindex="0" aria-label="{escape(label, quote=True)}"' if label else ""
    )
    side, wide = ("bottom", "width:100%;") if label else ("top", "")
    return (
        f'<div{region} style="overflow-x:auto;max-width:100%"><table style="margin:0;border:none;'
        f'{wide}border-collapse:collapse;font-size:12px;table-layout:auto">'
        f'<caption style="text-align:left;caption-side:{side};padding:2px 0;{_FAINT}">'
        f"{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
        "</div>"
    )


def picture(svg: str, caption: str, below: str = "") -> str:
    """Put a caption (text), and what comes below it (HTML), under an SVG."""
    return (
        f'<figure style="margin:0;max-width:100%">{svg}<figcaption style="width:0;min-width:100%;'
        f'font-size:12px;{_FAINT}">{escape(caption)}{below}</figcaption></figure>'
    )


def legend(colours: dict[str, str]) -> str:
    """Explain colours, each by a small square and a word."""
    entries = "".join(
        f'<span style="margin-right:12px;white-space:nowrap"><span aria-hidden="true" '
        f'style="display:inline-block;width:10px;height:10px;margin-right:4px;'
        f'background:{colour}"></span>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f"<div>{entries}</div>"


def link(address: str) -> str:
    """Link to a web address; anything that is none is written as text."""
    if not address.startswith(("http://", "https://", "/")):
        return escape(address)
    return (
        f'<a href="{escape(address)}" target="_blank" rel="noopener noreferrer" '
        f'style="color:var(--jp-content-link-color, inherit)">'
        f"{escape(address)}</a>"
    )
