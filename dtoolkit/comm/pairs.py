"""Messages of sizes that both ends know: without headers, and with one wait for all of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dtoolkit.comm.pending import Pending
from dtoolkit.comm.transport import Transport

__all__ = ["between_pairs"]


def between_pairs(
    transport: Transport,
    sends: Mapping[int, torch.Tensor],
    receives: Mapping[int, torch.Tensor],
    tag: int,
) -> list[Pending]:
    """Start messages between this rank and some others, who know of them; nothing collective.

    Parameters
    ----------
    transport : Transport
    sends, receives : mapping of int to tensor
        Rank to what it gets, or to what is filled with what it sends: flat, uint8, on the host,
        not empty.
    tag : int
        Messages of one tag arrive in the order in which they were sent.

    Returns
    -------
    list of Pending
        All of them are to be waited for.
    """
    if transport.in_order:  # there an exchange takes all ranks
        sent = [transport.send(data, peer, tag) for peer, data in sends.items()]
        came = [transport.receive(data, peer, tag)[0] for peer, data in receives.items()]
        return [*sent, *came]
    ranks = range(transport.size)
    there, here = [sends.get(peer) for peer in ranks], [receives.get(peer) for peer in ranks]
    return [transport.exchange(there, here, tag)]
