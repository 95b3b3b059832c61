"""What moves between ranks: the communicator and the trace of what it sent."""

from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.trace import Event, Trace
from dtoolkit.comm.transport import Pending

__all__ = ["Communicator", "Event", "Pending", "Trace"]
