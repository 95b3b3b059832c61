"""Faults that are injected into the launches of a cluster, and the log of those that have fired."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from dtoolkit.faults.fault import Fault
from dtoolkit.faults.slow import Slow
from dtoolkit.faults.striking import Striker

if TYPE_CHECKING:
    from dtoolkit.cluster.cluster import Cluster
    from dtoolkit.cluster.instrument import Site
    from dtoolkit.comm.trace import Trace

__all__ = ["Fired", "Injection", "inject"]


@dataclass(frozen=True)
class Fired:
    """A fault that has struck.

    Attributes
    ----------
    fault : Fault
    number : int
        Its place in the list of faults.
    rank : int
    step : int or None
        The step that the rank had begun; None before any.
    operation : str
        The operation that was about to begin; empty where it was none.
    launch : int
        Number of the launch.
    time : float
        Seconds on the client's ``time.perf_counter``.
    after : float
        Seconds from the beginning of the launch.
    detail : str
        What only the moment told, such as the element that became NaN.
    """

    fault: Fault
    number: int
    rank: int
    step: int | None
    operation: str
    launch: int
    time: float
    after: float
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.fault}: {self.detail}" if self.detail else str(self.fault)


class Injection:
    """Faults to be attached to launches, as an instrument; what fires is heard here.

    A fault fires once in the life of its injection: not again in a later launch, in a step that is
    repeated, or on a newcomer with the same rank. A rank asks the scheduler before it strikes, so
    nobody need hand over what has fired. A point that nobody comes to is left out: a fault of a
    rank that is not there in its step stays where it is, see :meth:`left`.

    Parameters
    ----------
    faults : sequence of Fault
        Those of one moment strike in this order.
    trace : Trace, optional
        That of the cluster: launches in which links were slow are marked in it.

    Attributes
    ----------
    faults : tuple of Fault
    trace : Trace or None
        May be given later, before the launches.

    Raises
    ------
    TypeError
        One of them is no fault that can be injected.
    """

    def __init__(self, faults: Sequence[Fault], *, trace: Trace | None = None) -> None:
        for number, fault in enumerate(faults):
            if isinstance(fault, Slow):
                raise TypeError(
                    f"faults[{number}] is Slow, which is laid on the micro-batches of a training: "
                    "give it to dt.train(faults=...)"
                )
            if not isinstance(fault, Fault):
                raise TypeError(
                    f"faults[{number}] must be a fault such as dt.faults.Kill(rank=1, at_step=3); "
                    f"got {fault!r}"
                )
        self.faults = tuple(faults)
        self.trace = trace
        self._name = uuid.uuid4().hex[:12]
        self._fired: dict[int, Fired] = {}
        self._began: dict[int, float] = {}
        self._guard = threading.Lock()

    @property
    def fired(self) -> tuple[Fired, ...]:
        """What has struck so far, in order of time."""
        with self._guard:
            return tuple(sorted(self._fired.values(), key=lambda one: one.time))

    def left(self) -> tuple[Fault, ...]:
        """Faults that have not struck, in the order of the list."""
        with self._guard:
            return tuple(f for number, f in enumerate(self.faults) if number not in self._fired)

    def check(self, ranks: int) -> None:
        """Refuse faults of ranks that are not there.

        Parameters
        ----------
        ranks : int
            How many ranks there are.

        Raises
        ------
        ValueError
        """
        for fault in self.faults:
            fault.check(ranks)

    def table(self) -> pd.DataFrame:
        """What has struck, one row a fault: fault, rank, step, operation, launch, after, detail."""
        names = ("rank", "step", "operation", "launch", "after", "detail")
        rows = [
            {"fault": str(one.fault), **{name: getattr(one, name) for name in names}}
            for one in self.fired
        ]
        return pd.DataFrame(rows, columns=["fault", *names]).astype({"step": "Int64"})

    def __repr__(self) -> str:
        return f"<Injection: {len(self._fired)} of {len(self.faults)} faults have fired>"

    # ------------------------------------------------------------------- as an instrument

    def attach(self, site: Site) -> None:
        """Let the faults of a rank strike in its part of a launch."""
        waiting = {
            number: fault
            for number, fault in enumerate(self.faults)
            if fault.lasts or number not in self._fired
        }
        began = self._began.get(site.launch) if site.joined else None
        if waiting:
            Striker(self._name, waiting, began, site).begin()

    def heard(self, message: dict[str, Any]) -> None:
        """Take down what has struck."""
        number, time, began = message["fault"], message["time"], message["began"]
        fired = Fired(
            fault=self.faults[number],
            number=number,
            rank=message["rank"],
            step=message["step"],
            operation=message["operation"],
            launch=message["launch"],
            time=time,
            after=time - began,
            detail=message["detail"],
        )
        with self._guard:
            self._began.setdefault(fired.launch, began)
            self._fired.setdefault(number, fired)
        if self.trace is not None and fired.fault.mark:
            self.trace.mark(fired.launch, fired.fault.mark)

    def __getstate__(self) -> dict[str, Any]:
        with self._guard:
            return {
                "faults": self.faults,
                "_name": self._name,
                "_fired": dict(self._fired),
                "_began": dict(self._began),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, trace=None)
        self._guard = threading.Lock()


@contextmanager
def inject(cluster: Cluster, *faults: Fault) -> Iterator[Injection]:
    """Inject faults into whatever a cluster runs inside the block: functions, products, arrays.

    Each fault fires once in the block. What it leads to is what it would be without the block: an
    error of the launch, or :class:`~dtoolkit.errors.PeerLost` in an elastic one.

    Parameters
    ----------
    cluster : Cluster
    *faults : Fault

    Yields
    ------
    Injection
        Its log; after the block, ``left()`` names the faults that never fired.

    Raises
    ------
    TypeError
        Something is no fault that can be injected, or the first argument is no cluster.
    ValueError
        A fault names a rank that the cluster does not have.

    Examples
    --------
    >>> with inject(cluster, Kill(rank=2, at_operation="all_reduce")) as faults:  # doctest: +SKIP
    ...     cluster.run(function)
    """
    if not hasattr(cluster, "instrumented"):
        raise TypeError(f"cluster is {type(cluster).__name__}: wanted a dtoolkit.Cluster")
    injection = Injection(faults, trace=cluster.trace)
    injection.check(cluster.size)
    with cluster.instrumented(injection):
        yield injection
