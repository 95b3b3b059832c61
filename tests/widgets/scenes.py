"""What each panel is made to do for its picture, by keyboard, as a person would do it."""

from __future__ import annotations

from tests.widgets.browsing import fill, press, settles, tab_to, waits_for

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


def training(page):
    """Two ways of training, one after the other."""
    press(page, "Run")
    waits_for(page, "done")


def speed(page):
    """Four real workers beside their simulation."""


SCENES = {"PartitionPanel": partition, "TrafficPanel": traffic, "TrainingPanel": training}
