"""What goes on in TrafficPanel beside its job: traces that grow are followed, positions move on.

Both hold the panel weakly, so that one that nobody shows or holds ends.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Any

from dtoolkit.widgets.traffic_controls import END

__all__ = ["followed", "played"]

_LOOK = 0.25  # seconds between two looks at a trace that grows
_TICK = 0.1  # seconds between two pictures of what is played


async def followed(there: weakref.ref[Any]) -> None:
    """Look at traces that grow, for as long as the panel lives; less often where it takes long."""
    while (panel := there()) is not None and not panel.closed:
        start = time.monotonic()
        try:
            await panel.look_again()
        except Exception as error:
            panel.fail(error)
        took = time.monotonic() - start
        del panel
        await asyncio.sleep(max(_LOOK, 4 * took))


async def played(there: weakref.ref[Any]) -> None:
    """Move the position on, by the clock, until the end or a pause."""
    before = time.monotonic()
    exact: float | None = None
    while (panel := there()) is not None and not panel.closed and panel.playing:
        now = time.monotonic()
        position = panel.controls["position"].value
        if exact is None or round(exact) != position:  # a person has moved it
            exact = float(position)
        exact = min(END, exact + END * (now - before) / float(panel.settings["speed"]))
        before = now
        panel.place(round(exact))
        if exact >= END:
            panel.pause()
        else:
            panel.retell()
        del panel
        await asyncio.sleep(_TICK)
