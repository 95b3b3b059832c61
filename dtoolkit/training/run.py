"""What training gives back: how it went, and where to go on."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dtoolkit.comm.trace import Trace
from dtoolkit.training.records import WORKER_COLUMNS
from dtoolkit.training.recovery.report import RecoveryReport
from dtoolkit.training.runfile import run_of, run_parts
from dtoolkit.training.state import RunState
from dtoolkit.training.statefile import read_parts, write_parts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run"]


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A training run that has ended, or was stopped (measured).

    Attributes
    ----------
    task : str
        Name of the task.
    state : RunState
        Where it ended: ``dt.train(..., resume=run)`` goes on from there.
    history : DataFrame
        A row a step of this call: ``step`` and ``epoch``, from 0; ``loss``, the mean over the
        samples that were used; ``samples``, which were used, and ``dropped``, which were not;
        ``seconds``; ``throughput`` in samples a second; ``idle``, seconds that a rank waited for
        others, the mean over ranks; ``staleness``, the largest; ``bytes`` sent by all ranks; ``lr``
        of the optimizer's first group; ``test_loss`` and ``test_<metric>`` of the one model of all
        ranks, after the step, NaN where it was not evaluated; and for each worker
        ``loss_<rank>``, ``samples_<rank>``, ``compute_<rank>``, ``idle_<rank>``,
        ``staleness_<rank>``, ``local_steps_<rank>``, ``seconds_<rank>``, ``throughput_<rank>`` and
        ``end_<rank>``, seconds from the beginning of the run to the end of the worker's step. Where
        ranks run free, a row is the step of that number of each rank. Further columns are the
        strategy's.
    trace : Trace
        What the ranks sent; empty in a checkpoint.
    settings : dict
        Strategy, workers, steps, seed and the rest, as plain values.
    summary : dict
        What the strategy says of itself.
    faults : list of str
        What went wrong on purpose.
    recoveries : RecoveryReport
        What went wrong, and how the run went on.
    seconds : float
        Time on the workers, from the first step to the end, evaluation and checkpoints included.
    citation : str
        What to cite for the task.
    """

    task: str
    state: RunState
    history: pd.DataFrame
    trace: Trace
    settings: dict[str, Any]
    summary: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    recoveries: RecoveryReport = field(default_factory=RecoveryReport)
    seconds: float = 0.0
    citation: str = ""

    def __post_init__(self) -> None:
        of_this = RecoveryReport(
            self.recoveries,
            policy=str(self.settings.get("recovery", "")),
            state=self.state,
            never_fired=getattr(self.recoveries, "never_fired", ()),
        )
        object.__setattr__(self, "recoveries", of_this)

    @property
    def stopped(self) -> bool:
        """Whether it ended before its last step."""
        return self.state.step < int(self.settings["steps"])

    def by_worker(self) -> pd.DataFrame:
        """The history by worker.

        Returns
        -------
        DataFrame
            A row a step and worker: ``step``, ``worker``, and the columns that the history has for
            each worker.
        """
        import pandas as pd

        workers = int(self.settings["workers"])
        names = [n for n in WORKER_COLUMNS if f"{n}_0" in self.history]
        own = {n.rpartition("_")[0] for n in self.history if n.endswith("_0")}
        names += sorted(own - set(names))
        parts = [
            pd.DataFrame(
                {
                    "step": self.history["step"],
                    "worker": rank,
                    **{name: self.history[f"{name}_{rank}"] for name in names},
                }
            )
            for rank in range(workers)
        ]
        table = pd.concat(parts, ignore_index=True)
        return table.sort_values(["step", "worker"], ignore_index=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run to one file; an existing one is replaced once the new one is complete.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        parts = run_parts(
            state=self.state,
            history=self.history,
            task=self.task,
            settings=self.settings,
            summary=self.summary,
            seconds=self.seconds,
            citation=self.citation,
            faults=self.faults,
            recoveries=self.recoveries.as_list(),
            never_fired=self.recoveries.never_fired,
            trace=self.trace,
        )
        write_parts(path, parts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Read a run that :meth:`save` wrote, or a checkpoint.

        Nothing in the file is run.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        ValueError
            It holds something else, is of a newer version, or is damaged; the text says which.
        """
        return cls(**run_of(read_parts(path), os.fspath(path)))

    def cite(self) -> str:
        """Sources of strategy and task, as text."""
        found = [str(self.settings.get("citation", "")), self.citation]
        return "\n".join(line for line in found if line)

    @property
    def heading(self) -> str:
        """What was trained how, in a line."""
        workers = int(self.settings["workers"])
        ranks = f"{workers} worker{'' if workers == 1 else 's'}"
        return f"{self.task} by {self.settings['strategy']} on {ranks} (measured)"

    def facts(self) -> list[tuple[str, str]]:
        """Names and values that text and card show."""
        history = self.history
        facts = [("steps", self._steps())]
        if len(history):
            ends = f"{history['loss'].iloc[0]:.4f} to {history['loss'].iloc[-1]:.4f}"
            facts.append(("loss", ends))
            facts += [(_words(n), f"{value:.4f}") for n, value in self.scores().items()]
            rate = history["samples"].sum() / max(float(history["seconds"].sum()), 1e-9)
            idle = history["idle"].sum() / max(float(history["seconds"].sum()), 1e-9)
            facts.append(("samples", f"{int(history['samples'].sum()):,}, {rate:,.0f} a second"))
            if (history["dropped"] != 0).any():
                facts.append(("dropped", f"{int(history['dropped'].sum()):,} samples"))
            facts.append(("idle", f"{idle:.1%} of the time"))
            if (history["staleness"] > 0).any():
                facts.append(("staleness", f"at most {int(history['staleness'].max())}"))
            facts.append(("sent", f"{int(history['bytes'].sum()):,} bytes"))
        facts += [(_words(name), _shown(value)) for name, value in self.summary.items()]
        facts += [("fault", text) for text in self.faults]
        facts += [("recovery", str(one)) for one in self.recoveries]
        facts += [("never fired", text) for text in self.recoveries.never_fired]
        return [*facts, ("state", f"{self.state.digest()[:12]}, {self.state.nbytes:,} bytes")]

    def scores(self) -> dict[str, float]:
        """The last evaluation; empty where there was none."""
        names = [n for n in self.history.columns if n.startswith("test_")]
        last = self.history[names].dropna(how="all").tail(1)
        return {n: float(last[n].iloc[0]) for n in names} if len(last) else {}

    def _steps(self) -> str:
        text = f"{self.state.step:,} of {int(self.settings['steps']):,}"
        if len(self.history) and (first := int(self.history["step"].iloc[0])):
            text += f", from step {first:,} on"
        return f"{text}, in {self.seconds:.1f} s"

    def __repr__(self) -> str:
        lines = [f"  {name:<19} {value}" for name, value in self.facts()]
        return "\n".join([self.heading, *lines])

    def _repr_html_(self) -> str:
        from dtoolkit.figures.training import training_card

        return training_card(self)


def _words(name: str) -> str:
    return str(name).replace("_", " ")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
