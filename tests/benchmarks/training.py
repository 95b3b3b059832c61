"""Training over workers: every figure of it, one part after the other.

``python -m tests.benchmarks.training [--quick]`` runs the parts, each of which can be run by itself
as well: data parallel against torch's DistributedDataParallel and what a step costs
(``tests.benchmarks.data_parallel``), DropCompute on workers with heavy-tailed delays
(``tests.benchmarks.dropcompute``), unequal workers (``tests.benchmarks.semi_synchronous``). It
exits 1 where any of them misses a must.
"""

from __future__ import annotations

import sys

from tests.benchmarks import data_parallel, dropcompute, semi_synchronous
from tests.benchmarks.common import options

PARTS = (data_parallel, dropcompute, semi_synchronous)


def main() -> int:
    """Run every part, and give the worst exit code."""
    options(__doc__)
    worst = 0
    for part in PARTS:
        print(f"--- {(part.__doc__ or '').splitlines()[0]}")
        worst = max(worst, part.main())
    return worst


if __name__ == "__main__":
    sys.exit(main())
