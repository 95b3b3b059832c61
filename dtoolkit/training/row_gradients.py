"""Gradients that are no ``.grad``: refused where a strategy would not bring them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.strategy import Strategy

__all__ = ["check_row_gradients"]


def check_row_gradients(replica: Replica, strategy: Strategy, workers: int) -> None:
    """Refuse an optimizer that takes gradients by rows where several workers send others.

    Parameters
    ----------
    replica : Replica
    strategy : Strategy
    workers : int
        That learn together.

    Raises
    ------
    TypeError
    """
    if workers == 1 or strategy.row_gradients:
        return
    if getattr(replica.optimizer, "row_gradients", False):
        raise TypeError(
            f"strategy={strategy.name!r}: the optimizer is {type(replica.optimizer).__name__}, "
            f"whose gradients by rows it does not send between {workers} workers: wanted "
            "'dslide', one worker, or a layer with dense gradients (output='full')"
        )
