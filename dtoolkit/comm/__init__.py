"""What moves between ranks, and how long it takes: communicator, trace, and model of networks."""

from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.dimension import Dimension
from dtoolkit.comm.network import Network
from dtoolkit.comm.pending import Pending
from dtoolkit.comm.prediction import Prediction, predict
from dtoolkit.comm.trace import Event, Trace
from dtoolkit.comm.traffic import Phase, Traffic

__all__ = [
    "Communicator",
    "Dimension",
    "Event",
    "Network",
    "Pending",
    "Phase",
    "Prediction",
    "Trace",
    "Traffic",
    "predict",
]
