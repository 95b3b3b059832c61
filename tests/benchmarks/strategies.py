"""All strategies on one task, over a fast and over a slow network: time, bytes, memory, loss.

``python -m tests.benchmarks.strategies [--quick] [--save]`` trains a byte-level language model on 4
real workers with every strategy, on as many samples each, and exits 1 where a must is missed. The
networks are emulated: messages are real, and are held back until the network would have delivered
them. D-SLIDE, which is for output layers of very many classes, has a task of its own, beside dense
data parallel. ``--save`` writes the table and the picture of the README to ``notebooks/images``.

Time is that of the steps, without evaluation. Bytes are what a
worker has sent in a step. Memory is what a worker's process took at most above what it had before
(Linux), the worker with most. All of it is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dtoolkit as dt
from dtoolkit.comm import Network
from dtoolkit.training import tasks
from dtoolkit.training.strategies import STRATEGIES, AsyncMesh, Zero
from dtoolkit.training.study.memory import PeakMemory
from tests.benchmarks.common import Check, machine, table, verdict
from tests.benchmarks.strategies_picture import save_picture

WORKERS = 4
NETWORKS = {
    "fast": Network.flat(WORKERS, bandwidth="10Gbit/s", latency="50us"),
    "slow": Network.flat(WORKERS, bandwidth="100Mbit/s", latency="1ms"),
}
IMAGES = Path(__file__).parents[2] / "notebooks" / "images"
PROBE = 3  # steps that tell how many samples a strategy uses in one, and warm the workers
LOCK_STEP = "data-parallel"
HEAD = (
    "strategy", "samples", "loss, fast", "loss, slow", "s, fast", "s, slow", "samples/s, slow",
    "MB sent a step", "MB of memory",
)  # fmt: skip
MANY_HEAD = tuple(word.replace("loss", "precision") for word in HEAD)


@dataclass(frozen=True)
class Way:
    """A strategy with its settings."""

    name: str
    strategy: Any
    more: dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """What one run gave."""

    samples: int
    seconds: float
    rate: float
    loss: float
    sent: float
    memory: float
    precision: float  # of a task with very many classes; else NaN


@dataclass(frozen=True)
class Row:
    """A strategy over both networks."""

    name: str
    fast: Ran
    slow: Ran

    def cells(self, score: str = "loss") -> tuple[str, ...]:
        """The table's row; `score` is "loss" or "precision"."""
        return (
            self.name,
            f"{self.slow.samples:,}",
            f"{getattr(self.fast, score):.3f}",
            f"{getattr(self.slow, score):.3f}",
            f"{self.fast.seconds:.1f}",
            f"{self.slow.seconds:.1f}",
            f"{self.slow.rate:,.0f}",
            f"{self.fast.sent / 1e6:.3f}",
            f"{self.fast.memory / 1e6:.1f}",
        )


def language(quick: bool) -> Any:
    """A transformer that reads bytes, small enough for 4 workers on 2 cores."""
    width = 64 if quick else 128
    return tasks.text(width=width, layers=2, tied=False, batch=32, test_bytes=16_000)


def ways() -> Iterator[Way]:
    """All strategies that fit the common task, and some of their settings."""
    special = {"zero", "asyncmesh", "dslide"}
    for name in STRATEGIES:
        if name not in special:
            yield Way(name, name, {})
    yield Way(f"{LOCK_STEP}, top-k", LOCK_STEP, {"compression": "top-k"})
    for stage in (1, 2, 3):
        yield Way(f"zero, stage {stage}", Zero(stage=stage), {})
    yield Way("asyncmesh, 1 x 4", AsyncMesh(), {})
    yield Way("asyncmesh, 2 x 2", AsyncMesh(stages=2), {})


def extreme(quick: bool) -> tuple[Any, Any]:
    """Which functions the standard library's call, of very many: hashed, and in full."""
    data = dt.data.called_names()
    asked: dict[str, Any] = {"hidden": 64, "batch": 256, "test_samples": 300 if quick else 1000}
    hashed = tasks.extreme(data, tables=50, hashes=2, **asked)
    return hashed, tasks.extreme(data, output="full", **asked)


def measured(cluster: dt.Cluster, task: Any, way: Way, samples: int) -> Ran:
    """Train on so many samples, or the nearest number that whole steps use."""
    asked: dict[str, Any] = {"seed": 0, **way.more}
    probe = dt.train(cluster, task, way.strategy, steps=PROBE, **asked)
    each = probe.history["samples"].sum() / PROBE
    steps = max(PROBE, round(samples / each))
    watch = PeakMemory()
    with cluster.instrumented(watch):
        run = dt.train(cluster, task, way.strategy, steps=steps, **asked)
    cluster.trace.clear()
    history = run.history
    # Where workers run free, some have made more steps than others.
    seconds = float(np.nanmax(history[[f"end_{rank}" for rank in range(WORKERS)]].to_numpy(float)))
    used = int(history["samples"].sum())
    return Ran(
        samples=used,
        seconds=seconds,
        rate=used / seconds,
        loss=run.scores()["test_loss"],
        sent=float(history["bytes"].sum()) / len(history) / WORKERS,
        memory=float(watch.most or "nan"),
        precision=run.scores().get("test_precision", float("nan")),
    )


def compared(workers: dt.Cluster, tasked: list[tuple[Any, Way]], samples: int) -> list[Row]:
    """Every strategy over both networks, on the same workers."""
    found: dict[str, dict[str, Ran]] = {}
    for speed, network in NETWORKS.items():
        with dt.Cluster(client=workers.client, workers=WORKERS, emulate=network) as cluster:
            for task, way in tasked:
                found.setdefault(way.name, {})[speed] = measured(cluster, task, way, samples)
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [Row(name, ran["fast"], ran["slow"]) for name, ran in found.items()]


def must(rows: list[Row], many: list[Row]) -> list[Check]:
    """What has to hold on any machine."""
    of = {row.name: row for row in rows}
    plain = of[LOCK_STEP]
    used = [ran.samples / plain.slow.samples for row in rows for ran in (row.fast, row.slow)]
    checks = [
        Check("samples used, most over lock step", max(used), 1.15),
        Check("samples used, lock step over least", 1 / min(used), 1.15),
        Check(
            "loss of zero's stages, over lock step",
            max(of[f"zero, stage {stage}"].slow.loss for stage in (1, 2, 3)) / plain.slow.loss,
            1.001,
        ),
    ]
    for name in ("local-sgd", f"{LOCK_STEP}, top-k", "asyncmesh, 1 x 4"):
        ratio = of[name].slow.seconds / plain.slow.seconds
        checks.append(Check(f"seconds on the slow network, {name} over lock step", ratio, 0.7))
    if many:
        hashed, full = many
        ratio = hashed.slow.seconds / full.slow.seconds
        checks.append(Check("seconds on the slow network, dslide over lock step", ratio, 0.5))
    return checks


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller models, fewer samples")
    parser.add_argument("--save", action="store_true", help="write the README's table and picture")
    chosen = parser.parse_args(sys.argv[1:])
    samples = 256 if chosen.quick else 640
    print(machine())
    with dt.Cluster(workers=WORKERS, device="cpu") as workers:
        common = language(chosen.quick)
        rows = compared(workers, [(common, way) for way in ways()], samples)
        print(f"\nLanguage model\n{table([row.cells() for row in rows], HEAD)}", flush=True)
        many = []
        if "dslide" in STRATEGIES:
            hashed, full = extreme(chosen.quick)
            pairs = [(hashed, Way("dslide", "dslide", {})), (full, Way(LOCK_STEP, LOCK_STEP, {}))]
            many = compared(workers, pairs, 24 * samples)
            cells = [row.cells("precision") for row in many]
            print(f"\nVery many classes\n{table(cells, MANY_HEAD)}")
    if chosen.save:
        save(rows, many)
    return verdict(must(rows, many))


def save(rows: list[Row], many: list[Row]) -> None:
    """Write the table as Markdown, and the picture."""
    networks = "; ".join(f"{name}: {one.name}" for name, one in NETWORKS.items())
    text = [f"Measured on {machine()}; {WORKERS} workers; {networks}.", ""]
    for head, score, some in ((HEAD, "loss", rows), (MANY_HEAD, "precision", many)):
        text += ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
        text += ["| " + " | ".join(row.cells(score)) + " |" for row in some]
        text.append("")
    (IMAGES / "strategies.md").write_text("\n".join(text))
    save_picture(rows, IMAGES / "strategies.png")


if __name__ == "__main__":
    sys.exit(main())
