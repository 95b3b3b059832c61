"""What a person chooses in SpeedPanel: its controls and presets."""

from __future__ import annotations

from typing import Any

from dtoolkit.comm.units import seconds
from dtoolkit.faults.delays import Constant, Delay, Exponential, HeavyTail, LogNormal, Normal
from dtoolkit.training.dropstudy import Straggling
from dtoolkit.widgets.controls import Choice, Number, Text

__all__ = [
    "COUNTS",
    "OWN",
    "PRESETS",
    "REFERENCES",
    "delay",
    "groups",
    "presets",
    "work",
    "written",
]

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Numbers of workers that the curve is drawn through."""

OWN = "own"
"""Value of the choice that stands for a threshold by hand."""

DELAYS = {
    "heavy": "heavy tail",
    "normal": "normal",
    "lognormal": "log-normal",
    "exponential": "exponential",
    "constant": "constant",
}
THRESHOLDS = {
    "best": "the best, simulated",
    "rule": "the released rule",
    "formula": "by the formula",
    OWN: "by hand",
}
RULES = {"after": "after a micro-batch", "at": "at once (idealised)"}

PRESETS: dict[str, dict[str, Any]] = {
    "Heavy tail, 64 workers": {},
    "Normal times: the formula is right": {
        "delay": "normal", "mean": "10ms", "deviation": "3ms", "compute": "0s", "rule": "at",
    },
    "1,024 workers": {"workers": 1024},
    "Four workers, as many as are run": {"workers": 4},
    "By hand, too tight": {"choose": OWN, "threshold": "90ms"},
    "Log-normal: the longest tail": {"delay": "lognormal", "sigma": "1.5"},
    "Nobody is late: nothing to gain": {"delay": "constant"},
}  # fmt: skip
"""Name to settings that differ from the defaults; the first is the start."""

REFERENCES = {
    ("normal", "at"): {8: 1.063, 64: 1.138, 200: 1.171},
    ("heavy", "at"): {8: 1.125, 64: 1.273, 200: 1.346},
    ("normal", "after"): {8: 1.06, 64: 1.10, 200: 1.12},
    ("heavy", "after"): {8: 1.10, 64: 1.14, 200: 1.16},
}
"""Best speed-ups by workers: 12 micro-batches of normal or heavy-tailed times, 400 steps."""


def _positive(text: str, label: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{label}={text!r}: wanted a number such as 0.5") from None
    if not 0 <= number <= 5:
        raise ValueError(f"{label}={text!r}: wanted a number from 0 to 5")
    return number


def groups(ranks: int | None = None) -> list[tuple[str, list[Any]]]:
    """Return the controls, under their headings.

    Parameters
    ----------
    ranks : int, optional
        Of the cluster that the panel was given.
    """
    late = [
        Choice("delay", "Distribution", DELAYS, tip="Of a delay; heavy tail: sentence lengths"),
        Text("mean", "Mean delay", "5ms", seconds, tip="Of a micro-batch, as 5ms"),
        Text("deviation", "Deviation", "3ms", seconds, tip="Of the delay, as 3ms"),
        Text("sigma", "Sigma", "1.0", _positive, tip="Deviation of the delay's logarithm"),
        Text("compute", "Computing", "10ms", seconds, tip="Of a micro-batch without delay"),
        Number("seed", "Seed", 0, 0, 2**31 - 1, tip="Of the delays"),
    ]
    step = [
        Number("workers", "Workers", 64, 1, 1024, slide_from=1),
        Number("micro_batches", "Micro-batches", 12, 1, 64, tip="Of a worker in a step"),
        Text("overhead", "Overhead", "5ms", seconds, tip="All-reduce and update of a step"),
    ]
    drop = [
        Choice("choose", "Threshold", THRESHOLDS),
        Text("threshold", "By hand", "180ms", seconds, tip="Since the step began, as 180ms"),
        Choice("rule", "Workers stop", RULES, tip="Real ones look after a micro-batch"),
    ]
    real = [
        Number("ranks", "Workers to run", ranks or 4, 1, 64, tip="Real ones, for the Run button"),
        Number("steps", "Steps to run", 20, 4, 400, tip="Each with and without dropping"),
    ]
    return [
        ("Late workers", late),
        ("A step", step),
        ("DropCompute", drop),
        ("Run (measured)", real),
    ]


def presets(ranks: int | None) -> dict[str, dict[str, Any]]:
    """Return presets, the first for the cluster that the panel was given, if it was."""
    if ranks is None:
        return PRESETS
    return {"What the panel was given": {"workers": min(ranks, 1024)}, **PRESETS}


def delay(kind: str, mean: float, deviation: float, sigma: float) -> Delay:
    """Make the distribution of a name; of the last two the one counts that it has."""
    if kind == "normal":
        return Normal(mean, deviation)
    if kind == "lognormal":
        return LogNormal(mean, sigma)
    made: dict[str, Any] = {"heavy": HeavyTail, "exponential": Exponential, "constant": Constant}
    one: Delay = made[kind](mean)
    return one


def work(values: dict[str, Any]) -> Straggling:
    """Make what is simulated, of the controls' values with texts read.

    Raises
    ------
    ValueError
        In words, where a micro-batch would take no time.
    """
    drawn = delay(values["delay"], values["mean"], values["deviation"], values["sigma"])
    if values["compute"] == 0 and values["mean"] == 0:
        raise ValueError("a micro-batch takes no time: set Computing or Mean delay above 0")
    return Straggling(
        drawn, values["compute"], values["micro_batches"], values["overhead"], values["seed"]
    )


def written(one: Straggling) -> str:
    """Python that makes it, with ``dt`` and ``Straggling`` imported."""
    return (
        f"Straggling(\n    dt.faults.delays.{one.delay!r},\n    compute={one.compute!r},\n"
        f"    micro_batches={one.micro_batches},\n    overhead={one.overhead!r},\n"
        f"    seed={one.seed},\n)"
    )
