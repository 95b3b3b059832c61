"""Where and how often the state of a run is written while it goes on."""

from __future__ import annotations

import operator
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from dtoolkit.training.statefile import check_target

__all__ = ["Checkpoint"]

_TIMES = 10  # checkpoints of a run that does not say how many


@dataclass(frozen=True)
class Checkpoint:
    """One file, replaced as a whole: it always holds a state that a run can go on from.

    Rank 0 writes it, on its machine, every so many steps, when the run is stopped, and at the end.

    Attributes
    ----------
    path : path
    every : int or None
        Steps between two checkpoints; None for ten in a run.

    Raises
    ------
    TypeError, ValueError
        `path` is no path, or `every` no positive integer.
    """

    path: str | os.PathLike[str]
    every: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise TypeError(f"checkpoint: path is {self.path!r}; wanted the path of a file")
        if self.every is None:
            return
        try:
            every = operator.index(self.every)
        except TypeError:
            every = 0
        if every < 1 or isinstance(self.every, bool):
            raise ValueError(f"checkpoint: every={self.every!r}; wanted an integer of at least 1")
        object.__setattr__(self, "every", every)

    @classmethod
    def of(cls, value: object) -> Checkpoint | None:
        """A checkpoint of what `checkpoint=` takes: None, a path, or a checkpoint."""
        if value is None or isinstance(value, Checkpoint):
            return value
        if isinstance(value, str | os.PathLike):
            return cls(value)
        raise TypeError(
            f"checkpoint is {type(value).__name__}; wanted a path or "
            "dtoolkit.training.Checkpoint(path, every=)"
        )

    def located(self, *, here: bool) -> Checkpoint:
        """The same with an absolute path; checked where the file will be written on this machine.

        Raises
        ------
        OSError
            The path is a folder, a device or the like, or nothing can be written beside it.
        """
        path = Path(self.path).expanduser().absolute()
        if here:
            _check_writable(path)
        return replace(self, path=str(path))

    def interval(self, steps: int) -> int:
        """Steps between two checkpoints of a run of so many steps."""
        return self.every or max(1, -(-steps // _TIMES))


def _check_writable(path: Path) -> None:
    try:
        check_target(path)
    except OSError as error:
        raise type(error)(f"checkpoint: {error}") from None
    try:  # permissions do not tell of a file system that is read-only, full, or no real one
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as file:
            file.write(b"0")
    except OSError as error:
        raise type(error)(
            f"checkpoint: nothing can be written in {path.parent} ({error.strerror})"
        ) from None
