"""Questions and answers in blocks: lengths about a block's, who asked, and bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtoolkit.comm.mailbox import Mailbox

LENGTHS = [0, 1, 503, 504, 505, 3000]  # 504 bytes fit in a block
TOLD = 700


def asked(ctx: Any, in_order: bool) -> list[str]:
    """Rank 0 answers each question by its bytes, one up, twice over."""
    comm = ctx.comm.twin()
    comm._transport.in_order = in_order
    box, wrong = Mailbox(comm), []
    if ctx.rank == 0:
        told: list[int] = []
        for _ in range((len(LENGTHS) + 1) * (ctx.size - 1)):
            data, source = box.take().wait()
            if len(data) == TOLD:  # a rank may be through before another has asked its last
                told.append(source)
                continue
            for call in box.answer({source: torch.cat([data, data]) + source}).values():
                call.wait()
        return [] if sorted(told) == list(range(1, ctx.size)) else [f"told: {told}"]
    for length in LENGTHS:
        data = torch.arange(length).to(torch.uint8)
        sent = ctx.recorder.sent
        reply = box.ask(data, 0)
        if not torch.equal(reply, torch.cat([data, data]) + ctx.rank):
            wrong.append(f"{length} bytes: {reply}")
        if ctx.recorder.sent - sent != length:
            wrong.append(f"{length} bytes: {ctx.recorder.sent - sent} counted")
    for call in box.tell(torch.zeros(TOLD, dtype=torch.uint8), 0):
        call.wait()
    return wrong


@pytest.mark.parametrize(("ranks", "in_order"), [(2, True), (4, False)])
def test_questions_are_answered(cluster_of: Any, ranks: int, in_order: bool) -> None:
    assert cluster_of(ranks).run(asked, in_order, timeout=60) == [[]] * ranks


def test_both_ends_are_in_the_trace(cluster2: Any) -> None:
    before = len(cluster2.trace)
    cluster2.run(asked, False, timeout=60)
    events = [e for e in list(cluster2.trace)[before:] if e.operation in ("send", "recv")]
    for rank, sent, came in ((0, 2, 1), (1, 1, 2)):
        mine = [event for event in events if event.rank == rank]
        told = TOLD if rank == 1 else 0
        assert sum(sum(event.sent) for event in mine) == sent * sum(LENGTHS) + told
        heard = TOLD if rank == 0 else 0
        assert sum(event.received for event in mine) == came * sum(LENGTHS) + heard
        assert all(event.start <= event.end for event in mine)
