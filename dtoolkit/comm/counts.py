"""How many rows an exchange sends to each rank, held against the rows that there are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["check_counts"]


def check_counts(
    rows: torch.Tensor,
    send: Sequence[int],
    receive: Sequence[int] | None,
    out: torch.Tensor | None,
    size: int,
) -> None:
    """Refuse counts that do not share out the rows, or an `out` that does not hold what comes.

    Parameters
    ----------
    rows : torch.Tensor
        To send.
    send, receive : sequence of int
        Rows for each rank, and from each.
    out : torch.Tensor or None
        Where to put what comes.
    size : int
        Ranks.

    Raises
    ------
    ValueError
        Naming the argument.
    """
    if rows.dim() == 0:
        raise ValueError("all_to_all_v: rows has no rows to share out (0 dimensions)")
    if len(send) != size or any(n < 0 for n in send) or sum(send) != rows.shape[0]:
        raise ValueError(
            f"all_to_all_v: send_counts {list(send)} do not share out {rows.shape[0]} rows "
            f"over {size} ranks"
        )
    if receive is not None and (len(receive) != size or any(n < 0 for n in receive)):
        raise ValueError(f"all_to_all_v: receive_counts {list(receive)} are not {size} counts")
    if out is None:
        return
    want = (sum(receive or ()), *rows.shape[1:])
    if receive is None or tuple(out.shape) != want or out.dtype != rows.dtype:
        raise ValueError(
            f"all_to_all_v: out is {tuple(out.shape)} {out.dtype}; with receive_counts="
            f"{receive} it must be {want} {rows.dtype}"
        )
    if not out.is_contiguous():
        raise ValueError("all_to_all_v: out must be contiguous")
