"""Policies by name."""

from __future__ import annotations

from typing import Any

from dtoolkit.training.recovery.policy import Abort, Policy, Restart
from dtoolkit.training.recovery.surviving import Replica, Shrink, Stacked

__all__ = ["POLICIES", "policy_of"]

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Abort, Restart, Shrink, Replica, Stacked)
}


def policy_of(value: Any) -> Policy:
    """A policy by its name, or the object itself; None is "abort".

    Raises
    ------
    ValueError
        No policy has this name; the text lists those there are.
    TypeError
        It is neither a name nor a policy.
    """
    if value is None:
        return Abort()
    if isinstance(value, str):
        if value not in POLICIES:
            raise ValueError(
                f"recovery={value!r}: there is no such policy; wanted one of {', '.join(POLICIES)}"
            )
        return POLICIES[value]()
    if isinstance(value, Policy):
        return value
    hint = f"; make one of it: {value.__name__}()" if isinstance(value, type) else ""
    raise TypeError(
        f"recovery is {value!r}: wanted one of {', '.join(POLICIES)}, or a policy of "
        f"dtoolkit.training.recovery{hint}"
    )
