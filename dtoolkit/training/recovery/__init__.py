"""What a run does when something goes wrong, and the report of it."""

from dtoolkit.training.recovery.policies import POLICIES
from dtoolkit.training.recovery.policy import Abort, Policy, Restart
from dtoolkit.training.recovery.report import Recovery, RecoveryReport
from dtoolkit.training.recovery.surviving import Replica, Shrink, Stacked

__all__ = [
    "POLICIES",
    "Abort",
    "Policy",
    "Recovery",
    "RecoveryReport",
    "Replica",
    "Restart",
    "Shrink",
    "Stacked",
]
