"""What goes on inside a panel: its state, its one job, its callbacks, its end.

A choice starts a job that computes anew; Run starts one that runs. What a callback or a job raises
is shown in words. Callbacks do not keep a panel alive: one that nobody shows or holds ends, with
all that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import plotly.graph_objects as go

from dtoolkit.errors import DtoolkitError
from dtoolkit.figures.theme import Mode
from dtoolkit.widgets.bridge import Bridge
from dtoolkit.widgets.controls import Control
from dtoolkit.widgets.live_figure import LiveFigure
from dtoolkit.widgets.shell import Shell
from dtoolkit.widgets.work import Job, Throttle, Work, at_home

__all__ = ["Core", "State", "in_words"]

_COALESCE = 0.02  # seconds in which further choices join the first
_LONG = 700  # characters of an error; the rest is in the details


@dataclass
class State:
    """What a panel says, as plain data.

    Attributes
    ----------
    activity : str
        ``"idle"``, ``"working"`` after a choice, ``"running"`` after Run.
    status : str
        The status line.
    error, details : str
        What did not work, in words, and the traceback; empty if all is well.
    done, total : int
        Progress; a total of 0 where nobody knows it.
    """

    activity: str = "idle"
    status: str = ""
    error: str = ""
    details: str = ""
    done: int = 0
    total: int = 0


class Core(ABC):
    """A panel without its looks; :class:`dtoolkit.widgets.base.Panel` gives them to it.

    Parameters
    ----------
    controls : sequence of Control

    Attributes
    ----------
    controls : dict
        Name to control.
    bridge : Bridge
        The browser's side.
    redraw : Throttle
        Draws the figure anew, at most every 100 ms.
    closed : bool
    """

    title = "Panel"
    _shell: Shell

    def __init__(self, controls: Sequence[Control]) -> None:
        self.closed = False
        self.controls = {control.name: control for control in controls}
        self.bridge = Bridge()
        self.redraw = Throttle(self._guard("_draw"))
        self._state = State()
        self._batch = 0
        self._changed = False
        self._work = Work(self._guard("_job_failed"), self._guard("_stopped"))
        self._live = LiveFigure(self.figure(), f"{self._stem}-figure")

    @abstractmethod
    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw what the panel shows now; a pure function of its state."""

    @abstractmethod
    async def update(self, job: Job) -> None:
        """Compute anew after a choice, and say what the figure shows."""

    @property
    def state(self) -> dict[str, Any]:
        """What the panel says, as plain data (see :class:`State`)."""
        return asdict(self._state)

    @property
    def settings(self) -> dict[str, Any]:
        """Name to value of all controls, as plain data."""
        return {name: control.value for name, control in self.controls.items()}

    @property
    def mode(self) -> Mode:
        """Ink for the page that the panel stands on."""
        if not self.bridge.width:
            return "auto"
        return "dark" if self.bridge.dark else "light"

    def set(self, **values: Any) -> None:
        """Set controls by name, all of them or none, and compute once.

        Raises
        ------
        ValueError
            A name or a value is not known; nothing was changed.
        """
        for name, value in values.items():
            if name not in self.controls:
                raise ValueError(f"{name!r} is no setting: there are {', '.join(self.controls)}")
            self.controls[name].check(value)
        with self.quietly():
            for name, value in values.items():
                self.controls[name].set(value)
        if self._changed and not self._batch:
            self._recompute()

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Let controls change without computing each time."""
        self._batch += 1
        try:
            yield
        finally:
            self._batch -= 1

    async def wait(self) -> None:
        """Wait until nothing goes on any more."""
        await self._work.wait()
        await asyncio.sleep(0)

    def say(self, text: str) -> None:
        """Set the status line."""
        self._state.status = text
        self._shell.say(text, busy=self._state.activity != "idle")

    def progress(self, done: int, total: int = 0) -> None:
        """Say how far it is; a total of 0 means that nobody knows."""
        self._state.done, self._state.total = done, total
        self._shell.progress(done, total, self.title, shown=self._state.activity != "idle")

    def fail(self, error: BaseException) -> None:
        """Show an error in words; what goes on goes on."""
        text, details = in_words(error)
        self._state.error, self._state.details = text, details
        self._shell.fail(text, details)

    def on_close(self, function: Callable[[], object]) -> None:
        """Call a function, which must not refer to the panel, when the panel ends."""
        self._shell.endings.append(function)

    # ------------------------------------------------------------------- behind the scenes

    @property
    def _stem(self) -> str:
        """What the names of its files begin with."""
        return type(self).__name__.removesuffix("Panel").lower()

    def _guard(self, method: str) -> Callable[..., None]:
        """Return a callback, for any thread, that shows what it raises and keeps no panel alive."""
        there = weakref.ref(self)

        def call(*args: Any) -> None:
            me = there()
            if me is None or me.closed:
                return
            try:
                getattr(me, method)(*args)
            except Exception as error:
                me.fail(error)

        return at_home(call)

    def _choice(self, _: Any) -> None:
        self._changed = True
        if not self._batch:
            self._recompute()

    def _recompute(self) -> None:
        self._changed = False
        self._start("working", "what was chosen", self._update)

    def _start(self, activity: str, name: str, step: Callable[[Job], Any]) -> None:
        """Start a job in place of the one that goes on."""

        async def run(job: Job) -> None:
            await step(job)
            if job.wanted:
                self.redraw.flush()
                self._idle()
                self.say(self._state.status)

        self._begin(activity)
        self._work.start(name, run)

    async def _update(self, job: Job) -> None:
        await asyncio.sleep(_COALESCE)
        await self.update(job)

    def _begin(self, activity: str) -> None:
        if self._state.activity != activity:
            self._idle()
        self._state.activity = activity
        self._state.error = self._state.details = ""
        self._shell.fail("", "")
        self.progress(0)

    def _idle(self) -> None:
        self._state.activity = "idle"
        self.progress(0)

    def _job_failed(self, error: BaseException) -> None:
        self._idle()
        self.fail(error)
        self.say("That did not work; the figure shows what was there before.")

    def _stopped(self, job: Job) -> None:
        self._idle()
        self.say(f"Stopped: {job.name}. The figure shows what was there before.")

    def _draw(self) -> None:
        self._live.draw(self.figure(self.mode))


def in_words(error: BaseException) -> tuple[str, str]:
    """Return what an error says to a person, and its traceback."""
    details = "".join(traceback.format_exception(error))
    said = str(error).split("\n---", 1)[0].strip() or "no more is known"
    if len(said) > _LONG:
        said = said[:_LONG].rsplit(" ", 1)[0] + " …"
    plain = isinstance(error, DtoolkitError | ValueError | ImportError | MemoryError | OSError)
    return (said if plain else f"{type(error).__name__}: {said}"), details
