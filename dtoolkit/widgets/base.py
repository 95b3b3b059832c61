"""The base of all panels: controls, Run, Stop and Reset, presets, exports, the code behind it.

A panel has one figure, one job at a time, and a state of plain data. It never blocks the kernel:
what takes long is a job (see :mod:`dtoolkit.widgets.work`). What a callback raises is shown in the
panel in words. In a notebook ``await panel.wait()`` waits for what goes on; in a plain script,
where no event loop runs, every choice is computed before the call returns.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dtoolkit.widgets import exports
from dtoolkit.widgets.controls import Choice, Control, Number, Upload, button
from dtoolkit.widgets.core import Core
from dtoolkit.widgets.shell import Shell
from dtoolkit.widgets.work import Job, Work

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Panel"]

_OWN = "Own choices"
"""Stands in place of a preset's name once a choice differs from it."""

_CONTROLS, _RIGHT, _PAIR = 324, 480, 640  # CSS pixels: left, least on the right, two pictures

_EXPORTS = {
    "Figure (HTML)": ("_export_html", "A page of its own, which needs no network"),
    "Figure (PNG)": ("_export_png", "The figure as it is shown"),
    "Data (CSV)": ("_export_csv", "The numbers behind the figure"),
    "Settings (JSON)": ("_export_settings", "All choices, to be loaded again"),
}


class Panel(Core):
    """Base class of panels.

    A panel defines ``figure``, ``table``, ``code``, ``update`` (after a choice) and ``execute``
    (Run). It is shown by being the last expression of a cell, and lives from
    then on until it is closed.

    Parameters
    ----------
    groups : sequence of (str, sequence of Control or Widget)
        What stands on the left, under headings.
    run : str
        Label of the Run button; empty for a panel that has none.
    presets : mapping of str to mapping, optional
        Name to settings; the first is the start.

    Attributes
    ----------
    controls : dict
        Name to control.
    presets : dict
    """

    more_exports: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Exports of this panel beside those of all: label to the method's name and a tip."""

    def __init__(
        self,
        groups: Sequence[tuple[str, Sequence[Any]]],
        *,
        run: str = "Run",
        presets: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__([c for _, members in groups for c in members if isinstance(c, Control)])
        self.presets = dict(presets or {"-": {}})
        self._preset = Choice("preset", "Preset", {n: n for n in [*self.presets, _OWN]})
        self._run = button(run, self._guard("run"), button_style="primary", icon="play")
        self._stop = button("Stop", self._guard("stop"), icon="stop", disabled=True)
        self._reset = button("Reset", self._guard("reset"), icon="undo")
        self._code = button("Show the code", self._guard("_toggle_code"), icon="code")
        self._code_shown = False
        self._load = Upload(
            "Load settings", ".json", self._guard("_take_settings"), tip="Choices from a file"
        )
        saving = [
            button(label, self._guard(method), tip=tip, icon="download")
            for label, (method, tip) in {**_EXPORTS, **self.more_exports}.items()
        ]
        head = [("Start from", [self._preset])] if presets else []
        self._shell = Shell(
            self.title,
            [*head, *groups],
            [self._run, self._stop, self._reset] if run else [self._stop, self._reset],
            self._live.widget,
            self.bridge,
            [*saving, self._load.widget, self._code],
        )
        self._end = weakref.finalize(self, _finish, self._shell, self._work)
        for control in self.controls.values():
            control.on_change(self._guard("_choice"))
            if isinstance(control, Number):
                control.on_refused(self._guard("fail"))
        self._preset.on_change(self._guard("_choose_preset"))
        self.bridge.observe(self._guard("_look"), ["dark", "width"])
        self.bridge.on_too_big(self._guard("_too_big"))

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """Return the data behind the figure, for the CSV export."""

    @abstractmethod
    def code(self) -> str:
        """Return Python that makes the same without the panel."""

    @abstractmethod
    async def execute(self, job: Job) -> None:
        """Do what the Run button promises; a panel that has none does nothing here."""

    @property
    def view(self) -> Any:
        """The widget, to be put into a layout of your own."""
        self._shell.view.dtk_panel = self  # a panel that is shown lives until it is closed
        return self._shell.view

    @property
    def room(self) -> int | None:
        """Width of the figure in CSS pixels; None as long as no browser has told it."""
        width = self.bridge.width
        if not width:
            return None
        return max(width - _CONTROLS if width >= _CONTROLS + _RIGHT else width, 300)

    @property
    def wide(self) -> bool:
        """Whether there is room for two pictures beside each other."""
        return self.room is None or self.room >= _PAIR

    def run(self, pressed: Any = None) -> None:
        """Do what the Run button does."""
        self._start("running", "the run", self.execute)
        if pressed is not None:
            self._stop.focus()  # the button that was pressed can hold it no longer

    def stop(self, pressed: Any = None) -> None:
        """End what goes on; the panel is usable at once."""
        if not self._work.stop():
            self.say("Nothing is running.")
        elif pressed is not None:
            self._run.focus()

    def reset(self, _: Any = None) -> None:
        """Go back to the first preset, and the defaults of what it leaves open."""
        with self.quietly():
            self._preset.set(self._preset.default)
        self._start_from(self._preset.default)

    def save_figure(self, path: str | Path) -> None:
        """Write the figure as a page of its own that needs no network."""
        Path(path).write_bytes(exports.figure_html(self.figure("light"), self.title))

    def save_data(self, path: str | Path) -> None:
        """Write the data behind the figure as CSV."""
        Path(path).write_bytes(exports.table_csv(self.table()))

    def settings_text(self) -> str:
        """Write the settings as JSON, for :meth:`load_settings`."""
        return exports.settings_text(type(self).__name__, self.settings)

    def load_settings(self, text: str | bytes) -> None:
        """Take settings from JSON.

        Raises
        ------
        ValueError
            If they are no settings of such a panel; nothing was changed.
        """
        self.set(**exports.read_settings(text, type(self).__name__))

    def close(self) -> None:
        """End what goes on and take the panel away, with all that it started."""
        if not self.closed:
            self.closed = True
            self._end()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.view._repr_mimebundle_(**kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'closed' if self.closed else self._state.status}>"

    # ------------------------------------------------------------------- behind the scenes

    def _begin(self, activity: str) -> None:
        super()._begin(activity)
        running = activity == "running"
        self._stop.disabled = False
        self._enable(not running)
        self._name_preset()

    def _idle(self) -> None:
        super()._idle()
        self._stop.disabled = True
        self._enable(True)
        self._name_preset()
        self._give_code()

    def _enable(self, enabled: bool) -> None:
        """Let a person choose and press, or not."""
        for control in (self._preset, *self.controls.values()):
            control.enable(enabled)
        self._load.enable(enabled)
        self._run.disabled = self._reset.disabled = not enabled

    def _choose_preset(self, change: Any) -> None:
        if not self._batch and change["new"] in self.presets:
            self._start_from(change["new"])

    def _start_from(self, preset: str) -> None:
        self._changed = True
        self.set(**self._settings_of(preset))

    def _settings_of(self, preset: str) -> dict[str, Any]:
        defaults = {name: control.default for name, control in self.controls.items()}
        return defaults | dict(self.presets[preset])

    def _name_preset(self) -> None:
        """Show the preset that was chosen, or that a person's own choices are the same as."""
        chosen, settings = self._preset.value, self.settings
        names = [n for n in self.presets if self._settings_of(n) == settings]
        if chosen not in names:
            with self.quietly():
                self._preset.set(names[0] if names else _OWN)

    def _look(self, _: Any) -> None:
        self.redraw()

    def _too_big(self, name: str, size: int) -> None:
        raise ValueError(
            f"{name} has {size / 1e6:.1f} MB, and the connection to the notebook carries "
            f"{self.bridge.max_upload / 1e6:.0f} MB: put it beside the notebook and read it there"
        )

    def _take_settings(self, _: str, content: bytes) -> None:
        self.load_settings(content)

    def _export_html(self, _: Any) -> None:
        content = exports.figure_html(self.figure("light"), self.title)
        self._save("figure.html", content, "text/html")

    def _export_png(self, _: Any) -> None:
        self.bridge.save_png()

    def _export_csv(self, _: Any) -> None:
        self._save("data.csv", exports.table_csv(self.table()), "text/csv")

    def _export_settings(self, _: Any) -> None:
        self._save("settings.json", self.settings_text().encode(), "application/json")

    def _save(self, name: str, content: bytes, kind: str) -> None:
        self.bridge.save(f"{self._stem}-{name}", content, kind)

    def _toggle_code(self, _: Any) -> None:
        self._code_shown = not self._code_shown
        self._code.description = "Hide the code" if self._code_shown else "Show the code"
        self._give_code()

    def _give_code(self) -> None:
        self._shell.show_code(self.code() if self._code_shown else None)


def _finish(shell: Shell, work: Work) -> None:
    work.stop()
    for ending in shell.endings:
        ending()
    shell.close()
