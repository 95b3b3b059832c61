"""Data that lies on the workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from dtoolkit.errors import LayoutError, ShardLost

__all__ = ["Remote", "restore_lost"]


class Remote:
    """A handle to one object on each rank.

    Passed to ``cluster.run`` anywhere in the arguments, it becomes the rank's own object. The
    objects are freed when the handle is dropped.

    Attributes
    ----------
    key : str
    homes : list of str
        Address of the worker that holds each rank's object.
    nbytes : list of int
        Bytes of each rank's object.
    restore : callable or None
        ``restore(ranks)`` makes the objects of these ranks again, when their workers were lost;
        None where nobody knows how.
    """

    def __init__(
        self,
        key: str,
        homes: Sequence[str],
        nbytes: Sequence[int],
        free: Callable[[str], None],
        restore: Callable[[list[int]], object] | None = None,
    ) -> None:
        self.key = key
        self.homes = list(homes)
        self.nbytes = list(nbytes)
        self.restore = restore
        self._release = weakref.finalize(self, free, key)
        self._release.atexit = False

    @staticmethod
    def __dtoolkit_remote__(handle: Remote) -> Remote:
        """How the pickler of calls recognises a handle."""
        return handle

    def lost(self, addresses: Sequence[str]) -> list[int]:
        """Ranks whose object is not on the worker that has the rank now."""
        return [r for r, home in enumerate(self.homes) if home != addresses[r]]

    def free(self) -> None:
        """Free the objects now."""
        self._release()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a handle to data on workers cannot be pickled; pass it to cluster.run, which gives "
            "each rank its own object"
        )

    def __repr__(self) -> str:
        return f"<Remote {self.key}: {sum(self.nbytes)} bytes on {len(self.homes)} workers>"


def restore_lost(handle: Remote, ranks: list[int]) -> None:
    """Make the objects of `ranks` again; no ranks: the cluster has another number of them now.

    Raises
    ------
    LayoutError, ShardLost
        It cannot be done.
    """
    if not ranks:
        raise LayoutError(
            f"{handle!r} is laid over {len(handle.homes)} ranks and the cluster has another "
            "number now: distribute it anew"
        )
    if handle.restore is None:
        raise ShardLost(
            f"rank(s) {ranks} of {handle!r} were on workers that are gone, and it cannot be made "
            "again from a source"
        )
    handle.restore(ranks)
