"""Cards of scaling studies: what is planned, and what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from dtoolkit.figures.html import card, facts, table
from dtoolkit.figures.theme import bytes_text, count_text, plural

if TYPE_CHECKING:
    from dtoolkit.training.study import Study, StudyPlan

__all__ = ["study_card", "study_plan_card"]

MAX_ROWS = 12
MAX_WORDS = 160  # characters of a reason


def study_plan_card(plan: StudyPlan) -> str:
    """Return the card of a plan: how many settings are measured, modelled, left out, and why.

    Parameters
    ----------
    plan : StudyPlan

    Returns
    -------
    str
        HTML.
    """
    reasons = plan.table().groupby(["how", "why"], sort=False).size()
    reasons = reasons.sort_values(ascending=False, kind="stable").head(MAX_ROWS)
    lines = [(how, f"{count:,}", _cut(why)) for (how, why), count in reasons.items()]
    return card(
        "Plan of a study",
        plural(len(plan.entries), "setting"),
        facts(plan.facts()),
        table(("what is done", "settings", "why"), lines, caption="the most frequent reasons"),
        badge="planned",
    )


def study_card(study: Study) -> str:
    """Return the card of a study: the best setting by model, workers and batch; who was stopped.

    Parameters
    ----------
    study : Study

    Returns
    -------
    str
        HTML.
    """
    results = study.results
    pieces = [facts(study.facts())]
    best = study.best_by_workers()
    if len(best):
        shown = best.head(MAX_ROWS)
        more = f", the first {len(shown)} of {len(best):,}" if len(shown) < len(best) else ""
        pieces.append(
            table(
                ("model", "workers", "strategy", "batch", "samples/s", "memory", "loss", "source"),
                [_line(row) for _, row in shown.iterrows()],
                caption=f"the fastest that fits{more}",
            )
        )
    stopped = results[results["outcome"].isin(("stopped", "failed"))]
    if len(stopped):
        lines = [
            (row["model"], f"{row['learning_rate']:g}", row["strategy"], _cut(row["why"]))
            for _, row in stopped.head(MAX_ROWS).iterrows()
        ]
        head = ("model", "learning rate", "strategy", "why")
        pieces.append(table(head, lines, caption=f"stopped early: {len(stopped):,}"))
    sources = ", ".join(sorted(set(results["source"])))
    return card("Study", plural(len(results), "setting"), *pieces, badge=sources)


def _line(row: pd.Series) -> tuple[str, ...]:
    loss = "" if pd.isna(row["loss"]) else f"{row['loss']:.4g}"
    return (
        row["model"],
        f"{row['workers']:,}",
        row["strategy"],
        f"{row['batch']:,} in {row['micro_batch']:,}",
        count_text(row["samples_per_second"]),
        bytes_text(row["memory"]),
        loss,
        row["source"],
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…"
