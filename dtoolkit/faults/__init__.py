"""What goes wrong, on purpose: slow workers, and how long delays are."""

from dtoolkit.faults import delays
from dtoolkit.faults.slow import Slow

__all__ = ["Slow", "delays"]
