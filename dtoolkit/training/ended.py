"""What the ranks of a run give back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtoolkit.errors import WipeOut

if TYPE_CHECKING:
    from dtoolkit.training.state import RunState

__all__ = ["Ended", "state_in"]


@dataclass(frozen=True)
class Ended:
    """What a rank gives back; the state comes from rank 0 alone.

    Attributes
    ----------
    state : RunState or None
    summary : dict
        What the strategy says of itself.
    stopped : bool
        The run was told to stop before its last step.
    seconds : float
        From the first step to the end, with all that is around the steps.
    """

    state: RunState | None
    summary: dict[str, Any]
    stopped: bool
    seconds: float


def state_in(ended: Sequence[Ended]) -> tuple[RunState, dict[str, Any]]:
    """State and summary of a run, from what its ranks gave back.

    Raises
    ------
    WipeOut
        The rank that had the state was lost after the last step.
    """
    for one in ended:
        if one.state is not None:
            return one.state, one.summary
    raise WipeOut(step=0, why="the worker that had put it together was lost after the last step")
