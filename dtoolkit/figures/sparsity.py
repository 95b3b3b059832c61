"""Sparse models in figures: densities and channels by layer, and curves over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtoolkit.figures.curves import curve, curve_figure
from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, notice, plain, title

if TYPE_CHECKING:
    import torch

    from dtoolkit.sparsity import Reconfiguration, Sparsifier

__all__ = ["layer_channels", "layer_densities", "mask_patterns", "mean_curves"]


def layer_densities(sparsifiers: Mapping[str, Sparsifier], *, mode: Mode = "auto") -> go.Figure:
    """Draw the density of each layer, for several sparsifiers side by side.

    Parameters
    ----------
    sparsifiers : mapping of str to Sparsifier
        Of one model, or of copies; the keys are the names in the legend.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Densities are those counted in the masks, on a logarithmic axis; a layer without a live
        weight has no bar.

    Raises
    ------
    ValueError
        There is no sparsifier.
    """
    if not sparsifiers:
        raise ValueError("sparsifiers is empty: nothing to draw")
    bars = []
    for number, (name, sparsifier) in enumerate(sparsifiers.items()):
        table = sparsifier.table()
        live, size = table["live_parameters"], table["parameters"]
        bars.append(
            _bars(
                number,
                f"{name}: {live.sum() / size.sum():.2%} in all",
                list(table["layer"]),
                list(table["real_density"].where(live > 0)),
                [f"{a:,} of {b:,} weights" for a, b in zip(live, size, strict=True)],
            )
        )
    figure = curve_figure(
        [],
        heading="Density by layer (counted in the masks)",
        below="share of a layer's weights that is live, logarithmic",
        x="layer",
        y="density (share)",
        mode=mode,
        yaxis={"type": "log"},
        barmode="group",
    )
    return figure.add_traces(bars)


def layer_channels(
    reports: Reconfiguration | Sequence[Reconfiguration], *, mode: Mode = "auto"
) -> go.Figure:
    """Draw the channels that each layer makes, before the first of several cuts and after the last.

    Parameters
    ----------
    reports : Reconfiguration, or sequence of them
        Of one model, in the order in which it was cut, such as ``PruneTrain.reports``.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar before and a bar after for each weight.

    Raises
    ------
    ValueError
        There is no report, or they are of models with other layers.
    """
    several = list(reports) if isinstance(reports, Sequence) else [reports]
    if not several:
        raise ValueError("reports is empty: nothing to draw")
    first, last = several[0].before, several[-1].after
    if list(first) != list(last):
        raise ValueError("reports: the first and the last are of models with other layers")
    bars = []
    for number, (name, sizes) in enumerate((("before", first), ("after", last))):
        parameters = sum(size.parameters for size in sizes.values())
        bars.append(
            _bars(
                number,
                f"{name}: {parameters:,} weights",
                list(sizes),
                [size.channels for size in sizes.values()],
                [f"{s.inputs} → {s.channels}, {s.parameters:,} weights" for s in sizes.values()],
            )
        )
    figure = curve_figure(
        [],
        heading="Channels by layer (counted in the model)",
        below=f"{len(several)} cut{'s' * (len(several) > 1)}; what each layer makes",
        x="layer",
        y="channels (number)",
        mode=mode,
        yaxis={"rangemode": "tozero"},
        barmode="group",
    )
    return figure.add_traces(bars)


def mean_curves(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    by: str = "method",
    log_y: bool = False,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw the mean over repetitions, a line a group, with a band from the lowest to the highest.

    Parameters
    ----------
    table : DataFrame
        One row a measurement; rows of a group with the same `x` are repetitions, such as seeds.
    x, y : str
        Columns of numbers.
    by : str
        Column that names the groups, drawn in the order in which they come.
    log_y : bool
        Whether y is logarithmic.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Groups differ by colour and dash; bands are drawn where there are repetitions.

    Raises
    ------
    ValueError
        A column is missing, or the table is empty.
    """
    if missing := [name for name in (x, y, by) if name not in table]:
        raise ValueError(f"the table lacks {', '.join(missing)}")
    if not len(table):
        raise ValueError("the table is empty: nothing to draw")
    bands, lines, most = [], [], 1
    for number, (name, rows) in enumerate(table.groupby(by, sort=False)):
        found = rows.groupby(x)[y].agg(["mean", "min", "max", "count"])
        most = max(most, int(found["count"].max()))
        hover = f"{plain(x)} %{{x}}<br>{plain(y)} %{{y:.4~g}}"
        lines.append(curve(number, str(name), found.index, found["mean"], hover=hover))
        if (found["count"] > 1).any():
            bands.append(_band(number, found))
    words = f"mean of {most}, with the lowest and the highest" if most > 1 else ""
    return curve_figure(
        [*bands, *lines],
        heading=f"{plain(y[:1].upper() + y[1:])} by {plain(by)} (measured)",
        below=words,
        x=plain(x),
        y=plain(y),
        mode=mode,
        yaxis={"type": "log"} if log_y else {},
    )


def mask_patterns(masks: Mapping[str, torch.Tensor], *, mode: Mode = "auto") -> go.Figure:
    """Draw masks beside each other, live weights dark.

    Parameters
    ----------
    masks : mapping of str to bool tensor, shape (outputs, inputs)
        At most 256 of either; the keys stand above the pictures.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        There is no mask, or one is no matrix or too large to be seen.
    """
    if not masks:
        raise ValueError("masks is empty: nothing to draw")
    count = len(masks)
    wide = 1 / (count + 0.12 * (count - 1))  # of a picture, with gaps of 12% of it
    axes: dict[str, dict[str, object]] = {}
    pictures, words = [], []
    for number, (name, mask) in enumerate(masks.items()):
        if mask.dim() != 2 or max(mask.shape) > 256:
            raise ValueError(
                f"masks[{name!r}] has the shape {tuple(mask.shape)}: wanted a matrix of at most 256"
            )
        own = "" if number == 0 else str(number + 1)
        pictures.append(
            go.Heatmap(
                z=mask.int().tolist(),
                xaxis=f"x{own}",
                yaxis=f"y{own}",
                zmin=0,
                zmax=1,
                colorscale=[[0, "rgba(128,128,128,0.12)"], [1, CATEGORIES[0]]],
                showscale=False,
                xgap=0.5,
                ygap=0.5,
                hovertemplate="output %{y}, input %{x}: %{z}<extra></extra>",
            )
        )
        left = number * 1.12 * wide
        axes[f"xaxis{own}"] = {"domain": [left, left + wide], "anchor": f"y{own}"}
        axes[f"yaxis{own}"] = {"autorange": "reversed", "anchor": f"x{own}"}
        if number:
            quiet = {"zeroline": False, "showgrid": False, "showticklabels": False}
            axes[f"xaxis{own}"] |= quiet
            axes[f"yaxis{own}"] |= quiet
        words.append(
            notice(f"{plain(name)}: {float(mask.float().mean()):.1%}")
            | {"x": left, "y": 1.0, "xanchor": "left", "yanchor": "bottom", "font": {"size": 13}}
        )
    axes["xaxis"]["title"] = {"text": "input"}
    axes["yaxis"]["title"] = {"text": "output"}
    return go.Figure(
        data=pictures,
        layout=base_layout(
            mode=mode,
            title=title("Masks (counted)", "blue: live weights, and their share"),
            annotations=words,
            width=120 + 200 * count,
            height=380,
            **axes,
        ),
    )


def _band(number: int, found: pd.DataFrame) -> go.Scatter:
    """Area between the lowest and the highest."""
    colour = CATEGORIES[number % len(CATEGORIES)]
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    place = found.index.to_numpy()
    return go.Scatter(
        x=np.concatenate([place, place[::-1]]),
        y=np.concatenate([found["max"], found["min"][::-1]]),
        fill="toself",
        fillcolor=f"rgba({r},{g},{b},0.15)",
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
    )


def _bars(
    number: int, name: str, layers: list[str], values: list[float], words: list[str]
) -> go.Bar:
    """Bars of one group; the second is hatched, so that they differ by more than colour."""
    return go.Bar(
        x=[plain(layer) for layer in layers],
        y=values,
        name=plain(name),
        marker={
            "color": CATEGORIES[number % len(CATEGORIES)],
            "pattern": {"shape": ("", "/", ".", "x", "-")[number % 5]},
        },
        customdata=words,
        hovertemplate="%{x}<br>%{y:.4~g}, %{customdata}<extra></extra>",
    )
