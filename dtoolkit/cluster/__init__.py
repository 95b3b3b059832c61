"""Where work runs: Dask workers as ranks, launches over them, data that stays on them."""

from dtoolkit.cluster.calibrate import calibrate
from dtoolkit.cluster.cluster import Cluster
from dtoolkit.cluster.context import Context
from dtoolkit.cluster.instrument import Instrument, Site
from dtoolkit.cluster.launch import Launch
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.remote import Remote

__all__ = ["Cluster", "Context", "Instrument", "Launch", "Member", "Remote", "Site", "calibrate"]
