"""What a run does when something goes wrong, and the report of it."""

from dtoolkit.training.recovery.policy import POLICIES, Abort, Policy, Restart
from dtoolkit.training.recovery.report import Recovery, RecoveryReport

__all__ = ["POLICIES", "Abort", "Policy", "Recovery", "RecoveryReport", "Restart"]
