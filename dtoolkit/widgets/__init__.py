"""What people touch: panels over the figures and the public calls, for notebooks.

A panel is shown by being the last expression of a cell. Nothing here is imported by
``import dtoolkit``; ``dt.widgets`` imports it when it is first asked for.
"""

from dtoolkit.errors import MissingPackage

try:
    from dtoolkit.widgets.base import Panel
    from dtoolkit.widgets.fault_panel import FaultPanel
    from dtoolkit.widgets.partition_panel import PartitionPanel
    from dtoolkit.widgets.schedule_panel import SchedulePanel
    from dtoolkit.widgets.speed_panel import SpeedPanel
    from dtoolkit.widgets.traffic_panel import TrafficPanel
    from dtoolkit.widgets.training_panel import TrainingPanel
except ModuleNotFoundError as error:
    if error.name not in ("ipywidgets", "anywidget"):
        raise
    raise MissingPackage(error.name, extra="lab", purpose="dtoolkit.widgets") from error

__all__ = [
    "FaultPanel",
    "Panel",
    "PartitionPanel",
    "SchedulePanel",
    "SpeedPanel",
    "TrafficPanel",
    "TrainingPanel",
]
