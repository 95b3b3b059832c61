"""The source text of the running interpreter's standard library, parsed and never imported."""

from __future__ import annotations

import ast
import os
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LEFT_OUT", "Function", "called_name", "stdlib_trees"]

# Tests, what users install, and two applications that carry copies of other modules' code.
LEFT_OUT = {
    *("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"),
    *("idlelib", "lib2to3"),
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def stdlib_trees() -> Iterator[tuple[str, ast.Module]]:
    """Parse each file of the standard library, one after the other.

    Yields
    ------
    path : str
        From the library's folder, with forward slashes; paths ascend.
    tree : ast.Module

    Raises
    ------
    FileNotFoundError
        If the interpreter comes without the sources of its standard library.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found = False
    for path in sorted(_sources(root), key=lambda path: path.relative_to(root).as_posix()):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # kept in the library as an example of what does not parse
        found = True
        yield path.relative_to(root).as_posix(), tree
    if not found:
        raise FileNotFoundError(
            f"no sources of the standard library under {root}: this interpreter comes without them"
        )


def called_name(call: ast.Call) -> str | None:
    """The name that a call calls: ``name`` of ``name()`` and of ``x.name()``; None of others."""
    called = call.func
    if isinstance(called, ast.Name):
        return called.id
    return called.attr if isinstance(called, ast.Attribute) else None


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))
