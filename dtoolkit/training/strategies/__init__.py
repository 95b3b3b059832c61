"""Strategies by name."""

from dtoolkit.training.strategies.asyncmesh import AsyncMesh
from dtoolkit.training.strategies.data_parallel import DataParallel
from dtoolkit.training.strategies.drop_compute import DropCompute
from dtoolkit.training.strategies.dslide import DSlide
from dtoolkit.training.strategies.gossip import Gossip, GossipPairs
from dtoolkit.training.strategies.local_sgd import LocalSGD
from dtoolkit.training.strategies.ordered import Ordered
from dtoolkit.training.strategies.oscars import Oscars
from dtoolkit.training.strategies.parameter_server import (
    AsyncParameterServer,
    BoundedStaleness,
    ParameterServer,
)
from dtoolkit.training.strategies.subnetwork import Subnetwork
from dtoolkit.training.strategies.zero import Zero

__all__ = [
    "STRATEGIES",
    "AsyncMesh",
    "AsyncParameterServer",
    "BoundedStaleness",
    "DSlide",
    "DataParallel",
    "DropCompute",
    "Gossip",
    "GossipPairs",
    "LocalSGD",
    "Ordered",
    "Oscars",
    "ParameterServer",
    "Subnetwork",
    "Zero",
]

STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        DataParallel,
        Ordered,
        ParameterServer,
        AsyncParameterServer,
        BoundedStaleness,
        Gossip,
        GossipPairs,
        LocalSGD,
        Oscars,
        DropCompute,
        DSlide,
        AsyncMesh,
        Zero,
        Subnetwork,
    )
}
