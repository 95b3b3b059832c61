"""A panel of a few lines, as the later ones are written, for tests of what all panels share."""

from __future__ import annotations

import asyncio
import threading

import pandas as pd
import plotly.graph_objects as go

from dtoolkit.widgets import Panel
from dtoolkit.widgets.controls import Choice, Number, Text


class Squares(Panel):
    """A panel of a few lines, as the later ones are written."""

    title = "Squares"

    def __init__(self):
        self.squares = []
        self.computed = 0
        self.released = threading.Event()  # whom a slow computation waits for
        super().__init__(
            [
                (
                    "What",
                    [
                        Number("count", "Count", 3, 1, 50, slide_from=2),
                        Choice("kind", "Kind", {"fast": "Fast", "slow": "Slow", "bad": "Bad"}),
                        Text("unit", "Unit", "m", parse_unit),
                    ],
                )
            ],
            run="Go",
            presets={"Three": {}, "Five": {"count": 5}},
        )
        self.reset()

    def figure(self, mode="auto"):
        return go.Figure(go.Scatter(y=self.squares), {"title": {"text": f"{len(self.squares)}"}})

    def table(self):
        return pd.DataFrame({"square": self.squares})

    def code(self):
        return f"squares = [i * i for i in range({self.settings['count']})]\n"

    async def update(self, job):
        self.computed += 1
        if self.settings["kind"] == "bad":
            raise KeyError("no such square")
        if self.settings["kind"] == "slow":
            await job.in_thread(self.released.wait, 30)
        self.squares = await job.in_thread(
            lambda n: [i * i for i in range(n)], self.settings["count"]
        )
        self.say(f"{len(self.squares)} squares")
        self.redraw()

    async def execute(self, job):
        for step in range(100):
            self.progress(step, 100)
            await asyncio.sleep(0.01)
        self.say("ran")


def parse_unit(text, name):
    if not text.isalpha():
        raise ValueError(f"{name}={text!r} is no unit")
    return text
