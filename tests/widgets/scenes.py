"""What each panel is made to do for its picture, by keyboard, as a person would do it."""

from __future__ import annotations

from tests.widgets.browsing import fill, press, settles, waits_for

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


def training(page):
    """Two ways of training, one after the other."""
    press(page, "Run")
    waits_for(page, "done")


def speed(page):
    """Four real workers beside their simulation."""


SCENES = {"PartitionPanel": partition, "TrainingPanel": training}
