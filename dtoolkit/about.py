"""What this process stands on: versions, cores, memory, GPUs; and what its processes take."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Environment", "Package", "environment", "processes", "proportional"]

ENOUGH = 1.5e9
"""Bytes within which each notebook of the course stays, kernel and workers together."""

_EXTRAS = {"": "everything", "lab": "panels and notebooks", "partition": "partitioners"}


@dataclass(frozen=True)
class Package:
    """A package that dtoolkit asks for.

    Attributes
    ----------
    name : str
    installed, needed : str
        Version that is there, empty if there is none; the least that will do.
    extra : str
        The extra of dtoolkit that brings it; empty for what is always needed.
    """

    name: str
    installed: str
    needed: str
    extra: str

    @property
    def good(self) -> bool:
        """Whether it is there, and new enough."""
        return bool(self.installed) and _numbers(self.installed) >= _numbers(self.needed)


@dataclass(frozen=True, repr=False)
class Environment:
    """What :func:`environment` found; shows itself as a card.

    Attributes
    ----------
    python, system : str
    packages : tuple of Package
    cores : float
        That this process may use; a container may have part of one.
    limit, free : int
        Bytes of memory that this process and its workers may use, and that are not in use.
    gpus : tuple of str
        CUDA devices that torch can use.
    """

    python: str
    system: str
    packages: tuple[Package, ...]
    cores: float
    limit: int
    free: int
    gpus: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What stands in the way of the course, and what to do; empty if nothing does."""
        found = []
        if sys.platform == "win32":
            found.append("Workers need Linux or macOS: use WSL2 on Windows.")
        for package in self.packages:
            if not package.good and package.extra in ("", "lab"):
                there = f"has {package.installed}" if package.installed else "is not installed"
                extra = f"[{package.extra}]" if package.extra else ""
                found.append(
                    f"{package.name} {there}, {package.needed} or newer is needed: "
                    f'pip install "dtoolkit{extra}"'
                )
        if self.free < ENOUGH:
            found.append(
                f"{self.free / 1e9:.1f} GB of memory are free, and a notebook of the course takes "
                f"up to {ENOUGH / 1e9:.1f}: shut down other kernels, or close other programs."
            )
        return tuple(found)

    @property
    def missing(self) -> tuple[str, ...]:
        """Optional packages that are not there, and without which the rest works."""
        return tuple(p.name for p in self.packages if not p.good and p.extra not in ("", "lab"))

    def __repr__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self.facts()]
        return "\n".join([*lines, *(self.problems or ["Ready: nothing stands in the way."])])

    def facts(self) -> list[tuple[str, str]]:
        """Names and values, in words."""
        return [
            ("Python", f"{self.python} on {self.system}"),
            ("cores", f"{self.cores:g}"),
            ("memory", f"{self.free / 1e9:.1f} GB free of {self.limit / 1e9:.1f} GB"),
            ("GPU", ", ".join(self.gpus) or "none: everything runs on the CPU"),
            *(
                (words, ", ".join(_said(p) for p in self.packages if p.extra == extra))
                for extra, words in _EXTRAS.items()
            ),
        ]

    def _repr_html_(self) -> str:
        from dtoolkit.figures import environment_card

        return environment_card(self)


def environment() -> Environment:
    """Look at what is installed and at what this machine, or this container, offers.

    Returns
    -------
    Environment

    Examples
    --------
    >>> dt.environment().problems  # doctest: +SKIP
    ()
    """
    import torch
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    cuda = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return Environment(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        packages=tuple(_packages(importlib.metadata.requires("dtoolkit") or ())),
        cores=CPU_COUNT,
        limit=MEMORY_LIMIT,
        free=_free(MEMORY_LIMIT),
        gpus=tuple(torch.cuda.get_device_name(i) for i in cuda),
    )


def processes() -> pd.DataFrame:
    """Say what this process, and each one that it has started, takes of the memory.

    Returns
    -------
    DataFrame
        Columns pid, process ("this kernel", "worker", "fork server", "helper"), bytes. On Linux
        that is the proportional set size, for which what several processes share is divided among
        them, so that the sum is what all take together; elsewhere the resident size, whose sum
        says too much.
    """
    import pandas as pd
    import psutil

    me = psutil.Process()
    rows = [(me.pid, "this kernel", proportional(me.pid))]
    servers = set()
    for one in me.children(recursive=True):
        try:
            words, parent = " ".join(one.cmdline()), one.ppid()
        except psutil.Error:  # gone since
            continue
        kind = "helper"
        if parent in servers or "spawn_main" in words:
            kind = "worker"
        elif "multiprocessing.forkserver" in words:
            kind = "fork server"
            servers.add(one.pid)
        rows.append((one.pid, kind, proportional(one.pid)))
    return pd.DataFrame(rows, columns=["pid", "process", "bytes"])


def proportional(pid: int) -> int:
    """Return the proportional set size of a process in bytes (see :func:`processes`).

    Parameters
    ----------
    pid : int

    Returns
    -------
    int
        0 for a process that is gone.
    """
    import psutil

    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _packages(requirements: Iterable[str]) -> list[Package]:
    """Read what dtoolkit asks for, and look up what is there."""
    found = []
    for line in requirements:
        match = re.match(r'([\w.-]+)\s*>=\s*([\d.]+)(?:.*extra\s*==\s*[\'"](\w+)[\'"])?', line)
        if match is None or (match[3] or "") not in _EXTRAS:
            continue
        try:
            there = importlib.metadata.version(match[1])
        except importlib.metadata.PackageNotFoundError:
            there = ""
        found.append(Package(match[1], there, match[2], match[3] or ""))
    return found


def _said(package: Package) -> str:
    if not package.installed:
        return f"{package.name} (not installed)"
    old = "" if package.good else f" (older than {package.needed})"
    return f"{package.name} {package.installed}{old}"


def _numbers(version: str) -> tuple[int, ...]:
    """Make versions comparable, by the numbers that they begin with; 2.13.0+cpu is (2, 13)."""
    begin = re.match(r"[\d.]*", version)
    numbers = [int(part) for part in (begin[0] if begin else "").split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _free(limit: int) -> int:
    """Bytes that can still be used: of the machine, and of the container if it limits them."""
    import psutil

    free = int(psutil.virtual_memory().available)
    used = _used_by_container()
    return min(free, limit if math.isnan(used) else max(0, limit - int(used)))


def _used_by_container(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes in use in this control group, without files that it can forget; NaN if none says so."""
    for usage, stat, key in (
        ("memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            used = int((root / usage).read_text())
            lines = (root / stat).read_text().splitlines()
        except (OSError, ValueError):
            continue
        forgotten = [int(line.split()[1]) for line in lines if line.split()[0] == key]
        return used - sum(forgotten)
    return math.nan
