"""Cards of a plan of cuts and of what was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtoolkit.sparsity.channels.plan import CutPlan
    from dtoolkit.sparsity.channels.report import Reconfiguration

__all__ = ["plan_card", "reconfiguration_card"]

_ROWS = 60


def plan_card(plan: CutPlan) -> str:
    """Draw a plan as HTML for a notebook: groups of channels, and what stays whole."""
    from dtoolkit.figures.html import card, facts, table

    rows = [
        [
            ", ".join(group.made_by),
            ", ".join(group.read_by),
            f"{group.width:,}",
            f"{group.width - len(group.cut):,}",
        ]
        for group in plan.groups[:_ROWS]
    ]
    caption = "Channels that go together, before and after." + _more(len(plan.groups))
    return card(
        "Cut plan",
        f"{plan.cut:,} of {plan.width:,} channels go",
        facts(_remarks(plan)),
        table(["made by", "read by", "channels", "after"], rows, caption=caption),
        _whole(plan),
        badge="planned",
    )


def reconfiguration_card(report: Reconfiguration) -> str:
    """Draw a report as HTML for a notebook: layers before and after."""
    from dtoolkit.figures.html import card, facts, table

    plan, (much, less) = report.plan, report.flops
    pairs = [
        ("channels", f"{plan.width:,} before, {plan.width - plan.cut:,} after"),
        ("parameters", "{:,} before, {:,} after".format(*report.parameters)),
        ("FLOPs of the example", f"{much:.4g} before, {less:.4g} after"),
        ("bytes with optimizer", "{:,} before, {:,} after".format(*report.bytes)),
        *_remarks(plan),
    ]
    rows = []
    for name, old in list(report.before.items())[:_ROWS]:
        new = report.after[name]
        rows.append(
            [
                name,
                f"{old.inputs} → {old.channels}",
                f"{new.inputs} → {new.channels}",
                f"{old.parameters:,}",
                f"{new.parameters:,}",
                f"{old.flops:.4g}",
                f"{new.flops:.4g}",
            ]
        )
    head = ["layer", "channels before", "after", "parameters", "after", "FLOPs", "after"]
    caption = "Layers before and after the cut: smaller dense shapes." + _more(len(report.before))
    old_count, new_count = report.parameters
    share = 1 - new_count / max(old_count, 1)
    return card(
        "Reconfiguration",
        f"{plan.cut:,} channels and {share:.0%} of the parameters cut",
        facts(pairs),
        table(head, rows, caption=caption),
        _whole(plan),
        badge="measured",
    )


def _remarks(plan: CutPlan) -> list[tuple[str, str]]:
    pairs = [("kept", note) for note in plan.notes[:8]]
    if plan.failure:
        pairs.append(("not traced", plan.failure))
    elif plan.untraced:
        pairs.append(("not used by the example", ", ".join(plan.untraced)))
    return pairs


def _whole(plan: CutPlan) -> str:
    from dtoolkit.figures.html import table

    if not plan.whole:
        return ""
    rows = [[", ".join(w.layers), f"{w.width:,}", w.reason] for w in plan.whole[:_ROWS]]
    caption = "Widths that stay whole." + _more(len(plan.whole))
    return table(["layers", "width", "reason"], rows, caption=caption)


def _more(count: int) -> str:
    return f" The first {_ROWS} of {count}." if count > _ROWS else ""
