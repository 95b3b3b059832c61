"""What a saved run consists of, as plain content, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dtoolkit.comm.trace import Trace
from dtoolkit.comm.tracefile import pack_trace, unpack_trace
from dtoolkit.training.recovery.report import Recovery, RecoveryReport
from dtoolkit.training.state import RunState
from dtoolkit.training.statefile import state_of, state_part

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["run_of", "run_parts"]

_PLAIN = {
    "task": str,
    "settings": dict,
    "citation": str,
    "faults": list,
    "recoveries": list,
    "summary": dict,
    "seconds": float,
}


def run_parts(
    *,
    state: RunState,
    history: pd.DataFrame,
    task: str,
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    seconds: float,
    citation: str = "",
    faults: Sequence[str] = (),
    recoveries: Sequence[Mapping[str, Any]] = (),
    never_fired: Sequence[str] = (),
    trace: Trace | None = None,
) -> dict[str, Any]:
    """The parts of a saved run; :class:`~dtoolkit.training.run.Run` says what they are."""
    parts: dict[str, Any] = {
        "state": state_part(state),
        "task": task,
        "settings": dict(settings),
        "citation": citation,
        "faults": list(faults),
        "recoveries": [dict(one) for one in recoveries],
        "never_fired": list(never_fired),
        "summary": dict(summary),
        "seconds": float(seconds),
        "history": {name: _packed(history[name].to_numpy()) for name in history.columns},
    }
    if trace is not None:
        data = pack_trace(trace.events, trace.ranks, trace.clock_error, trace.emulated)
        parts["trace"] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return parts


def run_of(parts: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a :class:`~dtoolkit.training.run.Run` is made of, from the parts of a file.

    Raises
    ------
    ValueError
        The file holds a state alone, or something in it is of the wrong kind.
    """
    state = state_of(parts, name)
    if "history" not in parts:
        raise ValueError(
            f"{name} holds the state of a run and nothing else: RunState.load reads it, and "
            "resume= goes on from it"
        )
    for part, kind in _PLAIN.items():
        if not isinstance(parts.get(part), kind):
            raise ValueError(f"{name}: {part} is missing, or is no {kind.__name__}")
    trace = Trace(ranks=state.workers)
    if "trace" in parts:
        data = bytes(parts["trace"].numpy().tobytes())
        events, ranks, clock_error, emulated = unpack_trace(data, f"{name}, its trace")
        trace = Trace(events, ranks=ranks, clock_error=clock_error, emulated=emulated)
    return {
        "state": state,
        "history": _table(parts["history"], name),
        "trace": trace,
        **{part: parts[part] for part in _PLAIN},
        "recoveries": RecoveryReport(
            map(Recovery.of, parts["recoveries"]), never_fired=parts.get("never_fired", ())
        ),
    }


def _table(columns: Any, name: str) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.DataFrame({column: np.asarray(values) for column, values in columns.items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{name}: its history is no table ({error})") from None


def _packed(values: Any) -> torch.Tensor:
    whole = np.issubdtype(values.dtype, np.integer)
    return torch.from_numpy(values.astype(np.int64 if whole else np.float64))
