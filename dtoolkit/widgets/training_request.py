"""What TrainingPanel asks for: task, arguments and network from plain settings, and as Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dtoolkit.comm import Network
from dtoolkit.faults import Hang, Kill, Slow
from dtoolkit.training import tasks
from dtoolkit.training.recovery import POLICIES
from dtoolkit.training.strategies import STRATEGIES

__all__ = [
    "FAULTS",
    "GIVEN",
    "HUNG",
    "NETWORKS",
    "SPARSITY",
    "TASKS",
    "Request",
    "policies",
    "strategies",
]

GIVEN = "given"
"""Value of the choice that stands for the task that the panel was made with."""

TASKS = {
    "digits": "Handwritten digits, a perceptron",
    "text": "Source text, a small transformer",
    "logistic": "Few of many features, regression",
    "calls": "Library calls, very many classes",
}
"""Ready tasks: value to words."""

_CALLS: dict[str, str] = {
    "digits": "dt.training.tasks.digits()",
    "text": "dt.training.tasks.text(tied=False)",
    "logistic": "dt.training.tasks.sparse_logistic()",
    "calls": "dt.training.tasks.extreme(dt.data.called_names, tables=16, hashes=3, lr=0.003)",
    GIVEN: "task",
}

SPARSITY = {
    "none": "none",
    "static": "static random",
    "magnitude": "gradual magnitude",
    "set": "SET",
    "rigl": "RigL",
    "snip": "SNIP",
}
"""Methods: value to words."""

NETWORKS = {
    "none": "as it is",
    "fast": "emulated: 10 Gbit/s, 50 µs",
    "slow": "emulated: 100 Mbit/s, 1 ms",
    "own": "emulated: as below",
}

_WIRES = {"fast": ("10Gbit/s", "50us"), "slow": ("100Mbit/s", "1ms")}

FAULTS = {
    "none": "none",
    "slow": "one worker is slow (20 ms)",
    "kill": "one worker is killed half way",
    "hang": "one worker hangs half way",
}


HUNG = 3.0
"""Seconds without a sign of life after which a worker that hangs is ended."""


def strategies() -> dict[str, str]:
    """Value to words of all strategies."""
    return {name: name for name in STRATEGIES}


@dataclass(frozen=True)
class Request:
    """One training, as plain settings.

    Attributes
    ----------
    settings : mapping
        Of the panel's controls.
    given : Task or None
        What the panel was made with.
    """

    settings: Mapping[str, Any]
    given: Any = None

    def task(self) -> Any:
        """Make the task."""
        kind = self.settings["task"]
        if kind == GIVEN:
            return self.given
        makers: dict[str, Callable[[], Any]] = {
            "digits": tasks.digits,
            "text": lambda: tasks.text(tied=False),
            "logistic": tasks.sparse_logistic,
            "calls": _calls,
        }
        return makers[kind]()

    def arguments(self) -> dict[str, Any]:
        """Keywords of :func:`dtoolkit.train`; only what differs from its defaults."""
        s, made = self.settings, {}
        made["steps"], made["seed"] = s["steps"], s["seed"]
        if s["batch"]:
            made["batch"] = s["batch"]
        if s["compression"] != "none":
            made["compression"] = s["compression"]
        if s["sparsity"] != "none":
            made["sparsity"] = {"method": s["sparsity"], "density": s["density"] / 100}
        if s["evaluate_every"]:
            made["evaluate_every"] = s["evaluate_every"]
        fault = self._fault()
        if fault is not None:
            made["faults"] = [fault]
        if s["faults"] == "hang":
            made["deadline"] = HUNG
        if s["recovery"] != "abort":
            made["recovery"] = s["recovery"]
        return made

    def network(self) -> Network | None:
        """Make the network that messages are slowed down to; None for none."""
        wires = self._wires()
        if wires is None:
            return None
        return Network.flat(self.settings["workers"], bandwidth=wires[0], latency=wires[1])

    @property
    def name(self) -> str:
        """What tells it from others, in a few words."""
        s = self.settings
        parts = [s["strategy"]]
        if s["compression"] != "none":
            parts.append(s["compression"])
        if s["sparsity"] != "none":
            parts.append(f"{s['sparsity']} {s['density']}%")
        if s["network"] != "none":
            parts.append({"own": s["bandwidth"]}.get(s["network"], f"{s['network']} network"))
        if s["faults"] != "none":
            parts.append(s["faults"])
        return ", ".join(parts)

    def code(self, *, cluster_given: bool) -> str:
        """Python that trains the same."""
        s, wires = self.settings, self._wires()
        lines = ["import dtoolkit as dt", ""]
        if not cluster_given:
            more = ""
            if wires is not None:
                lines.append(
                    f"network = dt.comm.Network.flat({s['workers']}, bandwidth={wires[0]!r}, "
                    f"latency={wires[1]!r})"
                )
                more = ", emulate=network"
            lines.append(f"cluster = dt.Cluster(workers={s['workers']}{more})")
        if s["task"] != GIVEN:
            lines.append(f"task = {_CALLS[s['task']]}")
        arguments = "".join(
            f"    {name}={_written(value)},\n" for name, value in self.arguments().items()
        )
        lines.append(
            f"run = dt.train(\n    cluster,\n    task,\n    {s['strategy']!r},\n{arguments})"
        )
        lines.append("table = dt.figures.run_table([run])")
        if not cluster_given:
            lines.append("cluster.close()")
        lines.append("table  # a last line shows it in a notebook")
        return "\n".join(lines) + "\n"

    def _wires(self) -> tuple[str, str] | None:
        s = self.settings
        if s["network"] == "own":
            return s["bandwidth"], s["latency"]
        return _WIRES.get(s["network"])

    def _fault(self) -> Any:
        """Strikes the last worker; half way, where it strikes once."""
        s = self.settings
        rank, half = s["workers"] - 1, s["steps"] // 2
        if s["faults"] == "slow":
            return Slow(rank, seconds=0.02)
        if s["faults"] == "kill":
            return Kill(rank, at_step=half)
        return Hang(rank, at_step=half) if s["faults"] == "hang" else None


def policies() -> dict[str, str]:
    """Value to words of all policies of recovery."""
    words = {
        "abort": "end with an error",
        "restart": "restart from a checkpoint",
        "shrink": "go on with fewer",
        "replica": "go on until others join",
        "stacked": "stacks of shards (SPARe)",
    }
    return {name: words.get(name, name) for name in POLICIES}


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(f'dt.faults.{one!r}' for one in value)}]"
    return repr(value)


def _calls() -> Any:
    from dtoolkit.data import called_names

    return tasks.extreme(called_names, tables=16, hashes=3, lr=0.003)
