"""What dropping late micro-batches gains: over workers, over thresholds, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, plural, seconds_text, title

if TYPE_CHECKING:
    from dtoolkit.training.dropstudy import Gain, Study
    from dtoolkit.training.droptrial import Trial

__all__ = ["drop_speed"]

_FORMULA, _AT, _AFTER, _SEEN, _TAU = (
    CATEGORIES[1], CATEGORIES[4], CATEGORIES[0], CATEGORIES[2], CATEGORIES[3],
)  # fmt: skip
_SAY = {"at": "simulated, cut at the threshold", "after": "simulated, looking after each"}
_HEIGHT, _ROW = 500, 250  # pixels: below the legend in two columns, and of a picture in one
_TITLE, _ENTRY, _BOTTOM = 84, 20, 56  # pixels: title and its second line, a line of the legend
_BINS = 40


def drop_speed(
    study: Study,
    gains: Sequence[Gain] = (),
    trial: Trial | None = None,
    *,
    beside: bool = True,
    width: int | None = None,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw the gain of dropping micro-batches that come too late.

    Parameters
    ----------
    study : Study
        Thresholds on one number of workers.
    gains : sequence of Gain
        The best on several numbers of workers.
    trial : Trial, optional
        What real workers gave.
    beside : bool
        In two columns; else in one.
    width : int, optional
        In pixels; by default the figure fills what it is put into.
    mode : {"auto", "light", "dark"}

    Returns
    -------
    plotly.graph_objects.Figure
        Speed-up over the number of workers and over the threshold, the share that is dropped, and
        how long steps take. Modelled, but for the diamonds of `trial`, which are measured.
    """
    scale, unit = (1e3, "ms") if study.alone.max() < 10 else (1.0, "s")
    tau = study.chosen.threshold * scale
    least, most = _range(study, scale)
    times = _times(study, scale, unit)
    data = [
        *_by_workers(study, gains),
        *_by_threshold(study, scale, unit),
        *times,
        *_measured(trial, scale, unit),
    ]
    entries = 4 if trial is None else 6
    top = _TITLE + _ENTRY * (-(-entries // 3) if beside else entries)
    axes, places, height = _axes(beside, unit, (least, most), mode, top)
    axes["yaxis2"]["range"] = _speeds(study, trial)
    axes["yaxis4"]["range"] = [0, 1.5 * max(one.y.max() for one in times)]  # room for the legend
    axes["yaxis3"]["range"] = [0, max(60.0, 120 * study.chosen.dropped)]
    inside = least <= tau <= most
    lines = [_upright(tau, place) for place in (2, 3, 4) if inside]
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title={**title(*_words(study, trial, beside)), "y": 1 - 25 / height},
            **axes,
            shapes=[_level(1), _level(2), *lines],
            annotations=[_tau(study, tau)] if inside else [],
            showlegend=True,
            legend={"orientation": "h", "x": 0, "y": 1 + 8 / (height - top - _BOTTOM),
                    "yanchor": "bottom", "font": {"size": 12}},
            legend2={"x": places[4][0][1], "y": places[4][1][1], "xanchor": "right",
                     "yanchor": "top", "font": {"size": 11}, "bgcolor": "rgba(0,0,0,0)"},
            hovermode="closest",
            width=width,
            height=height,
            margin={"l": 64, "r": 24, "t": top, "b": _BOTTOM},
        ),
    )  # fmt: skip


def _by_workers(study: Study, gains: Sequence[Gain]) -> list[go.Scatter]:
    """Best speed-ups over the number of workers, and the one that is looked at."""
    workers = [one.workers for one in gains]
    hover = "%{customdata:,} workers: %{y:.3f}"
    made = [
        _line(workers, [one.formula for one in gains], "formula for normal times", _FORMULA,
              "dash", 1, hover, symbol="square"),
        _line(workers, [one.at.speedup for one in gains], _SAY["at"], _AT, "dot", 1, hover,
              symbol="x"),
        _line(workers, [one.after.speedup for one in gains], _SAY["after"], _AFTER, "solid", 1,
              hover, symbol="circle"),
    ]  # fmt: skip
    chosen = _mark(
        [study.workers], [study.chosen.speedup], "what is looked at", "star", _TAU, 1, hover
    )
    return [*made, chosen]


def _by_threshold(study: Study, scale: float, unit: str) -> list[go.Scatter]:
    """Speed-up, and below it the share dropped."""
    x = study.thresholds * scale
    colour, dash = (_AT, "dot") if study.chosen.rule == "at" else (_AFTER, "solid")
    name = _SAY[study.chosen.rule]
    rows = (
        (2, study.formulas, study.speedups, "speed-up %{y:.3f}"),
        (3, 100 * study.formulas_dropped, 100 * study.dropped, "%{y:.1f}% dropped"),
    )
    made = []
    for place, formula, simulated, said in rows:
        hover = f"threshold %{{x:.4~g}} {unit}: {said}"
        made += [
            _line(x, formula, "formula for normal times", _FORMULA, "dash", place, hover),
            _line(x, simulated, name, colour, dash, place, hover),
        ]
    at = study.chosen.threshold * scale
    hover = f"threshold %{{x:.4~g}} {unit}: %{{y:.3f}}"
    star = [at], [study.chosen.speedup], "what is looked at", "star", _TAU, 2, hover
    return [*made, _mark(*star, legend=False)]


def _times(study: Study, scale: float, unit: str) -> list[go.Scatter]:
    """How long a worker computes in a step, the slowest, and the slowest with dropping."""
    low, high = _range(study, scale)
    edges = np.linspace(low, high, _BINS + 1)
    rows = (
        (study.alone, "a worker", CATEGORIES[6], "solid", "tozeroy"),
        (study.slowest, "the slowest of a step", CATEGORIES[5], "dash", "none"),
        (study.cut, "the slowest, with dropping", _TAU, "dot", "none"),
    )
    return [_histogram(v.ravel() * scale, edges, unit, *look) for v, *look in rows]


def _histogram(
    values: NDArray[np.float64], edges: NDArray[np.float64], unit: str, name: str, colour: str,
    dash: str, fill: str,
) -> go.Scatter:  # fmt: skip
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges)
    return go.Scatter(
        x=(edges[:-1] + edges[1:]) / 2,
        y=100 * counts / max(len(values), 1),
        name=name,
        mode="lines",
        line={"color": colour, "dash": dash, "width": 2, "shape": "hvh"},
        fill=fill,
        legend="legend2",
        xaxis="x4",
        yaxis="y4",
        hovertemplate=f"<b>{name}</b><br>%{{x:.4~g}} {unit}: %{{y:.1f}}%<extra></extra>",
    )


def _measured(trial: Trial | None, scale: float, unit: str) -> list[go.Scatter]:
    """Diamonds where real workers were, and rings where the simulation of the same delays is."""
    if trial is None:
        return []
    one, at = trial.simulated, trial.threshold * scale
    here = f"{plural(trial.workers, 'worker')}, threshold {at:.4g} {unit}"
    made = []
    for place, x, seen, expected in (
        (1, trial.workers, trial.gain, one.speedup),
        (2, at, trial.gain, one.speedup),
        (3, at, 100 * trial.dropped, 100 * one.dropped),
    ):
        hover = f"{here}: %{{y:.4~g}}"
        made.append(
            _mark([x], [expected], f"the same {trial.workers}, simulated", "circle-open", _SEEN,
                  place, hover, legend=place == 1)
        )  # fmt: skip
        made.append(
            _mark([x], [seen], f"measured on {trial.workers}", "diamond", _SEEN, place, hover,
                  legend=place == 1)
        )  # fmt: skip
    return made


def _range(study: Study, scale: float) -> tuple[float, float]:
    """Times worth looking at: a long tail would leave no room for the rest."""
    far = max(float(np.quantile(study.slowest, 0.99)), float(study.cut.max()))
    tau = study.chosen.threshold
    if np.isfinite(tau):
        far = max(far, min(tau, 2 * far))
    near = 0.4 * float(np.quantile(study.alone, 0.5))
    return min(near, tau if np.isfinite(tau) else near) * scale * 0.98, far * scale * 1.04


def _speeds(study: Study, trial: Trial | None) -> list[float]:
    """Speed-ups worth looking at: the far left of the curve falls to nothing."""
    seen = [study.chosen.speedup, 1.0, *([trial.gain] if trial is not None else [])]
    most = max(*seen, study.speedups.max(), study.formulas.max())
    return [min(0.88, min(seen) - 0.05), most + 0.04]


def _axes(
    beside: bool, unit: str, limits: tuple[float, float], mode: Mode, top: int
) -> tuple[dict[str, Any], dict[int, tuple[list[float], list[float]]], int]:
    """Axes of four pictures, where these are, and the height of the figure."""
    time = f"threshold ({unit})"
    x: dict[int, dict[str, Any]] = {
        1: {"title": "workers", "tickmode": "array", "tickvals": [0, 2, 4, 6, 8, 10],
            "ticktext": ["1", "4", "16", "64", "256", "1,024"], "range": [-0.3, 10.3]},
        2: {"title": time, "range": list(limits)},
        3: {"title": time, "range": list(limits)},
        4: {"title": f"computing in a step ({unit})", "range": list(limits)},
    }  # fmt: skip
    y: dict[int, dict[str, Any]] = {
        1: {"title": "best speed-up"},
        2: {"title": "speed-up"},
        3: {"title": "dropped (%)"},
        4: {"title": "share of steps (%)"},
    }
    places: dict[int, tuple[list[float], list[float]]]
    if beside:
        left, right, upper, lower = [0, 0.44], [0.56, 1.0], [0.6, 1.0], [0, 0.4]
        places = {1: (left, upper), 2: (right, upper), 3: (right, lower), 4: (left, lower)}
        height = top + _HEIGHT
    else:
        tops = {place: 1 - (place - 1) * 0.265 for place in (1, 2, 3, 4)}
        places = {place: ([0.0, 1.0], [top - 0.185, top]) for place, top in tops.items()}
        height = top + _BOTTOM + 4 * _ROW
    shared = base_layout(mode=mode)
    made: dict[str, Any] = {}
    for place, (across, up) in places.items():
        tag = "" if place == 1 else str(place)
        for kind, settings, domain, other in (
            ("x", {**x[place]}, across, "y"),
            ("y", {**y[place]}, up, "x"),
        ):
            text = settings.pop("title")
            made[f"{kind}axis{tag}"] = {
                **shared[f"{kind}axis"],
                "title": {"text": text, "standoff": 6},
                "domain": domain,
                "anchor": f"{other}{tag}",
                **settings,
            }
    return made, places, height


def _line(
    x: Any, y: Any, name: str, colour: str, dash: str, place: int, hover: str, *, symbol: str = ""
) -> go.Scatter:
    more: dict[str, Any] = {"marker": {"symbol": symbol, "size": 7}} if symbol else {}
    return go.Scatter(
        **_across(x, place),
        y=np.asarray(y, dtype=float),
        name=name,
        mode="lines+markers" if symbol else "lines",
        line={"color": colour, "dash": dash, "width": 2},
        xaxis=_on("x", place),
        yaxis=_on("y", place),
        showlegend=place == 1,
        hovertemplate=f"<b>{name}</b><br>{hover}<extra></extra>",
        **more,
    )


def _mark(
    x: Any, y: Any, name: str, symbol: str, colour: str, place: int, hover: str,
    *, legend: bool = True,
) -> go.Scatter:  # fmt: skip
    return go.Scatter(
        **_across(x, place),
        y=np.asarray(y, dtype=float),
        name=name,
        mode="markers",
        marker={"symbol": symbol, "size": 13, "color": colour, "line": {"width": 1.5}},
        xaxis=_on("x", place),
        yaxis=_on("y", place),
        showlegend=legend,
        hovertemplate=f"<b>{name}</b><br>{hover}<extra></extra>",
    )


def _across(x: Any, place: int) -> dict[str, Any]:
    """Powers of two lie evenly: an axis that becomes logarithmic would lose its range."""
    values = np.asarray(x, dtype=float)
    return {"x": values} if place != 1 else {"x": np.log2(values), "customdata": values}


def _on(axis: str, place: int) -> str:
    return axis if place == 1 else f"{axis}{place}"


def _level(place: int) -> dict[str, Any]:
    """A line at 1, below which dropping loses."""
    return {
        "type": "line", "xref": f"{_on('x', place)} domain", "yref": _on("y", place),
        "x0": 0, "x1": 1, "y0": 1, "y1": 1,
        "line": {"color": "rgba(128,128,128,.6)", "width": 1},
    }  # fmt: skip


def _upright(tau: float, place: int) -> dict[str, Any]:
    return {
        "type": "line", "xref": _on("x", place), "yref": f"{_on('y', place)} domain",
        "x0": tau, "x1": tau, "y0": 0, "y1": 1,
        "line": {"color": _TAU, "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def _tau(study: Study, tau: float) -> dict[str, Any]:
    return {
        "text": f"threshold {seconds_text(study.chosen.threshold)}", "x": tau, "y": 1,
        "xref": "x4", "yref": "y4 domain", "xanchor": "center", "yanchor": "bottom", "yshift": 1,
        "showarrow": False, "font": {"size": 12},
    }  # fmt: skip


def _words(study: Study, trial: Trial | None, beside: bool) -> tuple[str, str]:
    work, one = study.work, study.chosen
    head = f"{one.speedup:.3f} times the samples a second (modelled)"
    of = "micro-batches of" if beside else "×"
    said = (
        f"{plural(study.workers, 'worker')}, {work.micro_batches} {of} "
        f"{seconds_text(work.mean)} ± {seconds_text(work.std)}"
    )
    if trial is not None:
        said += f"; diamonds: measured on {trial.workers}"
    return head, said
