"""What went wrong on the ranks of an elastic run, told to the client once the run goes on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from dtoolkit.errors import CommunicationError, PeerLost
from dtoolkit.training.recovery.noted import kind_of

if TYPE_CHECKING:
    from dtoolkit.cluster import Context
    from dtoolkit.training.recovery.group import Group

__all__ = ["Mishaps"]


_LATELY = 2.0  # seconds within which what was told may not have been heard


class Mishaps:
    """The mishaps of one rank that are not over yet.

    Parameters
    ----------
    ctx : Context
    workers : int
        Ranks that the run began with.
    """

    def __init__(self, ctx: Context, workers: int) -> None:
        self._ctx, self._workers = ctx, workers
        self._breaks: list[tuple[float, bool]] = []  # when a group broke, and whether by a hang
        self._open: list[dict[str, Any]] = []
        self._shared: list[dict[str, Any]] = []  # known to all: one speaks
        self._told: list[tuple[float, dict[str, Any]]] = []  # lately, and when
        self._failed: Counter[int] = Counter()  # by rank, in this step

    def broke(self, error: PeerLost | CommunicationError) -> None:
        """A group is over."""
        self._breaks.append((self._ctx.clock(), bool(getattr(error, "hung", ()))))

    def formed(self, before: Group | None, now: Group, *, step: int, moved: int) -> None:
        """The next group is there, and all of it has the state.

        Parameters
        ----------
        before, now : Group
        step : int
            Steps that are done.
        moved : int
            Bytes that brought ranks up to date.
        """
        if before is None:
            return
        gone = now.lost_from(before)
        new = f", {len(now.came)} of them new" if now.came else ""
        if self._breaks:
            detected, hung = self._breaks[0][0], any(hung for _, hung in self._breaks)
            kind = ("hung" if hung else "lost") if gone else "connection"
            interrupted = set(now.behind) <= set(now.came)  # nobody had finished the step
            how = f"went on with {len(now.seats)} of {self._workers} workers{new}"
            if gone:  # who told of the last ones may be gone before that was heard
                lately = self._ctx.clock() - _LATELY
                self._shared += [one for at, one in self._told if at > lately]
            self._shared.append(
                {
                    "recovery": kind,
                    "group": now.number,
                    "ranks": gone,
                    "seen": "a connection broke" if not gone else "",
                    "at": step if interrupted else step - 1,
                    "detected": detected,
                    "repeated": int(interrupted),
                    "bytes": moved,
                    "how": how,
                }
            )
        elif now.came and self._ctx.rank == now.spokesman:
            ranks = list(now.came)
            self._ctx.log({"rejoined": ranks, "at": step, "bytes": moved})
        self._breaks = []

    def failed(self, error: BaseException, step: int) -> None:
        """The rank could not do its part of a step, which is made again."""
        rank, text = self._ctx.rank, f"{type(error).__name__}: {error}"
        kind = kind_of(error, text)
        self._open.append(
            {
                "recovery": kind,
                "ranks": [rank],
                "seen": f"rank {rank}: {text.splitlines()[0][:200]}",
                "at": step,
                "detected": self._ctx.clock(),
                "repeated": 1,
                "how": "the step was void and made again",
            }
        )

    def differed(self, names: list[str], step: int, *, moved: int) -> None:
        """The rank held something else than most, and has got what they hold."""
        rank, shown = self._ctx.rank, ", ".join(names[:4])
        more = f" and {len(names) - 4} more" if names[4:] else ""
        self._open.append(
            {
                "recovery": "differs",
                "ranks": [rank],
                "seen": f"rank {rank} held something else than most: {shown}{more}",
                "at": step,
                "detected": self._ctx.clock(),
                "repeated": 1,
                "bytes": moved,
                "how": "the step was void; it got the state that most hold, and it was made again",
            }
        )

    def again(self, ranks: list[int]) -> int:
        """Count failures in a step that is void; how often this rank has failed in it."""
        self._failed.update(ranks)
        return self._failed[self._ctx.rank]

    def over(self, group: Group) -> None:
        """A step was made: tell what was got over."""
        self._failed.clear()
        if not (self._open or self._shared):
            return
        now = self._ctx.clock()
        shared = [{"recovered": now, **one} for one in self._shared]
        told = [{**one, "recovered": now} for one in self._open]
        if self._ctx.rank == group.spokesman:
            told += shared
        for one in told:
            self._ctx.log(one)
        self._told = [(now, one) for one in shared]
        self._open, self._shared = [], []
