"""D-SLIDE over a slow network: samples a second and precision, against dense data parallel.

``python -m tests.benchmarks.dslide [--quick]`` trains a network for 100,000 classes (hidden 128,
batch 256) on workers behind an emulated network of 1 Gb/s: by D-SLIDE with about 1,100 active
neurons a sample, and by data parallel with the full softmax, both for as many samples, in one run.
Then both on the names that the standard library calls. Computing is real, the network emulated:
every message is held back until it would have come. It exits 1 where a must is missed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial

import dtoolkit as dt
from dtoolkit.training import Run, tasks
from tests.benchmarks.common import Check, machine, options, table, verdict

WORKERS = 2
NETWORK = dt.comm.Network.flat(WORKERS, bandwidth="125MB/s", latency="50us")
CLASSES, FEATURES, HIDDEN, BATCH = 100_000, 20_000, 128, 256
WARM = 5  # steps that are not timed: compiled code is loaded in them
LAYER = {"tables": 50, "hashes": 4}


@dataclass(frozen=True)
class Setting:
    """A set, and for how long both learn from it."""

    name: str
    data: object
    steps: int
    lr: float
    layer: dict[str, object]
    test_samples: int


def settings(quick: bool) -> list[Setting]:
    """The planted set and the standard library's."""
    planted = partial(dt.data.extreme, CLASSES, FEATURES, 60_000, seed=0)
    return [
        Setting(f"planted, {CLASSES:,} classes", planted, 12 if quick else 180, 0.003, LAYER, 2000),
        Setting(
            "standard library's calls",
            dt.data.called_names(),
            40 if quick else 250,
            0.003,
            {"tables": 50, "hashes": 2},
            3000,
        ),
    ]


def trained(cluster: dt.Cluster, setting: Setting, *, full: bool) -> Run:
    """Learn by one of the two."""
    layer = {"output": "full"} if full else {"output": "slide", **setting.layer}
    task = tasks.extreme(
        setting.data,
        hidden=HIDDEN,
        batch=BATCH,
        lr=setting.lr,
        test_samples=setting.test_samples,
        **layer,
    )
    strategy = "data-parallel" if full else "dslide"
    return dt.train(cluster, task, strategy, steps=setting.steps, seed=0, timeout=None)


def seconds(run: Run) -> float:
    """Median seconds of a step."""
    return float(run.history["seconds"].iloc[WARM:].median())


def study(quick: bool) -> list[Check]:
    """Train, print, and say what must hold."""
    print(f"{WORKERS} workers; emulated: {NETWORK}; computing is real")
    rows, checks = [], []
    with dt.Cluster(workers=WORKERS, device="cpu", emulate=NETWORK) as cluster:
        for setting in settings(quick):
            runs = {full: trained(cluster, setting, full=full) for full in (False, True)}
            for full, run in runs.items():
                rows.append(
                    (
                        setting.name,
                        "data parallel, all classes" if full else "D-SLIDE",
                        f"{1e3 * seconds(run):.1f}",
                        f"{BATCH / seconds(run):,.0f}",
                        f"{run.history['bytes'].iloc[0] / WORKERS:,.0f}",
                        "all" if full else f"{run.summary['active'] * WORKERS:,.0f}",
                        f"{100 * run.history['test_precision'].iloc[-1]:.1f}",
                    )
                )
            ratio = seconds(runs[False]) / seconds(runs[True])
            if setting.name.startswith("planted"):
                checks.append(
                    Check("seconds of a step, D-SLIDE over data parallel", ratio, 0.1, 0.05)
                )
            lost = [100 * run.history["test_precision"].iloc[-1] for run in runs.values()]
            if not quick:
                name = f"points of precision@1 that D-SLIDE lacks, {setting.name}"
                checks.append(Check(name, lost[1] - lost[0], 2.0))
    head = (
        "set", "strategy", "ms a step", "samples a second", "bytes a worker and step", "active",
        "precision@1, %",
    )  # fmt: skip
    print(table(rows, head))
    return checks


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    print(machine())
    return verdict(study(chosen.quick))


if __name__ == "__main__":
    sys.exit(main())
