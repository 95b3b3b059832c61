"""Training runs in figures and tables: learning, workers, bytes, and runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtoolkit.figures.curves import curve, curve_figure, named_runs
from dtoolkit.figures.progress import progress, workers_of
from dtoolkit.figures.theme import CATEGORIES, Mode, bytes_text, plain
from dtoolkit.figures.training_cards import training_card
from dtoolkit.figures.training_table import bytes_a_step, run_table, strategy_of

if TYPE_CHECKING:
    from dtoolkit.training import Run

__all__ = ["by_worker", "bytes_per_step", "learning", "run_table", "training_card"]

Runs = Any  # Run, sequence of Run, or mapping of names to Run; anything with a history will do

_X = {
    "step": ("steps done (number)", "step %{x:,}", "steps"),
    "samples": ("samples used so far, by all workers (number)", "%{x:,} samples", "samples used"),
    "seconds": ("time since the first step (s)", "%{x:.3f} s", "time"),
}
_Y = {
    "loss": "training loss (mean a sample)",
    "samples": "samples used (a step)",
    "dropped": "samples not used (a step)",
    "seconds": "time (s a step)",
    "compute": "computing (s a step)",
    "throughput": "throughput (samples a second)",
    "idle": "waiting for others (s a step)",
    "staleness": "staleness (versions)",
    "local_steps": "local steps (a step of the run)",
    "bytes": "sent by all workers (bytes a step)",
    "lr": "learning rate",
    "epoch": "epoch",
    "test_loss": "test loss (mean a sample)",
    "test_accuracy": "test accuracy (share)",
    "test_bits_per_byte": "test bits per byte",
}


def learning(
    runs: Run | Sequence[Run] | Mapping[str, Run],
    *,
    y: str = "loss",
    x: Literal["step", "samples", "seconds"] = "step",
    smooth: int = 1,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw how runs learned, over steps, samples or seconds.

    Parameters
    ----------
    runs : Run, sequence of Run, or mapping of names to Run
        By default they are named by strategy. A run that goes on
        (:class:`~dtoolkit.training.Training`) will do too.
    y : str
        ``"loss"``, or any other column of the history, such as ``"test_accuracy"``, which is drawn
        where it was measured.
    x : {"step", "samples", "seconds"}
        Steps done; samples really used, by all workers together; or time since the first step
        began. Where workers run free, their steps are put in the order in which they ended, and as
        many as there are workers count as one.
    smooth : int
        Points that each drawn one is the mean of: itself and those before it.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        There is no run, no such column in any of them, or `x` or `smooth` is none of those.
    """
    if x not in _X:
        raise ValueError(f"x={x!r}: wanted one of {', '.join(_X)}")
    _check_smooth(smooth)
    named = named_runs(runs, strategy_of)
    found = {name: _points_of(run.history, x, y) for name, run in named.items()}
    if all(points is None for points in found.values()):
        columns = [c for c in _histories(named)[0].columns if not str(c)[-1:].isdigit()]
        raise ValueError(f"y={y!r}: no run has it; there are {', '.join(map(str, columns))}")
    rare = y.startswith("test_")
    lines = [
        curve(
            number,
            name,
            points[0],
            pd.Series(points[1]).rolling(smooth, min_periods=1).mean(),
            hover=f"{_X[x][1]}<br>{y.replace('_', ' ')} %{{y:.5~g}}",
            mode="lines+markers" if rare else "lines",
        )
        for number, (name, points) in enumerate(found.items())
        if points is not None
    ]
    below = f"mean over {smooth} steps" if smooth > 1 else ""
    label = _Y.get(y, y.replace("_", " "))
    return curve_figure(
        lines,
        heading=f"{_sentence(label)} over {_X[x][2]} (measured)",
        below="; ".join(part for part in (_emulated(named), below) if part),
        x=_X[x][0],
        y=label,
        mode=mode,
    )


def by_worker(
    run: Run,
    quantity: str = "throughput",
    *,
    x: Literal["step", "seconds"] = "step",
    smooth: int = 1,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw what each worker did, over its own steps: throughput, idle time, staleness and others.

    Parameters
    ----------
    run : Run
    quantity : str
        ``"throughput"``, ``"idle"``, ``"staleness"``, ``"seconds"``, ``"compute"``, ``"samples"``,
        ``"loss"``, ``"local_steps"``, or what else the history has by worker.
    x : {"step", "seconds"}
        The worker's own step, or when it ended.
    smooth : int
        Points that each drawn one is the mean of: itself and those before it.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        The history has no such column by worker, or `x` or `smooth` is none of those.
    """
    if x not in ("step", "seconds"):
        raise ValueError(f"x={x!r}: wanted one of step, seconds")
    _check_smooth(smooth)
    history, workers = run.history, workers_of(run.history)
    if not workers or f"{quantity}_{workers[0]}" not in history:
        there = sorted(str(c).rpartition("_")[0] for c in history if str(c).endswith("_0"))
        raise ValueError(f"quantity={quantity!r}: wanted one of {', '.join(there)}")
    lines = []
    for worker in workers:
        values = history[f"{quantity}_{worker}"]
        where = history["step"] + 1 if x == "step" else history[f"end_{worker}"]
        drawn = values.notna() & where.notna()
        lines.append(
            curve(
                worker,
                f"worker {worker}",
                where[drawn],
                values[drawn].rolling(smooth, min_periods=1).mean(),
                hover=f"{_X[x][1]}<br>{quantity.replace('_', ' ')} %{{y:.4~g}}",
            )
        )
    label = _Y.get(quantity, quantity.replace("_", " "))
    shares = ", ".join(f"{share:.0%}" for share in _idle_shares(history, workers))
    return curve_figure(
        lines,
        heading=f"{_sentence(label)} by worker (measured)",
        below="; ".join(
            part
            for part in (strategy_of(run), _emulated({"": run}), f"idle, by worker: {shares}")
            if part
        ),
        x="the worker's own steps (number)" if x == "step" else _X[x][0],
        y=label,
        mode=mode,
    )


def bytes_per_step(
    runs: Run | Sequence[Run] | Mapping[str, Run], *, mode: Mode = "auto"
) -> go.Figure:
    """Draw how many bytes all workers together send in a step, on average, run by run.

    Parameters
    ----------
    runs : Run, sequence of Run, or mapping of names to Run
        By default they are named by strategy.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        There is no run.
    """
    named = named_runs(runs, strategy_of)
    sent = [bytes_a_step(run.history) for run in named.values()]
    samples = [max(int(run.history["samples"].sum()), 1) for run in named.values()]
    total = [float(run.history["bytes"].sum()) for run in named.values()]
    bars = go.Bar(
        x=sent,
        y=[plain(name) for name in named],
        orientation="h",
        text=[bytes_text(value) for value in sent],
        textposition="auto",
        marker={"color": CATEGORIES[0]},
        customdata=[
            [bytes_text(all_), bytes_text(all_ / n)] for all_, n in zip(total, samples, strict=True)
        ],
        hovertemplate="%{y}<br>%{text} a step<br>%{customdata[1]} a sample<br>"
        "%{customdata[0]} in all<extra></extra>",
    )
    figure = curve_figure(
        [],
        heading="Bytes sent in a step (measured)",
        below="; ".join(p for p in (_emulated(named), "by all workers, mean over the steps") if p),
        x="bytes a step",
        y="",
        mode=mode,
        xaxis={"rangemode": "tozero", "exponentformat": "SI"},
        yaxis={"autorange": "reversed", "title": {"text": "run"}},
    )
    figure.add_trace(bars)
    return figure.update_layout(showlegend=False, height=160 + 34 * len(named))


def _check_smooth(smooth: object) -> None:
    if isinstance(smooth, bool) or not isinstance(smooth, int) or smooth < 1:
        raise ValueError(f"smooth={smooth!r}: wanted a whole number of at least 1")


def _points_of(history: pd.DataFrame, x: str, y: str) -> tuple[Any, Any] | None:
    """Where a quantity was measured, and what it was; None where a history does not have it."""
    if y not in history or not len(history):
        return None
    way = progress(history)
    if y == "loss":
        return way[x].to_numpy(), way["loss"].to_numpy()
    there = np.flatnonzero(history[y].notna().to_numpy())
    there = there[there < len(way)]  # where workers run free, the fastest has rows of its own
    return way[x].to_numpy()[there], history[y].to_numpy()[there]


def _idle_shares(history: pd.DataFrame, workers: list[int]) -> list[float]:
    shares = []
    for worker in workers:
        seconds = float(np.nansum(history[f"seconds_{worker}"]))
        shares.append(float(np.nansum(history[f"idle_{worker}"])) / seconds if seconds else 0.0)
    return shares


def _histories(named: Mapping[str, Any]) -> list[pd.DataFrame]:
    return [run.history for run in named.values()]


def _emulated(named: Mapping[str, Any]) -> str:
    """Say which network was emulated, where one was."""
    found = {getattr(getattr(run, "trace", None), "emulated", "") for run in named.values()}
    return ", ".join(f"emulated: {one}" for one in sorted(found) if one)


def _sentence(text: str) -> str:
    """Begin a title with what an axis is called, without its unit."""
    return text[:1].upper() + text[1:].split(" (")[0]
