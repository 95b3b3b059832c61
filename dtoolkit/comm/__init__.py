"""What moves between ranks, and how long it takes: communicator, trace, and model of networks."""

from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.dimension import Dimension
from dtoolkit.comm.grid_reduce import all_reduce_scheduled, grid_groups
from dtoolkit.comm.iterations import Iteration, iteration, iteration_gains
from dtoolkit.comm.network import Network
from dtoolkit.comm.pending import Pending
from dtoolkit.comm.prediction import Prediction, predict
from dtoolkit.comm.replay import Replay
from dtoolkit.comm.schedules import Schedule, schedule
from dtoolkit.comm.simulation import Simulation, simulate
from dtoolkit.comm.topologies import topology
from dtoolkit.comm.trace import Event, Trace
from dtoolkit.comm.traffic import Phase, Traffic

__all__ = [
    "Communicator",
    "Dimension",
    "Event",
    "Iteration",
    "Network",
    "Pending",
    "Phase",
    "Prediction",
    "Replay",
    "Schedule",
    "Simulation",
    "Trace",
    "Traffic",
    "all_reduce_scheduled",
    "grid_groups",
    "iteration",
    "iteration_gains",
    "predict",
    "schedule",
    "simulate",
    "topology",
]
