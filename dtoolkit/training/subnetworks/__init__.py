"""Which worker trains which part of a model, and what that costs: pure plans, and their parts."""

from dtoolkit.training.subnetworks.plan import Block, Part, SubnetworkPlan, plan_subnetworks

__all__ = ["Block", "Part", "SubnetworkPlan", "plan_subnetworks"]
