"""Strategies side by side, as a table of HTML: what each sends, and what that is said to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from dtoolkit.figures.theme import count_text, seconds_text

__all__ = ["Contender", "contenders_frame", "strategy_table"]

_CELL = "padding:3px 6px;text-align:right;white-space:nowrap;border:none"
_NAME = "padding:3px 6px 3px 0;text-align:left;white-space:nowrap;border:none"
_LINE = "border-top:1px solid var(--jp-border-color2, rgba(128,128,128,0.35));background:none"
_BAR = "rgba(0,114,178,0.28)"
_FAINT = "color:var(--jp-ui-font-color2, inherit)"


@dataclass(frozen=True)
class Contender:
    """A strategy among others.

    Attributes
    ----------
    strategy : str
    volume : int or None
        Rows sent in all (planned); None where the strategy cannot be planned.
    between, inside : int or None
        Of those, between nodes and inside nodes; None where there are no nodes.
    sent_bytes : int or None
        Bytes of one product (planned).
    traffic_balance, work_balance : float or None
        Busiest rank over the mean, in rows moved and in nonzeros multiplied; 1 is even.
    seconds : float or None
        Predicted time of one product (modelled).
    expected : float or None
        Predicted time of one product on the workers that measured it (modelled).
    measured : float or None
        Measured time of one product.
    bottleneck : str
        What the predicted time depends on.
    note : str
        Why there is nothing to show.
    """

    strategy: str
    volume: int | None = None
    between: int | None = None
    inside: int | None = None
    sent_bytes: int | None = None
    traffic_balance: float | None = None
    work_balance: float | None = None
    seconds: float | None = None
    expected: float | None = None
    measured: float | None = None
    bottleneck: str = ""
    note: str = ""


def contenders_frame(contenders: Sequence[Contender]) -> pd.DataFrame:
    """Return the same numbers as data, one row a strategy, with units in the names."""
    return pd.DataFrame(
        {
            "strategy": [c.strategy for c in contenders],
            "rows_sent_planned": _whole([c.volume for c in contenders]),
            "rows_between_nodes_planned": _whole([c.between for c in contenders]),
            "rows_inside_nodes_planned": _whole([c.inside for c in contenders]),
            "bytes_sent_planned": _whole([c.sent_bytes for c in contenders]),
            "traffic_imbalance_planned": [c.traffic_balance for c in contenders],
            "work_imbalance_planned": [c.work_balance for c in contenders],
            "seconds_modelled": [c.seconds for c in contenders],
            "seconds_on_workers_modelled": [c.expected for c in contenders],
            "seconds_on_workers_measured": [c.measured for c in contenders],
            "bottleneck_modelled": [c.bottleneck for c in contenders],
            "note": [c.note for c in contenders],
        }
    )


def strategy_table(
    contenders: Sequence[Contender], *, chosen: str = "", caption: str = "", waiting: str = ""
) -> str:
    """Write a table of strategies.

    Parameters
    ----------
    contenders : sequence of Contender
    chosen : str
        The strategy whose figure is shown; its row is marked.
    caption : str
        What was assumed.
    waiting : str
        What is not there yet.

    Returns
    -------
    str
        HTML without scripts or links; least volumes and times are marked in words and by weight.
    """
    measured = any(c.measured is not None for c in contenders)
    nodes = any(c.between is not None for c in contenders)
    heads = ["Strategy", "Rows sent<br>planned"]
    heads += ["Between nodes<br>planned", "Inside nodes<br>planned"] if nodes else []
    heads += ["Balance of<br>traffic, work", "Time<br>modelled"]
    heads += ["These workers,<br>modelled", "These workers,<br>measured"] if measured else []
    top = "".join(
        f'<th scope="col" style="{_CELL if i else _NAME};font-weight:600;{_FAINT}">{head}</th>'
        for i, head in enumerate(heads)
    )
    body = "".join(
        _row(c, contenders, chosen=chosen, nodes=nodes, measured=measured, columns=len(heads))
        for c in contenders
    )
    more = f" {waiting}" if waiting else ""
    return (
        '<div role="region" aria-label="Strategies side by side" tabindex="0" '
        'style="overflow-x:auto;max-width:100%">'
        '<table style="border-collapse:collapse;border:none;font-size:12.5px;margin:6px 0 0 0;'
        'width:100%;color:var(--jp-ui-font-color1, inherit)">'
        f'<caption style="caption-side:bottom;text-align:left;padding:4px 0 0 0;{_FAINT}">'
        f"{escape(caption + more)}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(
    one: Contender,
    all_of_them: Sequence[Contender],
    *,
    chosen: str,
    nodes: bool,
    measured: bool,
    columns: int,
) -> str:
    here = one.strategy == chosen
    name = f"<b>▸ {escape(one.strategy)}</b>" if here else f"&ensp; {escape(one.strategy)}"
    head = f'<th scope="row" style="{_NAME};font-weight:normal">{name}</th>'
    mark = ' aria-current="true"' if here else ""
    if one.volume is None:
        why = escape(one.note or "…")
        cell = f'<td colspan="{columns - 1}" style="{_NAME};white-space:normal;{_FAINT}">{why}</td>'
        return f'<tr{mark} style="{_LINE}">{head}{cell}</tr>'
    cells = [_amount(one.volume, [c.volume for c in all_of_them], count_text)]
    if nodes:
        cells.append(_amount(one.between, [c.between for c in all_of_them], count_text))
        cells.append(_plain("" if one.inside is None else count_text(one.inside)))
    cells.append(_plain(f"{_ratio(one.traffic_balance)}, {_ratio(one.work_balance)}"))
    where = one.bottleneck if one.seconds is not None else one.note
    cells.append(_amount(one.seconds, [c.seconds for c in all_of_them], seconds_text, where))
    if measured:
        cells.append(_plain("" if one.expected is None else seconds_text(one.expected)))
        cells.append(_plain("" if one.measured is None else seconds_text(one.measured)))
    return f'<tr{mark} style="{_LINE}">{head}{"".join(cells)}</tr>'


def _amount(
    value: float | None, others: Sequence[float | None], text: object, tip: str = ""
) -> str:
    """Write an amount over a bar of its share of the largest, and mark the least."""
    shown = f' title="{escape(tip, quote=True)}"' if tip else ""
    if value is None:
        return f'<td style="{_CELL}"{shown}>–</td>'
    known = [other for other in others if other is not None]
    most, least = max(known), min(known)
    share = 100 * value / most if most else 0
    words = escape(text(value))  # type: ignore[operator]
    if value == least and least < most:
        words = f"<b>{words}</b> least"
    bar = f"background:linear-gradient(to left,{_BAR} {share:.1f}%,transparent {share:.1f}%)"
    return f'<td style="{_CELL};{bar}"{shown}>{words}</td>'


def _plain(text: str) -> str:
    return f'<td style="{_CELL}">{escape(text) or "–"}</td>'


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _whole(values: list[int | None]) -> pd.Series:
    return pd.Series(values, dtype="Int64")
