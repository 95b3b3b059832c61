"""Plans in words and tables: loads of the strategies side by side, bytes of dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dtoolkit.comm.amounts import seconds_text
from dtoolkit.errors import PlanError
from dtoolkit.spmm.load import Load
from dtoolkit.spmm.strategies import NAMES

if TYPE_CHECKING:
    from dtoolkit.spmm.choice import Candidate
    from dtoolkit.spmm.planned import Plan

__all__ = ["imbalance", "itemsize", "plan_text", "table"]


def table(loads: Sequence[Load], candidates: Sequence[Candidate] = ()) -> pd.DataFrame:
    """Put loads side by side, one row a strategy (all planned).

    Returns
    -------
    DataFrame
        Index ``strategy``. Columns: ``volume``, rows sent in all; ``share``, of the oblivious
        volume; ``largest_sent`` and ``largest_moved``, rows sent, and sent or received, by the
        busiest rank; ``traffic_imbalance`` and ``work_imbalance``, the busiest rank over the mean
        (1 is even), in rows moved and in nonzeros multiplied; where nodes are known,
        ``between_nodes``, rows sent from one node to another in all; where ``"auto"`` chose by
        predicted time, ``predicted_seconds`` of one product (modelled).
    """
    loads = sorted(loads, key=_rank)
    whole = next((load.volume for load in loads if load.strategy == "oblivious"), 0)
    frame = pd.DataFrame(
        {
            "strategy": [load.strategy for load in loads],
            "volume": [load.volume for load in loads],
            "share": [load.volume / whole if whole else 0.0 for load in loads],
            "largest_sent": [int((load.b_sent + load.c_sent).max()) for load in loads],
            "largest_moved": [int(load.moved.max()) for load in loads],
            "traffic_imbalance": [imbalance(load.moved) for load in loads],
            "work_imbalance": [imbalance(load.work) for load in loads],
        }
    )
    if any(load.between is not None for load in loads):
        frame["between_nodes"] = [load.between for load in loads]
    if candidates:
        seconds = {one.strategy: one.seconds for one in candidates}
        frame["predicted_seconds"] = [seconds.get(load.strategy) for load in loads]
    return frame.set_index("strategy")


def _rank(load: Load) -> int:
    """Order of the known strategies; own ones come last."""
    return NAMES.index(load.strategy) if load.strategy in NAMES else len(NAMES)


def imbalance(values: NDArray[np.int64]) -> float:
    """Largest over mean; 1 where there is nothing."""
    total = float(values.sum())
    return float(values.max()) * len(values) / total if total else 1.0


def plan_text(plan: Plan) -> str:
    """Describe a plan for the terminal, without the matrix."""
    own = plan.own_load
    others = " · ".join(
        f"{load.strategy} {load.volume:,}"
        for load in sorted(plan.loads, key=_rank)
        if load.strategy != plan.strategy
    )
    proof = f", {plan.proof}" if plan.proof else ""
    route = ""
    if len(plan.stages) > 1:
        steps = (f"{stage.name} {stage.volume:,}" for stage in plan.stages)
        route = f"\n  stages    {' -> '.join(steps)}"
    if plan.nodes is not None:
        count = len(np.unique(plan.nodes))
        route += (
            f"\n  nodes     {count:,}: {plan.volume_between_nodes:,} rows between them, "
            f"{plan.volume_inside_nodes:,} inside"
        )
    others = f"  against   {others}"
    if plan.candidates:
        times = (f"{one.strategy} {seconds_text(one.seconds)}" for one in plan.candidates)
        others += f"\n  modelled  {' · '.join(times)}; {plan.candidates[0].bottleneck}"
    lines = [
        f"Plan: {plan.shape[0]:,} x {plan.shape[1]:,} matrix, {plan.nnz:,} nonzeros, over "
        f"{plan.parts:,} part{'s' if plan.parts != 1 else ''} ({plan.rows.kind} rows)",
        f"  strategy  {plan.strategy}: {plan.reason}"
        if plan.reason
        else f"  strategy  {plan.strategy}",
        f"  planned   {plan.volume:,} rows sent a product: {int(own.b_sent.sum()):,} of B and "
        f"{int(own.c_sent.sum()):,} partial ones of C{proof}{route}",
        others,
        f"  busiest   rank moves {int(own.moved.max()):,} rows ({imbalance(own.moved):.2f} of the "
        f"mean), multiplies {int(own.work.max()):,} nonzeros ({imbalance(own.work):.2f})",
        f"  set up    in {plan.setup_seconds:.3g} s (measured)",
    ]
    return "\n".join(lines)


def itemsize(dtype: Any, name: str = "dtype") -> int:
    """Bytes of an element of a NumPy or torch dtype, or of one named by text.

    Raises
    ------
    PlanError
        If it is none, or one that no product has: of objects, text, dates, records.
    """
    if isinstance(dtype, torch.dtype):
        if dtype in _OF_TORCH or dtype.is_floating_point or dtype.is_complex:
            return dtype.itemsize
        raise _no_numbers(dtype, name)
    if isinstance(dtype, str) and dtype == "bfloat16":
        return 2
    try:
        found = None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # NumPy parses text such as "f4,,"
        found = None
    if found is None:
        raise PlanError(f"{name}={dtype!r} is not a dtype: give one of NumPy's or torch's")
    widest = 16 if found.kind == "c" else 8
    if found.name != "bfloat16" and (found.kind not in "biufc" or found.itemsize > widest):
        raise _no_numbers(dtype, name)
    return found.itemsize


_OF_TORCH = (
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)


def _no_numbers(dtype: Any, name: str) -> PlanError:
    return PlanError(
        f"{name}={dtype!r} is no dtype that a product can have: give one of numbers, such as "
        "'float32', 'float64', 'complex64' or torch.bfloat16"
    )
