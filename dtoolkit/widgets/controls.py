"""Controls with a name, a label, a value of plain data and a check in words.

What a person sees is an ipywidget; what the panel reads and writes is :attr:`Control.value`, which
goes into settings as it is. Every control carries its label into the accessibility tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as ipw

__all__ = ["Choice", "Control", "Number", "Text", "Upload", "button"]

_LABEL = "108px"
_FULL = {"width": "100%", "min_width": "0"}


class Control:
    """A labelled choice.

    Attributes
    ----------
    name : str
        Key in the settings.
    label : str
        What stands beside it.
    default : object
        Value after Reset.
    widget : ipywidgets.Widget
        What is put into the panel.
    """

    def __init__(self, name: str, label: str, default: Any, source: Any, widget: Any) -> None:
        self.name = name
        self.label = label
        self.default = default
        self.widget = widget
        self._source = source

    @property
    def value(self) -> Any:
        """Value as plain data."""
        return self._source.value

    def check(self, value: Any) -> Any:
        """Return the value as this control holds it.

        Raises
        ------
        ValueError
            If it is none of this control's, naming the label and what is possible.
        """
        return value

    def set(self, value: Any) -> None:
        """Set the value after checking it."""
        self._source.value = self.check(value)

    def on_change(self, listener: Callable[[Any], object]) -> None:
        """Call ``listener(change)`` when a person, or code, changes the value."""
        self._source.observe(listener, "value")

    def enable(self, enabled: bool) -> None:
        """Let it be changed, or not."""
        self._source.disabled = not enabled

    def show(self, shown: bool) -> None:
        """Show it, or leave it out of the panel."""
        self.widget.layout.display = None if shown else "none"


class Choice(Control):
    """One of several values, each shown by its words.

    Parameters
    ----------
    name, label : str
    options : mapping of str to str
        Value to words.
    default : str, optional
        By default the first.
    tip : str
        A sentence for those who point at it.
    absent : mapping of str to str, optional
        Values that may be missing among the options, and what a person can do about it.
    """

    def __init__(
        self,
        name: str,
        label: str,
        options: Mapping[str, str],
        default: str | None = None,
        *,
        tip: str = "",
        absent: Mapping[str, str] | None = None,
    ) -> None:
        self._absent = dict(absent or {})
        first = next(iter(options)) if default is None else default
        box = ipw.Dropdown(
            options=_pairs(options),
            value=first,
            description=label,
            tooltip=tip or label,
            style={"description_width": _LABEL},
            layout=_FULL,
        )
        super().__init__(name, label, first, box, box)

    @property
    def options(self) -> dict[str, str]:
        """Value to words."""
        return {value: words for words, value in self._source.options}

    def offer(self, options: Mapping[str, str], value: str | None = None) -> None:
        """Change what can be chosen; the value stays if it is still there."""
        wanted = self.value if value is None else value
        self._source.options = _pairs(options)
        self._source.value = wanted if wanted in options else next(iter(options))

    def check(self, value: Any) -> str:
        """Refuse what is not among the options."""
        if isinstance(value, str) and value in self._absent and value not in self.options:
            raise ValueError(f"{self.label}: {self._absent[value]}")
        if not isinstance(value, str) or value not in self.options:
            known = ", ".join(self.options)
            raise ValueError(f"{self.label}: {value!r} is not known, choose one of {known}")
        return value


class Number(Control):
    """A whole number that can be typed; a slider beside it is for the mouse.

    What is typed outside the range is told in words, and the number stays what it was.

    Parameters
    ----------
    name, label : str
    default, least, most : int
    slide_from : int, optional
        Where the slider begins; by default there is none. It goes by powers of two.
    tip : str
    """

    def __init__(
        self,
        name: str,
        label: str,
        default: int,
        least: int,
        most: int,
        *,
        slide_from: int | None = None,
        tip: str = "",
    ) -> None:
        self.least, self.most = least, most
        self._listeners: list[Callable[[Any], object]] = []
        self._refusers: list[Callable[[ValueError], object]] = []
        self._kept = default
        # A bounded one would make another number of what is typed, and not say so.
        box = ipw.IntText(
            value=default,
            description=label,
            tooltip=tip or f"{label}, {least:,} to {most:,}",
            style={"description_width": _LABEL},
            layout=_FULL,
        )
        self._slider = None
        widget: Any = box
        if slide_from is not None:
            self._slider = _log_slider(box, slide_from, most)
            widget = ipw.VBox([box, self._slider], layout={"overflow": "visible"})
        super().__init__(name, label, default, box, widget)
        box.observe(self._take, "value")

    @property
    def value(self) -> int:
        """The number, which is in the range."""
        return self._kept

    def on_change(self, listener: Callable[[Any], object]) -> None:
        """Call ``listener(change)`` when the number has changed to another in the range."""
        self._listeners.append(listener)

    def on_refused(self, listener: Callable[[ValueError], object]) -> None:
        """Call ``listener(error)`` when what was typed is outside the range."""
        self._refusers.append(listener)

    def check(self, value: Any) -> int:
        """Refuse what is no whole number in the range."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not self.least <= value <= self.most:
            raise ValueError(
                f"{self.label}: {value!r} is not possible, "
                f"want a whole number from {self.least:,} to {self.most:,}"
            )
        return int(value)

    def enable(self, enabled: bool) -> None:
        """Let it be changed, or not."""
        super().enable(enabled)
        if self._slider is not None:
            self._slider.disabled = not enabled

    def _take(self, change: Any) -> None:
        typed = self._source.value
        if typed == self._kept:
            return
        if self.least <= typed <= self.most:
            self._kept = typed
            for listener in self._listeners:
                listener(change)
            return
        self._source.value = self._kept
        error = ValueError(
            f"{self.label} must be {self.least:,} to {self.most:,}; {typed:,} was typed, "
            f"and it stays {self._kept:,}"
        )
        for refuser in self._refusers:
            refuser(error)


class Text(Control):
    """A text that must parse; what does not is shown beneath it in words.

    Parameters
    ----------
    name, label, default : str
    parse : callable
        ``parse(text, label)`` raises ValueError in words, with the label in them.
    tip : str
    """

    def __init__(
        self,
        name: str,
        label: str,
        default: str,
        parse: Callable[[str, str], object],
        *,
        tip: str = "",
    ) -> None:
        box = ipw.Text(
            value=default,
            description=label,
            tooltip=tip or label,
            continuous_update=False,
            style={"description_width": _LABEL},
            layout=_FULL,
        )
        super().__init__(name, label, default, box, box)
        self._parse = parse

    def parsed(self) -> Any:
        """What the text means.

        Raises
        ------
        ValueError
            In words.
        """
        return self._parse(self.value, self.label)

    def check(self, value: Any) -> str:
        """Refuse what does not parse."""
        if not isinstance(value, str):
            raise ValueError(f"{self.label}: {value!r} is not a text")
        self._parse(value, self.label)
        return value


class Upload:
    """A button that takes one file from the person's computer.

    Parameters
    ----------
    label : str
    accept : str
        Endings, as ``".mtx,.npz"``.
    received : callable
        ``received(name, content)`` gets every file; the same one may come twice.
    tip : str
    """

    def __init__(
        self,
        label: str,
        accept: str,
        received: Callable[[str, bytes], object],
        *,
        tip: str = "",
        icon: str = "upload",
    ) -> None:
        self.widget = ipw.FileUpload(
            accept=accept,
            multiple=False,
            description=label,
            tooltip=tip or label,
            icon=icon,
            layout={"width": "auto"},
        )
        self._received = received
        self.widget.observe(self._take, "value")

    def enable(self, enabled: bool) -> None:
        """Let files be given, or not."""
        self.widget.disabled = not enabled

    def take(self, name: str, content: bytes) -> None:
        """Do what an upload does."""
        self._received(name, content)

    def _take(self, change: Any) -> None:
        if not change["new"]:
            return
        file = change["new"][0]
        name, content = str(file["name"]), bytes(file["content"])
        self.widget.value = ()  # so that the same file, mended, is seen again
        self.take(name, content)


def button(
    label: str, pressed: Callable[[Any], object], *, tip: str = "", **look: Any
) -> ipw.Button:
    """Make a button that is as wide as its label."""
    made = ipw.Button(
        description=label, tooltip=tip or label, layout={"width": "auto", "min_width": "0"}, **look
    )
    made.on_click(pressed)
    return made


def _pairs(options: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(words, value) for value, words in options.items()]


def _log_slider(box: Any, least: int, most: int) -> Any:
    """Make a slider over powers of two that follows the number, and sets it."""
    low, high = math.log2(least), math.log2(most)
    slider = ipw.FloatLogSlider(
        base=2,
        min=low,
        max=high,
        step=1,
        value=min(max(box.value, least), most),
        readout=False,
        tooltip=f"{box.description}, by powers of two",
        tabbable=False,
        layout={"width": "auto", "margin": "0 12px 2px 120px"},
    )
    following = False

    def follow(_: Any) -> None:
        nonlocal following
        following = True
        try:
            slider.value = min(max(box.value, least), most)
        finally:
            following = False

    def lead(change: Any) -> None:
        if not following:
            box.value = round(change["new"])

    box.observe(follow, "value")
    slider.observe(lead, "value")
    return slider
