"""Training runs beside each other, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from dtoolkit.figures.curves import named_runs
from dtoolkit.figures.progress import final_loss, progress, rate, waiting, workers_of

if TYPE_CHECKING:
    from dtoolkit.training import Run

__all__ = ["bytes_a_step", "run_table", "strategy_of"]


def run_table(runs: Run | Sequence[Run] | Mapping[str, Run]) -> pd.DataFrame:
    """Put runs beside each other (measured).

    Parameters
    ----------
    runs : Run, sequence of Run, or mapping of names to Run
        By default they are named by strategy.

    Returns
    -------
    DataFrame
        A row a run: ``strategy``; ``workers``; ``steps``, done in all; ``loss``, of the training
        samples of the last tenth of the steps; the last evaluation, one column each, such as ``test
        accuracy``; ``samples/s``, used by all workers together; ``idle``, the share of the
        workers' time in which they waited for each other; ``bytes a step``, by all workers;
        ``dropped``, the share of the samples that was not used; ``staleness``, the largest.

    Raises
    ------
    ValueError
        There is no run.
    """
    named = named_runs(runs, strategy_of)
    return pd.DataFrame([_row(run) for run in named.values()], index=list(named))


def _row(run: Any) -> dict[str, Any]:
    history = run.history
    used, dropped = float(history["samples"].sum()), float(history["dropped"].sum())
    tests = [str(name) for name in history.columns if str(name).startswith("test_")]
    last = history[tests].dropna(how="all").tail(1)
    settings = getattr(run, "settings", {})
    state = getattr(run, "state", None)
    return {
        "strategy": str(settings.get("strategy", "")),
        "workers": int(settings.get("workers", len(workers_of(history)))),
        "steps": int(state.step) if state is not None else len(progress(history)),
        "loss": final_loss(history),
        **{name.replace("_", " "): float(last[name].iloc[0]) for name in tests if len(last)},
        "samples/s": rate(history),
        "idle": waiting(history),
        "bytes a step": bytes_a_step(history),
        "dropped": dropped / (used + dropped) if used + dropped else 0.0,
        "staleness": float(history["staleness"].max()) if len(history) else 0.0,
    }


def bytes_a_step(history: pd.DataFrame) -> float:
    """Bytes that all workers together sent in a step, on average."""
    steps = len(progress(history))
    return float(history["bytes"].sum()) / steps if steps else 0.0


def strategy_of(run: Any) -> str:
    """Name a run by its strategy, and by the kind of its compression if there is one."""
    settings = getattr(run, "settings", {})
    kind = str(settings.get("compression", "")).partition("(")[0]
    return f"{settings.get('strategy', 'run')}{', ' if kind else ''}{kind}"
