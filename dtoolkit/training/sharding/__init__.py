"""What ZeRO's stages share: parameters in flat units, of which each rank keeps a piece.

:mod:`~dtoolkit.training.sharding.formulas` has what a stage costs, as pure functions.
"""

from dtoolkit.training.sharding.formulas import memory, words

__all__ = ["memory", "words"]
