"""Strategies by name."""

from dtoolkit.training.strategies.data_parallel import DataParallel

__all__ = ["STRATEGIES", "DataParallel"]

STRATEGIES = {strategy.name: strategy for strategy in (DataParallel,)}
