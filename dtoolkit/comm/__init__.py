"""What moves between ranks: the communicator and the trace of what it sent."""

from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.pending import Pending
from dtoolkit.comm.trace import Event, Trace

__all__ = ["Communicator", "Event", "Pending", "Trace"]
