"""A small process that ends workers which outlive their kernel.

It reads process ids from its standard input, a pipe that only the kernel holds. When the pipe
closes, because the kernel ended in whatever way, every registered process that still runs is
killed: stopped ones too, which watch nobody. Temporary folders, which are registered by their
absolute paths, are removed after that; one behind a "?" only if the kernel has not said before
that it closes the pipe in good order, for then it may go on. Run as a script without site packages,
so that it starts in a few milliseconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

GOOD_ORDER = "good order"
"""What the kernel says before it closes the pipe and lives on."""


def started(pid: int) -> str:
    """When a process started, in the system's own words; empty if there is none.

    A process id is used again by the system; together with its start it is unique.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass
    if os.path.isdir("/proc/self"):
        return ""
    shown = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()


def main() -> None:
    """Register until the pipe closes, then kill what is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    known: dict[int, str] = {}
    folders, in_use = [], []
    for line in map(str.strip, sys.stdin):
        if os.path.isabs(line):
            folders.append(line)
            continue
        if line.startswith("?"):
            in_use.append(line[1:])
            continue
        if line == GOOD_ORDER:
            in_use.clear()
            continue
        pid = int(line)
        known[pid] = started(pid)
    for pid, start in known.items():
        if start and started(pid) == start:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    for folder in folders + in_use:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
