"""What goes wrong, on purpose: faults at an exact rank and point, and slow workers.

A fault names a rank (or the two ends of a link) and one point: a step and a part of it, an
operation of the communicator, or a time. It happens on the rank itself and is real: signals to
processes, sockets that are shut down, an allocator that refuses. :func:`inject` lets faults happen
in whatever a cluster runs; ``dt.train(faults=[...])`` in a training; :func:`random_plan` draws
them. What becomes of them is the matter of who runs: faults know nothing of recovery.
"""

from dtoolkit.faults import delays
from dtoolkit.faults.corrupt import Corrupt
from dtoolkit.faults.ending import Hang, Kill, Raise
from dtoolkit.faults.fault import Fault, Moment
from dtoolkit.faults.injection import Fired, Injection, inject
from dtoolkit.faults.links import CutLink, SlowLink
from dtoolkit.faults.memory import OutOfMemory
from dtoolkit.faults.plans import KINDS, random_plan
from dtoolkit.faults.slow import Slow

__all__ = [
    "KINDS",
    "Corrupt",
    "CutLink",
    "Fault",
    "Fired",
    "Hang",
    "Injection",
    "Kill",
    "Moment",
    "OutOfMemory",
    "Raise",
    "Slow",
    "SlowLink",
    "delays",
    "inject",
    "random_plan",
]
