"""Cards of what went wrong in a run, and of how recovery policies compare."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dtoolkit.figures import svg
from dtoolkit.figures.html import card, facts, legend, picture, table
from dtoolkit.figures.recovery import SPANS, STRUCK
from dtoolkit.figures.svg import FAINT, FONT
from dtoolkit.figures.theme import CATEGORIES, bytes_text, ink_on, plural, seconds_text

if TYPE_CHECKING:
    from dtoolkit.training import RecoveryPlan
    from dtoolkit.training.recovery import Recovery, RecoveryReport
    from dtoolkit.training.stacked import Assignment, Simulation

__all__ = ["assignment_card", "recovery_card", "recovery_plan_card", "simulation_card"]

MAX_ROWS = 10  # faults that are drawn and listed
MAX_WORDS = 80  # characters of a cell
MAX_SHARDS = 64  # of the stacks that are drawn
WIDE = 300  # pixels of a timeline
_CELL = 26
_USES = {"counted": CATEGORIES[0], "computed as well": CATEGORIES[4], "held": FAINT}


def recovery_card(report: RecoveryReport) -> str:
    """Return the card of a report: what went wrong, how soon it was noticed and got over.

    Parameters
    ----------
    report : RecoveryReport

    Returns
    -------
    str
        HTML with inline SVG.
    """
    entries = list(report)
    policy = report.policy or "no policy"
    left = [("never fired", _cut(text)) for text in report.never_fired[:MAX_ROWS]]
    if not entries:
        return card("Recoveries", "nothing went wrong", facts([("policy", policy), *left]))
    pairs = [
        ("policy", policy),
        ("noticed", _longest([entry.detection for entry in entries])),
        ("went on", _longest([entry.recovery for entry in entries])),
        ("steps lost", f"{sum(entry.steps_lost for entry in entries):,}"),
        ("steps repeated", f"{sum(entry.steps_repeated for entry in entries):,}"),
        ("moved to recover", bytes_text(sum(entry.bytes_moved for entry in entries))),
        *left,
    ]
    heading = f"{plural(len(entries), 'fault')} got over by {policy}"
    pieces = [facts(pairs), _lanes(entries), _table(entries)]
    return card("Recoveries", heading, *pieces, badge="measured")


def recovery_plan_card(plan: RecoveryPlan) -> str:
    """Return the card of a plan: what each policy is expected to cost.

    Parameters
    ----------
    plan : RecoveryPlan

    Returns
    -------
    str
        HTML with inline SVG.
    """
    best = plan.best.name
    rows = [(p.name, min(p.ratio, 200.0), _times(p.ratio), p.name == best) for p in plan.policies]
    words = ", ".join(f"{name} {text}" for name, _, text, _ in rows)
    drawn = svg.bars(rows, label=f"Time over that without failures (modelled): {words}.")
    lines = [
        (
            p.name,
            _times(p.expected),
            "" if p.simulated is None else _times(p.simulated),
            f"{p.redundancy:,}",
            _number(p.endured),
            seconds_text(p.period) if p.period < float("inf") else "none needed",
        )
        for p in plan.policies
    ]
    head = ("policy", "closed form", "simulated", "redundancy", "endures", "checkpoint every")
    return card(
        "Recovery plan",
        f"{plural(plan.groups, 'group')}, best is {best}",
        facts(plan.facts()),
        picture(drawn, f"time to train over that without failures; orange: {best}"),
        table(head, lines, caption="by policy; endures: losses to the wipe-out"),
        badge="modelled",
    )


def simulation_card(simulation: Simulation) -> str:
    """Return the card of a simulation: time to train by policy, and the rules assumed.

    Parameters
    ----------
    simulation : Simulation

    Returns
    -------
    str
        HTML with inline SVG.
    """
    outcomes = simulation.outcomes
    least = min(outcomes, key=lambda one: one.seconds).policy
    rows = [(o.policy, min(o.ratio, 200.0), _times(o.ratio), o.policy == least) for o in outcomes]
    words = ", ".join(f"{name} {text}" for name, _, text, _ in rows)
    lines = [
        (
            o.policy,
            _times(o.ratio),
            f"{o.redundancy:,}",
            f"{o.failures:,}",
            f"{o.wipe_outs:,}",
            f"{o.steps_lost:,}",
            f"{o.computed:.2f}",
        )
        for o in outcomes
    ]
    head = ("policy", "time", "redundancy", "losses", "wipe-outs", "steps lost", "shards a step")
    rules = [(str(number), rule) for number, rule in enumerate(simulation.assumptions, 1)]
    return card(
        "Simulation",
        f"{plural(simulation.groups, 'group')}, {plural(simulation.conditions.steps, 'step')}",
        picture(
            svg.bars(rows, label=f"Time over that without failures (simulated): {words}."),
            f"time to train over that without failures; orange: {least}",
        ),
        table(head, lines, caption="by policy"),
        table(("", "rule"), rules, caption="assumed"),
        badge="simulated",
    )


def assignment_card(assignment: Assignment) -> str:
    """Return the card of an assignment: which shards each group holds, computes and counts.

    Parameters
    ----------
    assignment : Assignment

    Returns
    -------
    str
        HTML with inline SVG.
    """
    n, r = assignment.stacks.groups, assignment.stacks.redundancy
    patched = sum(map(len, assignment.patch))
    pairs = [
        ("groups", f"{len(assignment.alive):,} of {n:,} left"),
        ("shards a group", f"{assignment.S} computed of {r} held"),
        ("moved", plural(assignment.moved, "shard")),
        ("computed again now", plural(patched, "shard")),
    ]
    shown = min(n, max(1, MAX_SHARDS // r))
    more = f", the first {shown} of {n:,}" if shown < n else ""
    return card(
        "Assignment",
        f"{plural(n, 'group')}, each {'shard' if r == 1 else 'stack'} of {r}",
        facts(pairs),
        picture(_stacks(assignment, shown), f"stack of each group{more}", legend(_USES)),
    )


def _lanes(entries: list[Recovery]) -> str:
    """Draw a lane a fault: struck, noticed, going on."""
    shown = entries[:MAX_ROWS]
    times = [t for e in shown for t in (e.injected, e.detected, e.recovered) if t is not None]
    if not times:
        return ""
    first, last = min(times), max(times)
    scale, line, left = WIDE / ((last - first) or 1.0), 18, 24
    body, words = [], []
    for row, entry in enumerate(shown):
        y, fault = row * line, _cut(entry.fault, 48)
        body.append(f'<text x="0" y="{y + 13}" fill="currentColor">{row + 1}</text>')
        body.append(
            f'<rect x="{left}" y="{y + 8}" width="{WIDE}" height="2" fill="{FAINT}"></rect>'
        )
        ends = (entry.injected, entry.detected, entry.recovered)
        for (name, colour), a, b in zip(SPANS.items(), ends[:2], ends[1:], strict=True):
            if a is not None and b is not None:
                body.append(
                    f'<rect x="{left + (a - first) * scale:.1f}" y="{y + 3}" '
                    f'width="{max((b - a) * scale, 1.0):.1f}" height="12" fill="{colour}">'
                    f"<title>{escape(fault)}, {name}: {seconds_text(b - a)}</title></rect>"
                )
        if entry.injected is not None:
            x = left + (entry.injected - first) * scale
            body.append(f'<circle cx="{x:.1f}" cy="{y + 9}" r="4" fill="{STRUCK}"></circle>')
        words.append(f"{row + 1}, {fault}")
    label = f"Timeline of faults (measured): {'; '.join(words)}."
    wide, high = left + WIDE + 6, line * len(shown)
    drawn = (
        f'<svg role="img" aria-label="{escape(label)}" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}" style="{FONT}">{"".join(body)}</svg>'
    )
    more = f", the first {len(shown)} of {len(entries)}" if len(shown) < len(entries) else ""
    caption = f"{seconds_text(first)} to {seconds_text(last)} of the run; a lane a fault{more}"
    return picture(drawn, caption, legend({"struck": STRUCK, **SPANS}))


def _table(entries: list[Recovery]) -> str:
    rows = [
        (
            str(number),
            _cut(entry.fault),
            "" if entry.step is None else str(entry.step),
            _seconds(entry.detection),
            _seconds(entry.recovery),
            _cut(entry.how or entry.kind),
        )
        for number, entry in enumerate(entries[:MAX_ROWS], 1)
    ]
    more = f", the first {len(rows)} of {len(entries)}" if len(rows) < len(entries) else ""
    head = ("", "fault", "step", "noticed after", "went on after", "how")
    return table(head, rows, caption=f"faults, in the order noticed{more}")


def _stacks(assignment: Assignment, shown: int) -> str:
    """Draw a row a group: its types, in order; those computed first."""
    left, r = 40, assignment.stacks.redundancy
    alive = set(assignment.alive)
    body = []
    for row in range(shown):
        y = row * (_CELL - 4)
        name = f"{row}" if row in alive else f"{row} gone"
        body.append(f'<text x="0" y="{y + 15}" fill="currentColor">{name}</text>')
        for slot, shard in enumerate(assignment.order[row] if row in alive else ()):
            use = "held"
            if slot < assignment.S:
                use = "counted" if assignment.supplier[shard] == row else "computed as well"
            colour = _USES[use]
            ink = "currentColor" if use == "held" else ink_on(colour)
            x = left + slot * _CELL
            body.append(
                f'<rect x="{x}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 6}" '
                f'fill="{colour}"><title>group {row}, shard {shard}: {use}</title></rect>'
                f'<text x="{x + _CELL / 2 - 1}" y="{y + 15}" text-anchor="middle" '
                f'fill="{ink}">{shard}</text>'
            )
    wide, high = left + r * _CELL, shown * (_CELL - 4)
    label = (
        f"Stacks of {plural(assignment.stacks.groups, 'group')}, {len(alive)} of them left: each "
        f"computes {assignment.S} of {r} shards."
    )
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}" style="{FONT}">{"".join(body)}</svg>'
    )


def _longest(spans: list[float | None]) -> str:
    known = [span for span in spans if span is not None]
    return f"after {seconds_text(max(known))} at most" if known else "not known"


def _seconds(span: float | None) -> str:
    return "" if span is None else seconds_text(span)


def _cut(text: str, most: int = MAX_WORDS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} ×" if ratio < float("inf") else "given up"


def _number(count: float) -> str:
    return f"{count:,.1f} losses" if count < float("inf") else "any"
