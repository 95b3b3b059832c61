"""A study of small things, planned without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dtoolkit as dt
from dtoolkit.comm import Network
from dtoolkit.training.study import Measurement, Setting, StudyPlan, plan_study
from dtoolkit.training.study.plan import Place

NETWORK = Network.flat(64, bandwidth="1GB/s")
MODELLED: dict[str, Any] = {"device": "A100", "network": NETWORK}


def toy(**changes: Any) -> dt.training.Task:
    return dt.training.tasks.digits(**{"hidden": 16, "batch": 32, **changes})


def as_if_measured(**changes: Any) -> StudyPlan:
    """A plan whose settings of the least workers are to be measured, on workers that are not."""
    asked = {
        "workers": [1, 2],
        "stages": [0, 1],
        "micro_batches": [16],
        "learning_rates": [0.1, 0.2, 0.4, 0.8],
        "samples": 960,
        "eta": 2,
        **MODELLED,
        **changes,
    }
    plan = plan_study(None, toy(), **asked)
    entries = []
    for one in plan.entries:
        if one.setting.workers > 1:
            entries.append(one)
            continue
        entries += [
            replace(one, setting=replace(one.setting, learning_rate=rate), how="measured")
            for rate in asked["learning_rates"]
        ]
    return replace(plan, entries=tuple(entries), place=Place(1, None, "1 worker (cpu)"))


def gave(loss: float | None, *, samples: int = 240, error: str = "") -> Measurement:
    return Measurement(samples // 32, samples, loss, 1000.0 - samples, 10.0, 5e6, error=error)


def measured_by(
    losses: dict[float, float | None],
) -> Any:
    """What an oracle measures: the loss depends on the learning rate alone."""

    def measure(setting: Setting, share: float) -> Measurement:
        loss = losses[setting.learning_rate or 0.0]
        return gave(loss, samples=round(960 * share), error="" if loss is not None else "RankError")

    return measure
