"""Scaling studies: samples a second as workers grow in number, with a batch that stays or grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import plotly.graph_objects as go

from dtoolkit.figures.curves import DASHES, curve_figure
from dtoolkit.figures.theme import (
    CATEGORIES,
    Mode,
    bytes_text,
    count_text,
    notice,
    plain,
    plural,
)

if TYPE_CHECKING:
    from dtoolkit.training.study import Study

__all__ = ["strong_scaling", "weak_scaling"]

_OPEN = {"measured": "circle", "modelled": "circle-open"}


def strong_scaling(study: Study, *, model: str | None = None, mode: Mode = "auto") -> go.Figure:
    """Draw samples a second over the number of workers, the batch staying as it is.

    Parameters
    ----------
    study : Study
        Anything with its ``results`` will do.
    model : str, optional
        Draw this one alone.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Workers on x, samples a second of all workers on y, both logarithmic. A line for each model
        and strategy, of its fastest setting that fits; filled points were measured, open ones
        modelled. The dotted line is what twice the workers would be at twice the speed, from the
        first point of the uppermost line.

    Raises
    ------
    ValueError
        The study has no such model.
    """
    table = _fastest(study, "strong", model)
    lines = _lines(table, "samples_per_second", "%{customdata[0]}")
    if len(table):
        lines.insert(0, _ideal(table))
    return _figure(
        lines,
        table,
        heading="Strong scaling",
        below="the batch stays as workers grow in number",
        y={"title": {"text": "samples a second, of all workers"}, "type": "log"},
        mode=mode,
    )


def weak_scaling(study: Study, *, model: str | None = None, mode: Mode = "auto") -> go.Figure:
    """Draw how much of a worker's speed is left, the batch growing with the number of workers.

    Parameters
    ----------
    study : Study
        Anything with its ``results`` will do.
    model : str, optional
        Draw this one alone.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Workers on x, logarithmic; on y samples a second and worker, over those of the line's first
        point. Lines and points as of :func:`strong_scaling`.

    Raises
    ------
    ValueError
        The study has no such model.
    """
    table = _fastest(study, "weak", model)
    each = table["samples_per_second"] / table["workers"]
    lines = [table["model"], table["strategy"], table["source"]]
    table = table.assign(efficiency=each / each.groupby(lines).transform("first"))
    return _figure(
        _lines(table, "efficiency", "%{y:.3f} of the first point's; %{customdata[0]}"),
        table,
        heading="Weak scaling",
        below="the batch grows with the workers",
        y={"title": {"text": "speed of a worker (over the first point's)"}, "rangemode": "tozero"},
        mode=mode,
    )


def _fastest(study: Any, scaling: str, model: str | None) -> pd.DataFrame:
    """The fastest setting that fits for each line and number of workers, by workers."""
    table = study.results
    names = list(dict.fromkeys(table["model"]))
    if model is not None and model not in names:
        raise ValueError(f"model={model!r}: the study has {', '.join(names)}")
    done = table["outcome"].isin(("finished", "modelled")) & table["fits"]
    done &= table["scaling"].isin((scaling, "both")) & table["samples_per_second"].notna()
    if model is not None:
        done &= table["model"] == model
    kept = table[done].sort_values("samples_per_second", ascending=False, kind="stable")
    kept = kept.drop_duplicates(["model", "strategy", "source", "workers"])
    return kept.sort_values("workers", kind="stable")


def _lines(table: pd.DataFrame, y: str, hover: str) -> list[go.Scatter]:
    models = list(dict.fromkeys(table["model"]))
    strategies = sorted(dict.fromkeys(table["strategy"]))
    lines = []
    for (model, strategy, source), own in table.groupby(
        ["model", "strategy", "source"], sort=False
    ):
        words = [strategy, source] if len(models) == 1 else [model, strategy, source]
        lines.append(
            go.Scatter(
                x=own["workers"].tolist(),
                y=own[y].tolist(),
                name=plain(", ".join(map(str, words))),
                mode="lines+markers",
                line={
                    "color": CATEGORIES[strategies.index(strategy) % len(CATEGORIES)],
                    "dash": DASHES[models.index(model) % len(DASHES)],
                },
                marker={"symbol": _OPEN[source], "size": 8},
                customdata=[_words(row) for _, row in own.iterrows()],
                hovertemplate=f"%{{fullData.name}}<br>%{{x:,}} workers: {hover}"
                "<br>%{customdata[1]}<extra></extra>",
            )
        )
    return lines


def _words(row: pd.Series) -> tuple[str, str]:
    rate = count_text(row["samples_per_second"], "samples/s")
    more = f"micro-batch {row['micro_batch']:,} of {row['batch']:,}, "
    more += f"{bytes_text(row['memory'])} a worker"
    return rate, more


def _ideal(table: pd.DataFrame) -> go.Scatter:
    """The line of a speed that grows like the workers, from the fastest first point."""
    least = int(table["workers"].min())
    first = float(table.loc[table["workers"] == least, "samples_per_second"].max())
    counts = sorted({int(count) for count in table["workers"]})
    return go.Scatter(
        x=counts,
        y=[first * count / least for count in counts],
        name="ideal",
        mode="lines",
        line={"color": "#767676", "dash": "dot", "width": 1},
        hoverinfo="skip",
    )


def _figure(
    lines: list[go.Scatter],
    table: pd.DataFrame,
    *,
    heading: str,
    below: str,
    y: dict[str, Any],
    mode: Mode,
) -> go.Figure:
    counts = sorted({int(count) for count in table["workers"]})
    sources = " and ".join(sorted(set(table["source"]))) or "nothing is there"
    figure = curve_figure(
        lines,
        heading=f"{heading} ({sources})",
        below=f"{below}; up to {plural(counts[-1] if counts else 0, 'worker')}",
        x="workers",
        y="",
        yaxis=y,
        xaxis={
            "title": {"text": "workers"},
            "type": "log",
            "tickvals": counts,
            "ticktext": [f"{count:,}" for count in counts],
        },
        mode=mode,
    )
    if not lines:
        figure.add_annotation(notice("no setting of this scaling was finished or modelled"))
    return figure
