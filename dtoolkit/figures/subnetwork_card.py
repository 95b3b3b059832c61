"""Card of a plan of subnetworks: who holds what, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtoolkit.figures.html import card, facts, table

if TYPE_CHECKING:
    from dtoolkit.training.subnetworks import SubnetworkPlan

__all__ = ["subnetwork_card"]

MAX_ROWS = 16  # blocks that are listed
MAX_WORKERS = 8  # holders that are named


def subnetwork_card(plan: SubnetworkPlan) -> str:
    """Return the card of a plan.

    Parameters
    ----------
    plan : SubnetworkPlan

    Returns
    -------
    str
        HTML.
    """
    rows = []
    for block in plan.blocks[:MAX_ROWS]:
        part = "all" if block.rows is None else f"neurons {block.rows[0]} to {block.rows[1] - 1}"
        named = ", ".join(map(str, block.holders[:MAX_WORKERS]))
        more = " ..." if len(block.holders) > MAX_WORKERS else ""
        rows.append((block.module, part, f"{len(block):,}", f"{named}{more}"))
    hidden = len(plan.blocks) - len(rows)
    caption = "blocks and the workers that hold them"
    if hidden > 0:
        caption += f"; {hidden:,} more are not shown"
    listed = table(("module", "part", "parameters", "workers"), rows, caption=caption)
    heading = f"coverage {plan.coverage:g} by {plan.by}, {plan.workers} workers"
    return card("Subnetworks", heading, facts(plan.facts()), listed, badge="planned")
