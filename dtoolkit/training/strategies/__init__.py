"""Strategies by name."""

from dtoolkit.training.strategies.data_parallel import DataParallel
from dtoolkit.training.strategies.drop_compute import DropCompute
from dtoolkit.training.strategies.gossip import Gossip, GossipPairs
from dtoolkit.training.strategies.local_sgd import LocalSGD

__all__ = ["STRATEGIES", "DataParallel", "DropCompute", "Gossip", "GossipPairs", "LocalSGD"]

STRATEGIES = {
    strategy.name: strategy
    for strategy in (DataParallel, DropCompute, Gossip, GossipPairs, LocalSGD)
}
