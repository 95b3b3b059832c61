"""What a study found: one table, and the best of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dtoolkit.comm.amounts import bytes_text, count_text, plural
from dtoolkit.comm.units import size
from dtoolkit.training.study.plan import Planned, StudyPlan
from dtoolkit.training.study.setting import Setting
from dtoolkit.training.study.trials import Measurement, verdicts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "Study"]

COLUMNS = (
    *(one.name for one in fields(Setting)),
    "parameters",
    "accumulate",
    "source",
    "outcome",
    "why",
    "steps",
    "samples",
    "loss",
    "samples_per_second",
    "bytes_per_step",
    "memory",
    "state",
    "fits",
)

_DONE = ("finished", "modelled")


@dataclass(frozen=True, repr=False)
class Study:
    """What a study found.

    Attributes
    ----------
    plan : StudyPlan
    measured : mapping
        What each trial gave, by setting and round of the funnel.
    """

    plan: StudyPlan
    measured: Mapping[tuple[Setting, int], Measurement]

    @cached_property
    def results(self) -> pd.DataFrame:
        """One row a setting that was measured or modelled.

        Returns
        -------
        DataFrame
            ``model``, ``workers``, ``strategy``, ``stage``, ``batch``, ``micro_batch``,
            ``learning_rate``, ``scaling`` as of :class:`Setting`; ``parameters``; ``accumulate``,
            micro-batches of a worker in a step; ``source``, "measured" or "modelled"; ``outcome``:
            "finished", "stopped" by the funnel, "failed", "open" where the study has not come to
            it, or "modelled"; ``why``, in words; ``steps`` and ``samples`` that it was trained
            with; ``loss``; ``samples_per_second`` of all workers; ``bytes_per_step`` that a worker
            sends; ``memory``, bytes a worker: measured, what its process took above what it had
            before; ``state``, bytes of it that are weights, gradients and the optimizer's state,
            as the strategy counts them or by the formula; ``fits``, whether `memory` is within the
            limits. What is not known is NaN: a loss is never modelled.
        """
        import pandas as pd

        stopped = self._stopped()
        rows = [
            self._measured_row(entry, stopped) if entry.how == "measured" else _modelled_row(entry)
            for entry in self.plan.entries
            if entry.how != "left out"
        ]
        parameters = {model.name: model.parameters for model in self.plan.axes.models}
        for row in rows:
            row["parameters"] = parameters[row["model"]]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        return table.astype({"stage": "Int64", **dict.fromkeys(_NUMBERS, float), "fits": bool})

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be measured."""
        return not (self.results["outcome"] == "open").any()

    def best(
        self,
        memory_limit: int | str | None = None,
        *,
        model: str | None = None,
        workers: int | None = None,
        source: str | None = None,
    ) -> pd.Series:
        """The setting with most samples a second of those that fit.

        Of equally fast ones it is that with the lowest stage, and then with the fewest bytes: what
        shares out more sends more, and is chosen where memory forces it alone.

        Parameters
        ----------
        memory_limit : int or str, optional
            Bytes a worker, or text such as ``"16GB"``, beside the limits of the study.
        model : str, optional
            Needed where the study has several.
        workers : int, optional
            So many; by default any number.
        source : {"measured", "modelled"}, optional
            By default what was measured, where anything of the kind asked for was.

        Returns
        -------
        Series
            A row of :attr:`results`.

        Raises
        ------
        ValueError
            An argument makes no sense, or nothing fits; the text says what the least needs.
        """
        table = self._candidates(model, workers, source)
        limit = math.inf if memory_limit is None else size(memory_limit, "memory_limit")
        fitting = table[table["fits"] & ~(table["memory"] > limit)]
        if not len(fitting):
            least = table["memory"].min()
            raise ValueError(
                f"memory_limit={memory_limit!r}: none of {plural(len(table), 'setting')} fits; the "
                f"one that needs least takes {bytes_text(least)} a worker"
            )
        return fitting.loc[_order(fitting)[0]]

    def best_by_workers(self, memory_limit: int | str | None = None) -> pd.DataFrame:
        """The best setting for each model, number of workers, batch and source, where one fits.

        Returns
        -------
        DataFrame
            Rows of :attr:`results`.
        """
        limit = math.inf if memory_limit is None else size(memory_limit, "memory_limit")
        table = self.results
        table = table[table["outcome"].isin(_DONE) & table["fits"] & ~(table["memory"] > limit)]
        groups = table.groupby(["model", "workers", "batch", "source"], sort=False)
        return table.loc[[_order(group)[0] for _, group in groups]].reset_index(drop=True)

    def facts(self) -> list[tuple[str, str]]:
        """Names and values that text and card show."""
        table = self.results
        counts = table["outcome"].value_counts()
        said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        facts = [("settings", said), ("left out", f"{len(self.plan.left_out):,}")]
        if self.plan.place is not None:
            facts.append(("measured on", self.plan.place.words))
        if self.plan.modelled and self.plan.device is not None and self.plan.network is not None:
            facts += [
                ("modelled on", self.plan.device.words),
                ("network", self.plan.network.name),
            ]
        best = self.best_by_workers()
        best = best.sort_values("workers").groupby(["model", "source"], sort=False).tail(1)
        facts += [(f"best, {row['model']}", _best_words(row)) for _, row in best.iterrows()]
        return facts

    def cite(self) -> str:
        """What to cite."""
        return self.plan.cite()

    def _candidates(
        self, model: str | None, workers: int | None, source: str | None
    ) -> pd.DataFrame:
        table = self.results
        names = list(dict.fromkeys(table["model"]))
        if model is None and len(names) > 1:
            raise ValueError(f"model=None: the study has {', '.join(names)}; name one")
        for name, value in (("model", model), ("workers", workers), ("source", source)):
            if value is not None:
                known = list(dict.fromkeys(table[name]))
                if value not in known:
                    raise ValueError(
                        f"{name}={value!r}: the study has {', '.join(map(str, known))}"
                    )
                table = table[table[name] == value]
        done = table[table["outcome"].isin(_DONE)]
        if not len(done):
            raise ValueError("no setting of that kind was finished or modelled")
        measured = done[done["source"] == "measured"]
        return measured if len(measured) else done

    def _stopped(self) -> dict[Setting, str]:
        found: dict[Setting, str] = {}
        for group in self.plan.groups:
            found |= verdicts(group, self.plan.funnel(len(group)), self.measured).stopped
        return found

    def _measured_row(self, entry: Planned, stopped: Mapping[Setting, str]) -> dict[str, Any]:
        setting = entry.setting
        rungs = [rung for one, rung in self.measured if one == setting]
        row = _row(entry, "measured")
        if not rungs:
            return {**row, "outcome": "open", "why": "the study has not come to it"}
        last = self.measured[setting, max(rungs)]
        if setting in stopped:
            outcome = "failed" if last.error else "stopped"
            row |= {"outcome": outcome, "why": stopped[setting]}
        elif max(rungs) + 1 < len(self.plan.funnel(len(self._group(setting)))):
            row |= {"outcome": "open", "why": "the study is in the middle of it"}
        else:
            row |= {"outcome": "finished", "why": entry.why}
        memory = entry.memory if last.memory is None else last.memory
        limit = self.plan.memory_limit
        return {
            **row,
            "steps": last.steps,
            "samples": last.samples,
            "loss": last.loss,
            "samples_per_second": last.samples_per_second,
            "bytes_per_step": last.bytes,
            "memory": memory,
            "state": last.state,
            "fits": limit is None or memory <= limit,
        }

    def _group(self, setting: Setting) -> tuple[Setting, ...]:
        return next(group for group in self.plan.groups if setting in group)

    def __repr__(self) -> str:
        lines = [f"  {name:<15} {value}" for name, value in self.facts()]
        return "\n".join([f"Study of {plural(len(self.results), 'setting')}", *lines])

    def _repr_html_(self) -> str:
        from dtoolkit.figures.study_cards import study_card

        return study_card(self)


_NUMBERS = ("learning_rate", "loss", "samples_per_second", "bytes_per_step", "memory", "state")


def _row(entry: Planned, source: str) -> dict[str, Any]:
    setting = entry.setting
    return {
        **{one.name: getattr(setting, one.name) for one in fields(Setting)},
        "accumulate": setting.accumulate,
        "source": source,
        "steps": 0,
        "samples": 0,
        "fits": entry.fits,
    }


def _modelled_row(entry: Planned) -> dict[str, Any]:
    row = {**_row(entry, "modelled"), "outcome": "modelled", "why": entry.why}
    found = entry.estimate
    if found is None:
        return row
    return {
        **row,
        "samples_per_second": found.samples_per_second,
        "bytes_per_step": found.bytes,
        "memory": found.memory,
        "state": found.state,
    }


def _order(table: pd.DataFrame) -> list[Any]:
    """Index of the rows, the best first; speeds that differ in the sixth digit are equal."""
    ranked = table.assign(
        speed=[-float(f"{value:.6g}") for value in table["samples_per_second"]],
        shared=table["stage"].fillna(0).astype(int),
    )
    order = ["speed", "shared", "bytes_per_step", "memory"]
    return list(ranked.sort_values(order, kind="stable").index)


def _best_words(row: pd.Series) -> str:
    rate = count_text(row["samples_per_second"], "samples/s")
    return (
        f"{row['strategy']} on {row['workers']:,}, micro-batch {row['micro_batch']:,}: {rate}, "
        f"{bytes_text(row['memory'])} a worker ({row['source']})"
    )
