"""The card of a training run: how it ended, its loss, and what its workers did with their time."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dtoolkit.figures.curves import sparkline
from dtoolkit.figures.html import card, facts, legend, picture
from dtoolkit.figures.progress import progress, workers_of
from dtoolkit.figures.svg import FONT, MAX_LANES
from dtoolkit.figures.theme import CATEGORIES, count_text, seconds_text

if TYPE_CHECKING:
    from dtoolkit.training import Run

__all__ = ["training_card"]

_USES = {"computing": CATEGORIES[2], "waiting": CATEGORIES[1], "exchange and update": CATEGORIES[4]}


def training_card(run: Run) -> str:
    """Return the card of a training run.

    Parameters
    ----------
    run : Run

    Returns
    -------
    str
        HTML with inline SVG: loss over steps, and for each worker how long it computed, waited for
        others, and did the rest: exchange and update.
    """
    emulated = run.trace.emulated
    about = run.facts() + ([("network", f"{emulated} (emulated)")] if emulated else [])
    pieces = [facts(about)]
    if len(run.history):
        pieces.append(_loss(run.history))
    workers = workers_of(run.history)
    if workers and f"compute_{workers[0]}" in run.history:
        pieces.append(_workers(run.history, workers))
    heading = run.heading.removesuffix(" (measured)")
    return card(
        "Training", heading, *pieces, badge="measured, emulated network" if emulated else "measured"
    )


def _loss(history: pd.DataFrame) -> str:
    way = progress(history)
    loss = way["loss"].to_numpy()
    seconds = seconds_text(float(way["seconds"].iloc[-1]))
    samples = count_text(int(way["samples"].iloc[-1]), "samples")
    words = f"training loss from {loss[0]:.3f} to {loss[-1]:.3f} over {len(loss):,} steps"
    return picture(
        sparkline([(loss[np.isfinite(loss)], CATEGORIES[0])], label=words),
        f"training loss over steps; {samples} in {seconds}",
    )


def _workers(history: pd.DataFrame, workers: list[int], width: int = 300) -> str:
    """Draw a bar a worker: its time, by use; the longest fills the width."""
    shown = workers[:MAX_LANES]
    total = {w: float(np.nansum(history[f"seconds_{w}"])) for w in shown}
    longest = max(max(total.values()), 1e-9)
    body, words, left, line = [], [], 24, 18
    for row, worker in enumerate(shown):
        compute, idle = (float(np.nansum(history[f"{n}_{worker}"])) for n in ("compute", "idle"))
        rest = max(0.0, total[worker] - compute - idle)
        body.append(f'<text x="0" y="{row * line + 13}" fill="currentColor">{worker}</text>')
        x = float(left)
        for (use, colour), seconds in zip(_USES.items(), (compute, idle, rest), strict=True):
            wide = seconds / longest * (width - left)
            body.append(
                f'<rect x="{x:.1f}" y="{row * line + 2}" width="{wide:.1f}" height="{line - 4}" '
                f'fill="{colour}"><title>worker {worker}, {use}: {seconds_text(seconds)}'
                "</title></rect>"
            )
            x += wide
        words.append(f"worker {worker} waited {idle / max(total[worker], 1e-9):.0%}")
    label = f"Time of the workers (measured): {', '.join(words)}."
    svg = (
        f'<svg role="img" aria-label="{escape(label)}" width="{width}" height="{line * len(shown)}"'
        f' viewBox="0 0 {width} {line * len(shown)}" style="{FONT}">{"".join(body)}</svg>'
    )
    more = f", the first {len(shown)} of {len(workers)}" if len(shown) < len(workers) else ""
    caption = f"time of each worker in its steps{more}; longest {seconds_text(longest)}"
    return picture(svg, caption, legend(_USES))
