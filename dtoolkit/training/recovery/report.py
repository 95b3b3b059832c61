"""What went wrong in a run and how it went on: one entry a fault, and all of them as a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import pandas as pd

    from dtoolkit.training.run import Run
    from dtoolkit.training.state import RunState

__all__ = ["Recovery", "RecoveryReport"]


@dataclass(frozen=True)
class Recovery:
    """One fault, and what was done about it (measured).

    Attributes
    ----------
    fault : str
        What was injected, in words; or, of a fault that nobody injected, what was seen.
    kind : str
        What was seen: "lost", "hung", "raised", "memory", "not finite", "differs", "connection",
        or "unnoticed" where nothing was.
    ranks : tuple of int
        Ranks that it hit, numbered as they were then.
    step : int or None
        Step that was under way, from 0.
    injected, detected, recovered : float or None
        Seconds from the beginning of the run on the client's clock: when it struck, when it was
        noticed, and when the run went on where it had been interrupted; None where it is not known.
    steps_lost : int
        Steps that were done and had to be done again.
    steps_repeated : int
        Steps that were made more than once, those that were interrupted included.
    bytes_moved : int
        Bytes that ranks sent each other to bring states up to date.
    policy : str
    how : str
        What was done, in words.
    """

    fault: str
    kind: str
    ranks: tuple[int, ...] = ()
    step: int | None = None
    injected: float | None = None
    detected: float | None = None
    recovered: float | None = None
    steps_lost: int = 0
    steps_repeated: int = 0
    bytes_moved: int = 0
    policy: str = ""
    how: str = ""

    @property
    def detection(self) -> float | None:
        """Seconds from the fault to its being noticed."""
        return _between(self.injected, self.detected)

    @property
    def recovery(self) -> float | None:
        """Seconds from being noticed to the run going on."""
        return _between(self.detected, self.recovered)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {**asdict(self), "ranks": list(self.ranks)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Recovery:
        """The entry that :meth:`as_dict` gave."""
        known = {one.name for one in fields(cls)}
        found = {name: value for name, value in values.items() if name in known}
        return cls(**{**found, "ranks": tuple(found.get("ranks", ()))})

    def __str__(self) -> str:
        where = "" if self.step is None else f" (step {self.step})"
        times = [
            f"{name} after {seconds:.2f} s"
            for name, seconds in (("noticed", self.detection), ("went on", self.recovery))
            if seconds is not None
        ]
        counts = [
            f"{name} {count:,}"
            for name, count in (
                ("steps lost", self.steps_lost),
                ("steps repeated", self.steps_repeated),
                ("bytes moved", self.bytes_moved),
            )
            if count
        ]
        return "; ".join([f"{self.fault}{where}: {self.how or self.kind}", *times, *counts])


class RecoveryReport(Sequence[Recovery]):
    """All faults of a run, in the order in which they were noticed.

    Parameters
    ----------
    entries : iterable of Recovery
    policy : str
        Name of the policy.
    state : RunState, optional
        Where the run ended.
    never_fired : iterable of str
        Faults of the run's list that did not strike, in words.
    """

    def __init__(
        self,
        entries: Iterable[Recovery] = (),
        *,
        policy: str = "",
        state: RunState | None = None,
        never_fired: Iterable[str] = (),
    ) -> None:
        self._entries = tuple(entries)
        self.never_fired = tuple(never_fired)
        self.policy = policy
        self.state = state

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, place: int) -> Recovery: ...

    @overload
    def __getitem__(self, place: slice) -> RecoveryReport: ...

    def __getitem__(self, place: int | slice) -> Recovery | RecoveryReport:
        if isinstance(place, slice):
            return RecoveryReport(self._entries[place], policy=self.policy, state=self.state)
        return self._entries[place]

    def __iter__(self) -> Iterator[Recovery]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RecoveryReport):
            return self._entries == other._entries
        return list(self._entries) == other if isinstance(other, list) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._entries)

    def table(self) -> pd.DataFrame:
        """A row a fault: the attributes of :class:`Recovery`, and both spans in seconds.

        Returns
        -------
        DataFrame
        """
        import pandas as pd

        names = [one.name for one in fields(Recovery)]
        rows = [
            {**asdict(one), "detection": one.detection, "recovery": one.recovery} for one in self
        ]
        return pd.DataFrame(rows, columns=[*names, "detection", "recovery"])

    def compared(self, reference: Run) -> str:
        """Say whether the run ended like one without faults.

        Parameters
        ----------
        reference : Run
            The same run without faults.

        Returns
        -------
        str
            That they are equal to the bit, or the names of what differs.

        Raises
        ------
        ValueError
            The report belongs to no run that has ended.
        """
        if self.state is None:
            raise ValueError("the report belongs to no run that has ended: nothing to compare")
        differs = self.state.differs_from(reference.state)
        if not differs:
            return f"after {self.state.step:,} steps equal to the run without faults, to the bit"
        shown = ", ".join(differs[:6]) + (f" and {len(differs) - 6} more" if differs[6:] else "")
        return f"differs from the run without faults in {shown}"

    def as_list(self) -> list[dict[str, Any]]:
        """Plain values, for files."""
        return [one.as_dict() for one in self]

    def __repr__(self) -> str:
        lines = list(map(str, self._entries))
        if not lines:
            lines = [f"no faults{f' ({self.policy})' if self.policy else ''}"]
        return "\n".join([*lines, *(f"never fired: {text}" for text in self.never_fired)])

    def _repr_html_(self) -> str:
        from dtoolkit.figures.recovery_cards import recovery_card

        return recovery_card(self)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start
