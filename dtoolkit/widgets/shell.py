"""What every panel looks like: controls left, figure right, words and progress below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as ipw

__all__ = ["Shell"]

_FAINT = "color:var(--jp-ui-font-color2, inherit)"
_ERROR = (
    "border-left:4px solid #D55E00;padding:4px 10px;margin:2px 0;overflow-wrap:anywhere;"
    "white-space:pre-wrap"
)
_CODE = (
    "margin:0;padding:8px 10px;overflow:auto;max-height:320px;font-size:12px;line-height:1.45;"
    "border:1px solid var(--jp-border-color2, rgba(128,128,128,.45));border-radius:4px;"
    "color:var(--jp-content-font-color1, inherit);background:transparent;white-space:pre"
)


class Shell:
    """The widgets that all panels have, without what they do.

    Parameters
    ----------
    title : str
    groups : sequence of (str, sequence)
        Heading and the controls (or widgets) under it.
    actions : sequence of Widget
        Run, Stop, Reset and what else is pressed.
    figure, bridge : Widget
    exports : sequence of Widget

    Attributes
    ----------
    view : ipywidgets.VBox
        All of it.
    below : ipywidgets.HTML
        For what a panel says beneath its figure, as a table.
    endings : list of callable
        Called when the panel ends.
    """

    def __init__(
        self,
        title: str,
        groups: Sequence[tuple[str, Sequence[Any]]],
        actions: Sequence[Any],
        figure: Any,
        bridge: Any,
        exports: Sequence[Any],
    ) -> None:
        self._status = ipw.HTML(_status("", False))
        self._progress = ipw.HTML("", layout={"min_height": "14px"})
        self._error = ipw.HTML("")
        self._code = ipw.HTML("", layout={"display": "none"})
        self.below = ipw.HTML("", layout={"width": "100%", "overflow": "visible"})
        left: list[Any] = []
        for heading, members in groups:
            left.append(ipw.HTML(_heading(heading)))
            left += [m.widget if hasattr(m, "widget") else m for m in members]
        left.append(_box(actions, "dtk-buttons", margin="10px 0 0 0"))
        frame = ipw.Box([figure], layout={"width": "100%", "overflow": "hidden"})
        frame.add_class("dtk-figure")
        right = [frame, self._progress, self._status, self._error, self.below]
        right += [_box(exports, "dtk-buttons", margin="6px 0 0 0"), self._code]
        halves = _box(
            [_column(left, "dtk-controls"), _column(right, "dtk-shown")], "dtk-halves", flow=""
        )
        self.view = ipw.VBox([ipw.HTML(_title(title)), halves, bridge], layout={"width": "100%"})
        self.view.add_class("dtk-panel")
        self.endings: list[Callable[[], object]] = []

    def say(self, text: str, *, busy: bool = False) -> None:
        """Set the status line."""
        self._status.value = _status(text, busy)

    def progress(self, done: int, total: int, what: str, *, shown: bool) -> None:
        """Show how far it is; a total of 0 means that nobody knows."""
        if not shown:
            self._progress.value = ""
            return
        known = f' value="{min(done, total)}" max="{total}"' if total else ""
        words = f"{done:,} of {total:,}" if total else "under way"
        self._progress.value = (
            f'<progress{known} aria-label="{escape(what, quote=True)}: {words}" '
            'style="width:100%;height:8px;accent-color:#0072B2;display:block"></progress>'
        )

    def fail(self, text: str, details: str) -> None:
        """Show an error in words, with its details folded away; no text clears it."""
        more = (
            '<details style="margin-top:2px"><summary style="cursor:pointer">Details</summary>'
            f'<pre tabindex="0" aria-label="Details of the error" style="{_CODE}">'
            f"{escape(details)}</pre></details>"
            if details
            else ""
        )
        self._error.value = (
            f'<div role="alert" style="{_ERROR}"><b>This did not work.</b> {escape(text)}{more}'
            "</div>"
            if text
            else ""
        )

    def show_code(self, code: str | None) -> None:
        """Show code, or put it away."""
        self._code.layout.display = None if code is not None else "none"
        self._code.value = (
            f'<pre tabindex="0" aria-label="The code that makes this" style="{_CODE}">'
            f"{escape(code)}</pre>"
            if code is not None
            else ""
        )

    def close(self) -> None:
        """Close every widget, also those of styles and layouts."""
        for widget in _all(self.view):
            widget.close()


def _title(text: str) -> str:
    return (
        '<div style="font-size:16px;font-weight:600;color:var(--jp-ui-font-color1, inherit)">'
        f"{escape(text)}</div>"
    )


def _heading(text: str) -> str:
    return (
        f'<div style="font-size:12px;font-weight:600;margin-top:8px;{_FAINT}">{escape(text)}</div>'
    )


def _status(text: str, busy: bool) -> str:
    mark = "… " if busy else ""
    return (
        '<div role="status" aria-live="polite" style="overflow-wrap:anywhere;'
        f'color:var(--jp-ui-font-color1, inherit)">{mark}{escape(text)}</div>'
    )


def _box(members: Sequence[Any], name: str, *, margin: str = "0", flow: str = "row wrap") -> Any:
    layout = {"margin": margin, "overflow": "visible", "flex_flow": flow}
    box = ipw.Box(list(members), layout=layout)
    box.add_class(name)
    return box


def _column(members: Sequence[Any], name: str) -> Any:
    column = ipw.VBox(list(members), layout={"overflow": "visible"})
    column.add_class(name)
    return column


def _all(widget: Any) -> list[Any]:
    found = [widget]
    for child in getattr(widget, "children", ()):
        found += _all(child)
    for part in ("style", "layout"):
        inner = getattr(widget, part, None)
        if isinstance(inner, ipw.Widget):
            found.append(inner)
    return found
