"""The file that a run is started again from."""

from __future__ import annotations

import os
import secrets
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtoolkit.training.checkpoint import Checkpoint
from dtoolkit.training.statefile import read_parts

if TYPE_CHECKING:
    from dtoolkit.cluster import Cluster, Context
    from dtoolkit.training.loop import Job

__all__ = ["Kept", "kept_for"]


class Kept:
    """A checkpoint of this run, as the client reads it after something went wrong.

    Parameters
    ----------
    path : path
    folder : TemporaryDirectory, optional
        What the file lies in, where it is this run's alone: it goes with :meth:`close`.
    """

    def __init__(
        self, path: os.PathLike[str] | str, folder: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        self._path = Path(path)
        self._folder = folder
        self._before = self._signature()

    def read(self) -> dict[str, Any] | None:
        """The parts of the last checkpoint; None where this run has not written any.

        Raises
        ------
        ValueError
            The file is damaged.
        """
        if self._signature() in (None, self._before):  # an earlier run's is no place to go on from
            return None
        return read_parts(self._path)

    def close(self) -> None:
        """Remove what is this run's alone."""
        if self._folder is not None:
            self._folder.cleanup()

    def _signature(self) -> tuple[int, int, int] | None:
        """What tells one version of the file from another; None where there is none."""
        try:
            there = self._path.stat()
        except OSError:
            return None
        return there.st_ino, there.st_mtime_ns, there.st_size


def kept_for(cluster: Cluster, job: Job, *, needed: bool) -> tuple[Job, Kept | None]:
    """The job with a checkpoint that the client can read, and that checkpoint.

    The file is that of ``checkpoint=``, or a temporary one on this machine where the workers are
    here too.

    Parameters
    ----------
    cluster : Cluster
    job : Job
    needed : bool
        Without a file there is no recovery; else the run begins anew.

    Raises
    ------
    ValueError
        Workers and client do not see the same files.
    """
    if job.checkpoint is None and cluster.is_local:
        folder = tempfile.TemporaryDirectory(prefix="dtoolkit-run-", ignore_cleanup_errors=True)
        cluster.remove_at_end(folder.name)
        checkpoint = Checkpoint(Path(folder.name) / "run.pt").located(here=True)
        return replace(job, checkpoint=checkpoint), Kept(checkpoint.path, folder)
    if job.checkpoint is not None and (cluster.is_local or _shared(cluster, job.checkpoint)):
        return job, Kept(job.checkpoint.path)
    if not needed:
        return job, None
    if job.checkpoint is None:
        raise ValueError(
            "recovery='restart' needs checkpoint=: the workers are on other machines, so give it "
            "a path that they and this machine share"
        )
    raise ValueError(
        f"recovery='restart' reads the checkpoint here, and {os.fspath(job.checkpoint.path)} on "
        "the workers is another file than here, or no place to write: give checkpoint= a path "
        "that they and this machine share"
    )


def _shared(cluster: Cluster, checkpoint: Checkpoint) -> bool:
    """Whether all workers see a file that is made beside the checkpoint here."""
    target, word = Path(checkpoint.path), secrets.token_hex(16)
    try:
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=f".{target.name}.") as file:
            file.write(word)
            file.flush()
            return all(cluster.run(_reads, file.name, word))
    except OSError:
        return False


def _reads(ctx: Context, path: str, word: str) -> bool:
    try:
        return Path(path).read_text() == word
    except OSError:
        return False
