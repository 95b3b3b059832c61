"""Files of training: a dict of plain content in torch's format, read without running its content.

One file is a header and parts. Every file has a state; a saved run has history, settings and more
beside it. A file is written under another name, brought to the disk, and renamed: what is there
under its own name is always whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from dtoolkit.training.plain import digest_of
from dtoolkit.training.state import RunState

__all__ = [
    "check_target",
    "read_parts",
    "read_state",
    "state_of",
    "state_part",
    "write_parts",
    "write_state",
]

FORMAT = "dtoolkit training"
VERSION = 3
_ADDED = {"terms": 2, "sparsity": 3}  # since which version a state has it


def write_state(path: str | os.PathLike[str], state: RunState) -> None:
    """Write a state alone."""
    write_parts(path, {"state": state_part(state)})


def read_state(path: str | os.PathLike[str]) -> RunState:
    """Read the state of any file of training; see :meth:`RunState.load`."""
    return state_of(read_parts(path), path)


def write_parts(path: str | os.PathLike[str], parts: Mapping[str, Any]) -> None:
    """Write a file of named parts of plain content.

    Raises
    ------
    OSError
        The file cannot be written; what was there before stays.
    """
    target = Path(path)
    check_target(target)
    _remove_stale(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    header = {"format": FORMAT, "version": VERSION, "digest": digest_of(parts)}
    try:
        with open(partial, "wb") as file:
            torch.save({**header, "parts": dict(parts)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(target.parent)


def check_target(target: Path) -> None:
    """Refuse a place where no file can be written: nothing but a regular file is ever replaced.

    Raises
    ------
    OSError
        It is a folder, a device or the like, or there is no folder to write it in.
    """
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: name a file in it")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{target} is no regular file, and is not replaced: name another")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}: make it first")


def read_parts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file of :func:`write_parts`.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is none of training, of a newer version, damaged or cut short.
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        raise ValueError(f"{name} is a folder: name a file in it")
    content = _content(name)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(
            f"{name} holds something else than a training run: wanted a file of run.save, "
            "checkpoint= or RunState.save"
        )
    version = content.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ValueError(
            f"{name} is of version {version} of the format, and this dtoolkit reads up to "
            f"{VERSION}: update dtoolkit"
        )
    parts = content.get("parts")
    if not isinstance(parts, dict) or digest_of(parts) != content.get("digest"):
        raise ValueError(f"{name} is damaged: its content is not what was written")
    state = parts.get("state")
    if isinstance(state, dict):
        for name, since in _ADDED.items():
            if version < since:  # without terms to look at alone: resume= refuses it
                state.setdefault(name, {})
    return parts


def state_part(state: RunState) -> dict[str, Any]:
    """A state as plain content."""
    return {one.name: getattr(state, one.name) for one in fields(state)}


def state_of(parts: Mapping[str, Any], path: str | os.PathLike[str]) -> RunState:
    """The state in the parts of a file.

    Raises
    ------
    ValueError
        There is none, or it lacks something.
    """
    part = parts.get("state")
    names = {one.name for one in fields(RunState)}
    if not isinstance(part, dict) or set(part) != names:
        lacking = "no state" if not isinstance(part, dict) else f"no {sorted(names - set(part))}"
        raise ValueError(f"{os.fspath(path)} holds {lacking}: it is no run that can go on")
    return RunState(**{**part, "own": tuple(part["own"])})


def _content(name: str) -> Any:
    try:
        return torch.load(name, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {name}") from None
    except PermissionError:
        raise
    except Exception as error:  # whatever reading something else comes upon
        raise ValueError(
            f"{name} is no file of a training run, is damaged, or is cut short "
            f"({_first_line(error)})"
        ) from None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


def _remove_stale(target: Path) -> None:
    """Remove what processes left that ended while they wrote; those that live may be writing."""
    before, after = f".{target.name}.", ".partial"
    for name in os.listdir(target.parent):
        number = name.removeprefix(before).removesuffix(after)
        if name == before + number + after and number.isdecimal() and not _lives(int(number)):
            (target.parent / name).unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it is another person's
    return True


def _sync_folder(folder: Path) -> None:
    """Bring a rename to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
