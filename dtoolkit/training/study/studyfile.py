"""The file of a study: what was measured so far, as JSON that is always whole."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from dtoolkit.training.statefile import check_target
from dtoolkit.training.study.plan import StudyPlan
from dtoolkit.training.study.setting import Setting
from dtoolkit.training.study.trials import Measurement

__all__ = ["read_study", "write_study"]

FORMAT = "dtoolkit study"
VERSION = 1

Measured = Mapping[tuple[Setting, int], Measurement]


def write_study(path: str | os.PathLike[str], plan: StudyPlan, measured: Measured) -> None:
    """Write what was measured; what was there before stays until the new file is complete.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    target = Path(path)
    check_target(target)
    content = {
        "study": plan.describe(),
        "trials": [
            {"setting": asdict(setting), "rung": rung, "measured": asdict(one)}
            for (setting, rung), one in measured.items()
        ],
    }
    header = {"format": FORMAT, "version": VERSION, "digest": _digest(content)}
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "w", encoding="utf-8") as file:
            json.dump({**header, **content}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def read_study(
    path: str | os.PathLike[str], plan: StudyPlan
) -> dict[tuple[Setting, int], Measurement]:
    """Read what a study has measured before; nothing where there is no file.

    What failed is not among it: it is tried again.

    Raises
    ------
    ValueError
        The file is of something else, of another study, of a newer version, damaged or cut short;
        the text says which, and what differs.
    OSError
        The place is no file, or has no folder.
    """
    name = os.fspath(path)
    check_target(Path(name))
    try:
        text = Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise ValueError(f"{name} holds something else than a study: it is no text") from None
    content = _content(name, text)
    _check_same(name, content["study"], json.loads(json.dumps(plan.describe())))
    return {
        (Setting(**one["setting"]), int(one["rung"])): Measurement(**one["measured"])
        for one in content["trials"]
        if not one["measured"]["error"]
    }


def _content(name: str, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{name} is no file of a study, is damaged, or is cut short ({error})"
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(
            f"{name} holds something else than a study: wanted a file of dt.study(file=)"
        )
    version = content.get("version")
    if type(version) is not int or version > VERSION:
        raise ValueError(
            f"{name} is of version {version!r} of the format, and this dtoolkit reads up to "
            f"{VERSION}: update dtoolkit"
        )
    body = {part: content.get(part) for part in ("study", "trials")}
    if _digest(body) != content.get("digest") or not _whole(body):
        raise ValueError(f"{name} is damaged: its content is not what was written")
    return body


def _whole(body: dict[str, Any]) -> bool:
    """Whether the content has the shape that a study's has."""
    names = {one.name for one in fields(Setting)}, {one.name for one in fields(Measurement)}
    return (
        isinstance(body["study"], dict)
        and isinstance(body["trials"], list)
        and all(
            (set(one["setting"]), set(one["measured"])) == names and type(one["rung"]) is int
            for one in body["trials"]
        )
    )


def _check_same(name: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse the file of another study, and say in what it differs."""
    apart = [part for part in now if before.get(part) != now[part]]
    if apart:
        words = "; ".join(f"{part} {_short(before.get(part))}" for part in apart[:3])
        raise ValueError(
            f"{name} is of another study, whose {words}: wanted the same arguments as then, or "
            "another file="
        )


def _short(value: Any) -> str:
    text = "is unknown" if value is None else f"was {json.dumps(value)}"
    return text if len(text) <= 90 else f"{text[:87]}..."


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
