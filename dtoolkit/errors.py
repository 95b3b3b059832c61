"""What is said when it fails.

Every error that dtoolkit raises on purpose derives from :class:`DtoolkitError` and says in its
text what happened, where, and what to do next. Errors of the wrong-argument kind also derive from
:class:`ValueError`, so that code which knows nothing of dtoolkit catches them as it would expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "ClusterClosed",
    "ClusterTooSmall",
    "CommunicationError",
    "DtoolkitError",
    "LaunchCancelled",
    "LaunchTimeout",
    "LayoutError",
    "MatrixFormatError",
    "MessageMismatch",
    "MissingPackage",
    "PeerLost",
    "PlanError",
    "RankError",
    "ReplicaMismatch",
    "ShardLost",
    "VersionMismatch",
    "WipeOut",
    "WorkerLost",
]


class DtoolkitError(Exception):
    """Base of every error that dtoolkit raises on purpose."""

    def __reduce__(self) -> Any:
        # The arguments of __init__ are not those of Exception: errors travel between processes.
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[DtoolkitError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class RankError(DtoolkitError):
    """A rank raised inside a launch.

    Attributes
    ----------
    rank : int
        The rank whose exception came first.
    address : str
        Address of its Dask worker.
    operation : str
        What the rank was doing: the user's function, or the communicator's operation.
    cause : str
        Type and text of the remote exception.
    traceback : str
        The remote traceback, as text.
    """

    def __init__(
        self, *, rank: int, address: str, operation: str, cause: str, traceback: str
    ) -> None:
        self.rank = rank
        self.address = address
        self.operation = operation
        self.cause = cause
        self.traceback = traceback
        super().__init__(
            f"rank {rank} ({address}) raised in {operation}: {cause}\n"
            f"--- traceback of rank {rank} ---\n{traceback.rstrip()}\n"
            "The other ranks were stopped and the cluster is usable: mend the function and run it "
            "again."
        )


class WorkerLost(DtoolkitError):
    """The process behind a rank ended, or its connection broke, inside a launch.

    Attributes
    ----------
    rank : int
        The first rank that was lost.
    ranks : tuple of int
        All ranks known to be lost when the error was raised.
    address : str
        Address of the first lost worker.
    operation : str
        What was running.
    hung : tuple of int
        Those of the ranks that gave no sign of life, and whose processes were ended for that.
    """

    def __init__(
        self,
        *,
        ranks: Sequence[int],
        addresses: Sequence[str],
        operation: str,
        detail: str = "",
        hung: Sequence[int] = (),
    ) -> None:
        self.ranks = tuple(ranks)
        self.hung = tuple(hung)
        self.rank = self.ranks[0]
        self.address = addresses[0]
        self.operation = operation
        who = ", ".join(f"rank {r} ({a})" for r, a in zip(ranks, addresses, strict=True))
        super().__init__(
            f"{who} was lost while {operation} ran{': ' + detail if detail else ''}. The other "
            "ranks were stopped. The next launch waits for a replacement (a local cluster starts "
            "one by itself) and re-forms the group; shards that a distributed array can make "
            "again from its source are made again."
        )


class LaunchTimeout(DtoolkitError, TimeoutError):
    """A launch did not end before its deadline.

    Attributes
    ----------
    ranks : tuple of int
        The ranks that had not answered; empty where the launch had not begun.
    timeout : float
        The deadline, in seconds.
    """

    def __init__(
        self,
        *,
        ranks: Sequence[int],
        addresses: Sequence[str],
        timeout: float,
        operation: str,
        detail: str = "",
    ) -> None:
        self.ranks = tuple(ranks)
        self.timeout = timeout
        self.operation = operation
        who = ", ".join(f"{r} ({a})" for r, a in zip(ranks, addresses, strict=True))
        why = detail or (
            f"no answer from rank(s) {who}. They are slow, stopped, or wait for a message that "
            "nobody sends. All ranks were told to stop; a worker that does not answer the next "
            "launch is replaced"
        )
        super().__init__(
            f"{operation} did not end within {timeout:g} s: {why}. Pass timeout= to wait longer."
        )


class LaunchCancelled(DtoolkitError):
    """The launch was cancelled by its owner before it ended."""


class ClusterTooSmall(DtoolkitError):
    """Fewer workers are there than the launch needs, and none came in time."""


class ClusterClosed(DtoolkitError):
    """The cluster was closed; nothing can run on it any more."""


class VersionMismatch(DtoolkitError):
    """Workers run another Python, torch or dtoolkit than the client."""


class CommunicationError(DtoolkitError):
    """An operation of the communicator failed because a connection broke."""


class MessageMismatch(DtoolkitError, ValueError):
    """Two ranks do not agree on what they exchange: operation, dtype or number of elements."""


class PeerLost(DtoolkitError):
    """Raised inside an elastic launch on the survivors when a rank is gone.

    Locals are intact; ``ctx.rebuild()`` gives the next communicator.

    Attributes
    ----------
    ranks : tuple of int
        The lost ranks, numbered as before the loss; empty if they are not known yet, or if nobody
        is lost and a connection between two ranks broke.
    hung : tuple of int
        Those of them that gave no sign of life, and whose processes were ended for that.
    """

    def __init__(
        self, ranks: Sequence[int] = (), detail: str = "", hung: Sequence[int] = ()
    ) -> None:
        self.ranks = tuple(ranks)
        self.hung = tuple(hung)
        who = f"rank(s) {', '.join(map(str, self.ranks))}" if self.ranks else "a rank"
        super().__init__(
            f"{who} left the group{': ' + detail if detail else ''}. Call ctx.rebuild() for the "
            "next communicator."
        )


class ReplicaMismatch(DtoolkitError):
    """Ranks that must hold the same state do not.

    Attributes
    ----------
    fields : tuple of str
        What differs, such as ``"model.0.weight"`` or ``"optimizer.0.weight.exp_avg"``.
    ranks : tuple of int
        The ranks that hold something else than rank 0.
    step : int
        Steps that were done.
    """

    def __init__(self, *, fields: Sequence[str], ranks: Sequence[int], step: int) -> None:
        self.fields = tuple(fields)
        self.ranks = tuple(ranks)
        self.step = step
        shown = ", ".join(self.fields[:8])
        more = f" and {len(self.fields) - 8} more" if len(self.fields) > 8 else ""
        super().__init__(
            f"after {step} steps rank(s) {', '.join(map(str, ranks))} hold something else than "
            f"rank 0: {shown}{more}. Something in the task depends on the rank (a process id, the "
            "time, a branch, a device): what is random must come from torch's, NumPy's or Python's "
            "generator, which are seeded alike on all ranks. With a strategy of your own: its step "
            "did not bring the ranks together, or it should say replicated = False and have a "
            "reconcile"
        )


class WipeOut(DtoolkitError):
    """Too much is lost for a training run to go on from what its workers hold.

    Attributes
    ----------
    step : int
        Steps that were done.
    why : str
        What is missing, in words.
    """

    def __init__(self, *, step: int, why: str) -> None:
        self.step = step
        self.why = why
        super().__init__(
            f"after {step} steps the run cannot go on from what its workers hold: {why}. It goes "
            "on from its last checkpoint where recovery= has one: give checkpoint="
        )


class ShardLost(DtoolkitError):
    """A shard was on a worker that is gone, and its array does not know how to make it again."""


class MissingPackage(DtoolkitError, ImportError):
    """An optional package is not installed.

    Attributes
    ----------
    package : str
        Name of the module that could not be imported.
    extra : str
        The extra of dtoolkit that brings it.
    """

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f'{purpose} needs {package}, which is not installed: pip install "dtoolkit[{extra}]"'
        )


class LayoutError(DtoolkitError, ValueError):
    """Two operands, or an operand and a plan, are laid out in ways that do not fit."""


class PlanError(DtoolkitError, ValueError):
    """A plan cannot be made from these arguments, or does not belong to this matrix."""


class MatrixFormatError(DtoolkitError, ValueError):
    """A file or object is not a matrix that can be read.

    Attributes
    ----------
    path : str
        The file, or what stood in for it.
    line : int or None
        Line of the fault, counted from 1; None where the format has no lines.
    fault : str
        What is wrong.
    """

    def __init__(self, path: str, fault: str, line: int | None = None) -> None:
        self.path = path
        self.line = line
        self.fault = fault
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {fault}")
