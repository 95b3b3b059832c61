"""What each panel is made to do for its picture, by keyboard, as a person would do it."""

from __future__ import annotations

from tests.widgets.browsing import choose, fill, press, settles, tab_to, waits_for

PANELS = (
    "PartitionPanel",
    "TrafficPanel",
    "FaultPanel",
    "TrainingPanel",
    "SchedulePanel",
    "SpeedPanel",
)


def partition(page):
    """A plan for four parts, and its multiplication on four workers."""
    fill(page, "Parts", 4)
    waits_for(page, "4 parts")
    settles(page)
    press(page, "Run on the workers")
    waits_for(page, "Measured on 4 workers")


def traffic(page):
    """One product by two plans, side by side."""
    press(page, "Run on the workers")
    waits_for(page, "Product, joint on 4")
    settles(page)
    tab_to(page, "What to run")
    page.keyboard.press("ArrowDown")
    settles(page)
    press(page, "Run on the workers")
    waits_for(page, "Product, oblivious on 4")
    settles(page)
    tab_to(page, "Beside it")
    page.keyboard.press("ArrowDown")
    waits_for(page, "Product, joint on 4")


def fault(page):
    """A worker is killed at its step, another one by hand, and the result is compared."""
    press(page, "Run")
    waits_for(page, ", loss ")
    fill(page, "Rank", 3)
    press(page, "Kill")
    waits_for(page, "steps done")
    settles(page)
    press(page, "Is the result still right?")
    waits_for(page, "to the bit")


def training(page):
    """Three ways of training, one after the other."""
    press(page, "Run")
    waits_for(page, "1: data-parallel: 150 steps done")
    settles(page)
    for number, word in ((2, "local"), (3, "gossip")):
        choose(page, "Strategy", word)
        settles(page)
        press(page, "Run")
        waits_for(page, f"{number}: {word}")
        settles(page)


def speed(page):
    """Four real workers beside their simulation."""
    press(page, "Run on the workers")
    waits_for(page, "Measured on 4 workers")


SCENES = {
    "PartitionPanel": partition,
    "TrafficPanel": traffic,
    "FaultPanel": fault,
    "TrainingPanel": training,
    "SpeedPanel": speed,
}
