"""Accuracy on Cora over seeds: ``python -m tests.benchmarks.cora``.

The published GCN (Kipf and Welling, ICLR 2017) reaches 81.5% on the test nodes, the mean over 100
runs. Trained here with the same sizes and settings, whole graph in every step, no early stop; what
is told is the accuracy after the last epoch. GraphSAGE is told for comparison; its authors report
no figure for this split.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np

import dtoolkit as dt
from dtoolkit.graph import train_full_batch
from tests.benchmarks.common import Check, machine, table, verdict

PUBLISHED = 81.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["gcn", "sage"])
    chosen = parser.parse_args()
    root = os.environ.get("DTOOLKIT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")
    cora = dt.data.planetoid("cora", root=root)
    print(machine())
    rows, means = [], {}
    with dt.Cluster(workers=chosen.workers, device="cpu") as cluster:
        for model in chosen.models:
            runs = [train_full_batch(cluster, cora, model, seed=s) for s in range(chosen.seeds)]
            found = {
                split: np.array([100 * run.accuracy[split] for run in runs])
                for split in ("val", "test")
            }
            means[model] = found["test"].mean()
            rows.append(
                (
                    model,
                    *(f"{a.mean():.2f} ± {a.std():.2f}" for a in found.values()),
                    " ".join(f"{a:.1f}" for a in found["test"]),
                )
            )
    print(table(rows, ("model", "val %", "test %", "by seed")))
    if "gcn" not in means:
        return 0
    distance = abs(means["gcn"] - PUBLISHED)
    return verdict([Check(f"points between GCN and {PUBLISHED}%", distance, 1.0)])


if __name__ == "__main__":
    sys.exit(main())
