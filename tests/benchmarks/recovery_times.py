"""How soon a lost or hung worker is noticed, and how soon training goes on without it: measured.

Part of ``python -m tests.benchmarks.recovery``; four workers on this machine, a perceptron of 10
million parameters with Adam (a state of 120 MB), and a real signal in the middle of a run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.faults import Fault, Hang, Kill
from dtoolkit.training import Examples, Run, Task
from dtoolkit.training.recovery import Replica
from tests.benchmarks.common import Check, table

WORKERS, STEPS = 4, 8
DEADLINE = 2.0  # seconds without a sign of life
NOTICED, GOES_ON = 1.0, 5.0  # seconds at most, the deadline not counted

POLICIES: dict[str, Any] = {
    "restart": "restart",
    "shrink": "shrink",
    "replica": "replica",
    "replica that waits": Replica(patience=10.0),
    "stacked": "stacked",
}
SIGNALS: dict[str, Fault] = {"kill": Kill(2, at_step=4), "hang": Hang(2, at_step=4)}


def model() -> nn.Module:
    """10,005,000 parameters."""
    return nn.Sequential(nn.Linear(1000, 5000), nn.Tanh(), nn.Linear(5000, 999))


def task() -> Task:
    """64 samples, 16 a step."""
    generator = torch.Generator().manual_seed(0)
    examples = Examples(
        torch.randn(64, 1000, generator=generator), torch.arange(64, dtype=torch.int64)
    )
    made = partial(torch.optim.Adam, lr=1e-4)
    return Task.of(model, examples, "cross-entropy", optimizer=made, batch=16)


def measured(*, quick: bool) -> list[Check]:
    """Train under a kill and a hang with each policy, print what it took, and hold it to bounds."""
    policies = {"replica that waits": POLICIES["replica that waits"]} if quick else POLICIES
    rows, noticed, went_on, wrong = [], 0.0, 0.0, 0
    with dt.Cluster(workers=WORKERS, device="cpu", timeout=120) as cluster:
        whole = dt.train(cluster, task(), steps=STEPS)
        for name, policy in policies.items():
            for signal, fault in SIGNALS.items():
                run = dt.train(
                    cluster, task(), steps=STEPS, recovery=policy, faults=[fault],
                    deadline=DEADLINE,
                )  # fmt: skip
                entry = run.recoveries[0]
                assert entry.detection is not None
                assert entry.recovery is not None
                waited = DEADLINE if signal == "hang" else 0.0
                noticed = max(noticed, entry.detection - waited)
                went_on = max(went_on, entry.recovery)
                wrong += run.state.differs_from(whole.state) != []
                rows.append((name, signal, *_figures(run)))
    print(f"measured: {WORKERS} workers, state of {whole.state.nbytes / 1e6:.0f} MB, deadline 2 s")
    print(table(rows, ("policy", "signal", "noticed", "went on", "steps lost", "moved")))
    return [
        Check("seconds to notice a kill, or a hang after its deadline", noticed, NOTICED),
        Check("seconds to go on, 10 M parameters with Adam", went_on, GOES_ON),
        Check("runs that ended with other parameters", wrong, 0),
    ]


def _figures(run: Run) -> tuple[str, ...]:
    entry = run.recoveries[0]
    return (
        f"{entry.detection:.3f} s",
        f"{entry.recovery:.3f} s",
        f"{entry.steps_lost}",
        f"{entry.bytes_moved / 1e6:.0f} MB",
    )
