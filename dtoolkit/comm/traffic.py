"""Traffic: what ranks send and compute, phase by phase, whatever it comes from.

Plans give it (:meth:`Plan.demand`, planned), traces give it (:meth:`Trace.traffic`, measured), and
:func:`dtoolkit.comm.predict` takes it. It knows bytes and work, and of time nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.comm.amounts import bytes_text, plural
from dtoolkit.comm.event import Event
from dtoolkit.comm.links import byte_matrix
from dtoolkit.comm.rates import dtype_name

__all__ = ["Phase", "Traffic", "of_events"]


@dataclass(frozen=True, eq=False, repr=False)
class Phase:
    """What is sent all at once, and what is computed beside it and after it.

    Attributes
    ----------
    name : str
    sent : int64 array, shape (ranks, ranks)
        Bytes, [source, target]. Given as an integer array or a sparse one; the diagonal, which
        moves nowhere, is emptied.
    work : float64 array, shape (ranks,)
        Nonzeros times dense columns that each rank computes while the bytes move; 0 by default.
    after : float64 array, shape (ranks,)
        Nonzeros times dense columns that each rank computes when the bytes have come; 0 by default.

    Raises
    ------
    ValueError
        Naming the field that has another shape, or negative entries.
    """

    name: str
    sent: NDArray[np.int64]
    work: NDArray[np.float64] = None  # type: ignore[assignment]
    after: NDArray[np.float64] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"name={self.name!r}: wanted text")
        where = f"phase {self.name!r}: "
        sent = byte_matrix(self.sent, name=f"{where}sent")
        values = {
            "sent": sent,
            "work": _amounts(self.work, len(sent), f"{where}work"),
            "after": _amounts(self.after, len(sent), f"{where}after"),
        }
        for name, value in values.items():
            value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.sent)

    def __repr__(self) -> str:
        moved = bytes_text(int(self.sent.sum()))
        return f"<Phase {self.name!r}: {moved} on {plural(self.ranks, 'rank')}>"


@dataclass(frozen=True, eq=False, repr=False)
class Traffic:
    """Phases that follow each other.

    Attributes
    ----------
    phases : tuple of Phase
    label : str
        What this is the traffic of, in a few words.
    dtype : str
        Of what is computed, such as ``"float32"``: chooses among the rates of a network; empty
        where that is not known.
    launches : int
        Launches that it takes, each of which has an overhead beside its phases.

    Raises
    ------
    ValueError
        If there is no phase, or phases differ in their number of ranks.
    """

    phases: tuple[Phase, ...]
    label: str = ""
    dtype: str = ""
    launches: int = 0

    def __post_init__(self) -> None:
        phases = tuple(self.phases)
        if not phases:
            raise ValueError("phases is empty: wanted at least one Phase")
        for phase in phases:
            if not isinstance(phase, Phase):
                raise ValueError(f"phases has a {type(phase).__name__}: wanted Phase")
            if phase.ranks != phases[0].ranks:
                raise ValueError(
                    f"phase {phase.name!r} is of {plural(phase.ranks, 'rank')}, and phase "
                    f"{phases[0].name!r} of {phases[0].ranks}"
                )
        object.__setattr__(self, "phases", phases)
        object.__setattr__(self, "dtype", dtype_name(self.dtype) if self.dtype else "")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.phases[0].ranks

    @property
    def sent(self) -> NDArray[np.int64]:
        """Bytes of all phases: int64 array of shape (ranks, ranks), [source, target]."""
        return np.sum([phase.sent for phase in self.phases], axis=0, dtype=np.int64)

    @property
    def total(self) -> int:
        """Bytes that move in all phases."""
        return sum(int(phase.sent.sum()) for phase in self.phases)

    def __repr__(self) -> str:
        return (
            f"<Traffic{f' of {self.label}' if self.label else ''}: {bytes_text(self.total)} in "
            f"{plural(len(self.phases), 'phase')} on {plural(self.ranks, 'rank')}>"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.figures.network_cards import traffic_card

        return traffic_card(self)


def of_events(events: Iterable[Event], ranks: int, label: str) -> Traffic:
    """Gather measured events into phases: see :meth:`dtoolkit.comm.Trace.traffic`."""
    calls: dict[tuple[int, str, str, int], int] = {}
    rounds: dict[tuple[int, str, str, int], list[Event]] = {}
    for event in sorted(events, key=lambda e: e.start):
        if not any(event.sent):
            continue
        who = (event.launch, event.phase, event.operation, event.rank)
        number = calls[who] = calls.get(who, -1) + 1
        rounds.setdefault((*who[:3], number), []).append(event)
    phases = []
    for (_, phase, operation, _), together in rounds.items():  # by the start of the first event
        sent = np.zeros((ranks, ranks), dtype=np.int64)
        for event in together:
            sent[event.rank, : len(event.sent)] += np.asarray(event.sent, dtype=np.int64)
        phases.append(Phase(phase or operation, sent))
    return Traffic(tuple(phases or [Phase("nothing", np.zeros((ranks, ranks), np.int64))]), label)


def _amounts(value: Any, ranks: int, name: str) -> NDArray[np.float64]:
    """Check an amount of work by rank."""
    if value is None:
        return np.zeros(ranks)
    array = np.array(value, dtype=np.float64)
    if array.shape != (ranks,):
        raise ValueError(f"{name} has shape {array.shape}: wanted ({ranks},), one a rank")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{name} has entries that are negative or not finite")
    return array
