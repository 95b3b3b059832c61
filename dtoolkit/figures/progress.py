"""How far a training run was when: steps, samples and seconds, whatever order its ranks work in."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

__all__ = ["final_loss", "progress", "rate", "waiting", "workers_of"]

TAIL = 0.1  # share of the steps over which the loss at the end is a mean


def workers_of(history: pd.DataFrame) -> list[int]:
    """Workers that the history has columns of.

    Parameters
    ----------
    history : DataFrame
        Of :class:`~dtoolkit.training.Run`.

    Returns
    -------
    list of int
    """
    found = (re.fullmatch(r"samples_(\d+)", str(name)) for name in history.columns)
    return sorted(int(match[1]) for match in found if match)


def progress(history: pd.DataFrame) -> pd.DataFrame:
    """Put what the workers did in the order in which it ended.

    As many steps of workers as there are workers are one row, whoever made them. Where the workers
    go in lockstep, that is the history's own rows. Where they run free, a fast worker's hundredth
    step stands beside the slow one's tenth if they ended together.

    Parameters
    ----------
    history : DataFrame
        Of :class:`~dtoolkit.training.Run`. One without ``end_<rank>`` is taken to be in lockstep.

    Returns
    -------
    DataFrame
        ``step``, steps done, from 1; ``samples``, used so far; ``seconds``, since the first step
        began; ``loss``, the mean over the samples used.
    """
    first = int(history["step"].iloc[0]) if len(history) else 0
    workers = workers_of(history)
    if not len(history) or f"end_{workers[0] if workers else 0}" not in history:
        return pd.DataFrame(
            {
                "step": np.asarray(history["step"]) + 1,
                "samples": np.cumsum(np.asarray(history["samples"])),
                "seconds": np.cumsum(np.asarray(history["seconds"], float)),
                "loss": np.asarray(history["loss"], float),
            }
        )
    end, used, loss = (
        history[[f"{name}_{rank}" for rank in workers]].to_numpy(float)
        for name in ("end", "samples", "loss")
    )
    there = np.isfinite(end)
    order = np.argsort(end[there], kind="stable")
    end, used = end[there][order], np.nan_to_num(used[there][order])
    lost = np.where(used > 0, np.nan_to_num(loss[there][order]) * used, 0.0)
    starts = np.arange(0, len(end), len(workers))
    last = np.minimum(starts + len(workers), len(end)) - 1
    samples = np.add.reduceat(used, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(lost, starts) / samples
    return pd.DataFrame(
        {
            "step": first + np.arange(1, len(starts) + 1),
            "samples": np.cumsum(samples).astype(np.int64),
            "seconds": end[last],
            "loss": mean,
        }
    )


def final_loss(history: pd.DataFrame) -> float:
    """Mean training loss over the samples of the last tenth of the steps; NaN without any."""
    way = progress(history).dropna()
    if not len(way):
        return float("nan")
    last = way.tail(max(1, round(TAIL * len(way))))
    own = np.diff(way["samples"], prepend=0)[-len(last) :]
    return float(np.average(last["loss"], weights=own)) if own.sum() else float("nan")


def rate(history: pd.DataFrame) -> float:
    """Samples used a second, by all workers, from the first step's beginning to the last's end."""
    way = progress(history)
    seconds = float(way["seconds"].iloc[-1]) if len(way) else 0.0
    return float(way["samples"].iloc[-1]) / seconds if seconds else float("nan")


def waiting(history: pd.DataFrame) -> float:
    """Share of the workers' time in steps in which they waited for each other."""
    workers = workers_of(history)
    names = [f"_{rank}" for rank in workers] if workers else [""]
    idle, seconds = (
        sum(float(np.nansum(history[name + end])) for end in names) for name in ("idle", "seconds")
    )
    return idle / seconds if seconds else float("nan")
