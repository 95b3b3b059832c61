"""Networks that several tests look at."""

from __future__ import annotations

import numpy as np

from dtoolkit.comm import Network

GB = 10**9


def two_tier(**more):
    return Network.two_tier(nodes=2, ranks_per_node=2, inter="1GB/s", intra="10GB/s", **more)


def measured(ranks=4, hosts=1, **more):
    values = {
        "latency": np.full((ranks, ranks), 1e-5),
        "bandwidth": np.full((ranks, ranks), 1e9),
        "host_capacity": 7e8,
        "nodes": np.arange(ranks) * hosts // ranks,
    }
    return Network.measured(**{**values, **more})


def one(ranks, source, target, nbytes):
    sent = np.zeros((ranks, ranks), dtype=np.int64)
    sent[source, target] = nbytes
    return sent


def all_kinds():
    return {
        "flat": Network.flat(12, bandwidth=2e9, latency=1e-6),
        "two-tier": Network.two_tier(
            nodes=3, ranks_per_node=4, inter=1e9, intra=5e9, inter_latency=3e-6, node=2e9
        ),
        "dims": Network.dims([("ring", 3, 4e9, 1e-6), ("fc", 2, 3e9, 2e-6), ("sw", 2, 1e9, 3e-6)]),
        "measured": measured(12, 3, message=1e-6),
    }


KINDS = list(all_kinds())
