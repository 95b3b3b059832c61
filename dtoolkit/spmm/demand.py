"""What one product by a plan asks of a network and of the ranks, for predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtoolkit.spmm.summary import itemsize

if TYPE_CHECKING:
    from dtoolkit.comm import Traffic
    from dtoolkit.spmm.planned import Plan

__all__ = ["demand"]


def demand(plan: Plan, k: int, dtype: Any, c_dtype: Any = None) -> Traffic:
    """Bytes and work of one product, phase by phase, in the order in which a rank takes them.

    Partial rows that leave first are computed before anything is sent (phase "spmm/pack", where
    there are any), those of later stages while the first one moves. Ranks multiply their own
    nonzeros while the stage moves that moves most (:attr:`Plan.busy_stage`), and what came before
    it; while a later one moves, what came in the one before. What is multiplied with rows of the
    last stage comes after it.

    Parameters
    ----------
    plan : Plan
    k : int
        Dense columns.
    dtype, c_dtype : dtype
        Of B and of C; C's is by default B's.

    Raises
    ------
    PlanError
        Naming the argument that is no dtype of a product.
    """
    from dtoolkit.comm import Phase, Traffic

    none = np.zeros(plan.parts, dtype=np.int64)
    still = np.zeros((plan.parts, plan.parts), dtype=np.int64)
    label = f"{plan.strategy} over {plan.parts} ranks, {k} columns"
    itemsize(dtype, "dtype")
    computed = dtype if c_dtype is None else c_dtype
    itemsize(computed, "c_dtype")
    stages = plan.stages
    later = sum((stage.partial for stage in stages[1:]), start=none)
    arriving = sum((stage.remote + stage.through + stage.partial for stage in stages), start=none)
    own = plan.work - arriving
    if not stages:
        return Traffic((Phase("spmm", still, _columns(own, k)),), label, computed, launches=1)
    phases = []
    if stages[0].partial.any():
        packed = _columns(stages[0].partial, k)
        phases.append(Phase("spmm/pack", still, packed))
    sent = plan.stage_bytes(k, dtype, c_dtype)
    for number, (stage, name) in enumerate(zip(stages, plan.phases, strict=True)):
        meanwhile = later if number == 0 else none
        if number == plan.busy_stage:
            meanwhile = sum((one.remote for one in stages[:number]), start=meanwhile + own)
        elif number > plan.busy_stage:
            meanwhile = meanwhile + stages[number - 1].remote
        last = stage.remote if number == len(stages) - 1 else none
        after = stage.through + last
        phases.append(Phase(name, sent[number][1], _columns(meanwhile, k), _columns(after, k)))
    return Traffic(tuple(phases), label, computed, launches=1)


def _columns(nonzeros: Any, k: int) -> Any:
    return nonzeros.astype(np.float64) * k
