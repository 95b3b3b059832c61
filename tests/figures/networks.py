"""Networks and predictions that tests of figures and cards share."""

from __future__ import annotations

import numpy as np

from dtoolkit.comm import Network, Phase, Traffic, predict


def networks():
    """One of each kind, of at most 24 ranks."""
    return {
        "flat": Network.flat(8, bandwidth="10GB/s", latency="5us", rate={"float32": 1e9}),
        "two-tier": Network.two_tier(
            nodes=4, ranks_per_node=4, inter="50GB/s", intra="450GB/s", node="100GB/s"
        ),
        "dims": Network.dims([("ring", 4, 1e11, "0.3us"), ("fc", 2, 5e10), ("sw", 3, 1e9)]),
        "measured": Network.measured(
            latency=np.full((6, 6), 1e-5),
            bandwidth=np.full((6, 6), 1e9),
            host_capacity=[1e9, 2e9],
            nodes=[0, 1, 0, 1, 0, 0],
            error=0.1,
        ),
    }


def wide():
    """Networks of 1,024 ranks."""
    return {
        "flat": Network.flat(1024, bandwidth=1e9),
        "two-tier": Network.two_tier(nodes=128, ranks_per_node=8, inter=5e10, intra=4e11),
        "dims": Network.dims([("ring", 16, 1e11, 1e-6), ("fc", 8, 5e10), ("sw", 8, 2e10)]),
        "odd": Network.dims([("ring", 3, 1e11), ("sw", 337, 1e9)]),
    }


def traffic_of(network, *names, label="joint", seed=0):
    rng = np.random.default_rng(seed)
    ranks = network.ranks
    phases = [
        Phase(
            name, rng.integers(0, 10**7, (ranks, ranks)), np.full(ranks, 1e7), np.full(ranks, 1e5)
        )
        for name in names or ("spread", "sum")
    ]
    return Traffic(tuple(phases), label, "float32")


def prediction_of(network, *names, **more):
    return predict(traffic_of(network, *names, **more), network)
