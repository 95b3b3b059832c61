"""Who still takes part in a launch: a look at the membership, and at the signs of life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtoolkit.cluster import membership
from dtoolkit.cluster.link import WorkerGoneError
from dtoolkit.errors import DtoolkitError

if TYPE_CHECKING:
    from dtoolkit.cluster.drive import Drive

__all__ = ["Vigil"]

_WATCH = 0.25  # seconds between two looks at the scheduler's list of workers
_WATCH_SHORT = 0.03  # the same where it costs nothing, or a launch waits for newcomers
_TICK, _TICK_SHORT = 0.2, 0.05  # seconds between two questions for signs of life
_AGAIN = 0.3  # seconds in which a rank that seems hung is asked again
_ANSWER = 60.0  # seconds after which a question for signs of life is given up


@dataclass(slots=True)
class _Life:
    """What is known of one rank's life: for how long it was silent, and its last count of signs."""

    silent: float = 0.0
    signs: int | None = None
    asking: asyncio.Task[None] | None = None


class Vigil:
    """Watches the workers of one launch, and tells its drive.

    Parameters
    ----------
    drive : Drive
    """

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._known = set(drive.state.members)

    async def presence(self) -> None:
        """Look at the membership: a call to a worker that is gone need not end by itself."""
        drive = self._drive
        link, elastic = drive.gang.link, drive.terms.elastic
        if elastic:  # spare workers come before replacements of those that are lost
            self._look_for_newcomers(await link.present())
        while True:
            hurried = link.local or (elastic and len(drive.state.active) < drive.state.limit)
            await asyncio.sleep(_WATCH_SHORT if hurried else _WATCH)
            there = await link.present()
            for address, task in drive.calls.items():
                if address not in there and not task.done():
                    drive.lose(address)
            if elastic:
                self._look_for_newcomers(there)

    def _look_for_newcomers(self, there: Sequence[str]) -> None:
        drive = self._drive
        for address in drive.state.waiting:
            if address not in there:
                self._known.discard(address)
                drive.inbox.put_nowait(("event", membership.Lost(address)))
        for address in there:
            if address not in self._known:
                self._known.add(address)
                drive.aside(self._welcome(address))

    async def signs(self, silence: float) -> None:
        """Ask the ranks for signs of life; who gives none for `silence` seconds is hung, and ended.

        Silence is counted in ticks that this loop itself has made: a client that stands still for a
        while does not take that for the silence of others.
        """
        drive = self._drive
        lives: dict[str, _Life] = {}
        tick = min(_TICK, max(_TICK_SHORT, silence / 10))
        before = time.perf_counter()
        while True:
            await asyncio.sleep(tick)
            now = time.perf_counter()
            step, before = min(now - before, 2 * tick), now
            for address in drive.state.active:
                if address not in drive.calls or drive.calls[address].done():
                    continue
                life = lives.setdefault(address, _Life())
                life.silent += step
                if life.asking is None or life.asking.done():
                    life.asking = asyncio.ensure_future(self._ask(address, life))
                if life.silent >= silence + _AGAIN:
                    drive.hung[address] = silence
                    drive.gang.roster.end(address)
                    drive.lose(address)

    async def _ask(self, address: str, life: _Life) -> None:
        gang, number = self._drive.gang, self._drive.launch.number
        try:
            signs = await gang.call(
                address, "pulse", gang.topic, number, timeout=_ANSWER, watch=False
            )
        except (WorkerGoneError, DtoolkitError):  # silent, or gone, which others see
            return
        if signs is None or signs != life.signs:
            life.silent, life.signs = 0.0, signs

    async def _welcome(self, address: str) -> None:
        """Learn what there is to know of a worker that could join, before anybody waits for it."""
        drive = self._drive
        try:
            await drive.gang.roster.member(address, drive.deadline)
        except WorkerGoneError:  # to be asked again, should it be there still
            self._known.discard(address)
        except DtoolkitError:  # another version, say: it cannot join
            return
        else:
            drive.inbox.put_nowait(("event", membership.Came(address)))
