"""All shapes of SLIDE, subnetworks and asynchronous pipelines, over three seeds, in one command.

``python -m tests.training.shapes [--quick]`` runs :mod:`tests.training.slide.shapes`,
:mod:`tests.training.subnetwork_shapes` and :mod:`tests.benchmarks.asyncmesh_shape` one after the
other, each with a table of its own, and exits 1 where any of them misses a must. About 15 minutes.
"""

from __future__ import annotations

import subprocess
import sys

PARTS = (
    "tests.training.slide.shapes",
    "tests.training.subnetwork_shapes",
    "tests.benchmarks.asyncmesh_shape",
)


def main() -> int:
    """Run all of them with the same options; the number of those that missed something."""
    missed = 0
    for module in PARTS:
        print(f"\n== {module}", flush=True)
        missed += subprocess.run([sys.executable, "-m", module, *sys.argv[1:]]).returncode != 0
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
