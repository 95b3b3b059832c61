"""What the ranks say while a launch runs, taken in on the client."""

from __future__ import annotations

import asyncio
import logging
import uuid
import weakref
from typing import TYPE_CHECKING, Any

from dtoolkit.cluster.instrument import Instrument
from dtoolkit.cluster.outcome import lists

if TYPE_CHECKING:
    from dtoolkit.cluster.gang import Gang

__all__ = ["Listener"]

_log = logging.getLogger(__name__)

_HEARING = 1.0  # seconds that the scheduler may take to tell what it has heard


class Listener:
    """Receives what the ranks send; holds the gang weakly, since the client outlives it.

    Parameters
    ----------
    gang : Gang

    Attributes
    ----------
    instruments : dict
        Instruments of each launch, by its number, which hear what is announced.
    """

    def __init__(self, gang: Gang) -> None:
        self._gang = weakref.ref(gang)
        self._marks: dict[str, asyncio.Future[None]] = {}
        self.instruments: dict[int, tuple[Instrument, ...]] = {}

    def __call__(self, event: tuple[float, Any]) -> None:
        """Take an event of the gang's topic; Dask calls it on its thread."""
        gang = self._gang()
        if gang is None:
            return
        for message in event[1]:
            if "mark" in message:
                mark = self._marks.get(message["mark"])
                if mark is not None and not mark.done():
                    mark.set_result(None)
            elif "announced" in message:
                self._hear(**message)
            elif "ask" in message:
                drive = gang.drives.get(message.pop("ask"))
                if drive is not None:
                    drive.asked(**message)
            elif "broke" in message:
                drive = gang.drives.get(message.pop("broke"))
                if drive is not None:
                    drive.broke(**message)
            else:
                drive = gang.drives.get(message.get("launch"))
                if drive is not None:
                    drive.logged([message])

    async def catch_up(self) -> None:
        """Wait until all that the scheduler has been told so far has come here."""
        gang = self._gang()
        if gang is None or gang.client.scheduler is None:
            return
        mark = uuid.uuid4().hex
        came = self._marks[mark] = gang.loop.create_future()
        try:
            told = gang.client.scheduler.log_event(topic=gang.topic, msg=[{"mark": mark}])
            await asyncio.wait_for(told, _HEARING)
            await asyncio.wait_for(came, _HEARING)
        except (TimeoutError, OSError):  # the scheduler is gone, or does not answer
            return
        finally:
            del self._marks[mark]

    def _hear(self, *, announced: int, rank: int, instrument: int, message: Any) -> None:
        """An instrument's copy on a rank has said something."""
        instruments = self.instruments.get(announced, ())
        if instrument < len(instruments):
            try:
                instruments[instrument].heard(lists(message))
            except Exception:
                _log.exception("%r failed to hear rank %d", instruments[instrument], rank)
