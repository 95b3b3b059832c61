"""Process groups are never destroyed by whoever happens to hold the last reference."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.cluster import mesh
from dtoolkit.comm.pending import Interrupt
from dtoolkit.comm.transport import GlooTransport
from dtoolkit.errors import CommunicationError


class Group:
    """A process group whose destruction is noted."""

    destroyed: list[str] = []  # noqa: RUF012 - names of threads

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1

    def __del__(self) -> None:
        self.destroyed.append(threading.current_thread().name)


def ended(count: int) -> list[str]:
    end = time.monotonic() + 10
    while len(Group.destroyed) < count and time.monotonic() < end:
        time.sleep(0.002)
    return Group.destroyed


def test_a_transport_that_somebody_keeps_does_not_keep_its_group() -> None:
    Group.destroyed.clear()
    kept = GlooTransport(Group(), Interrupt(), lambda members, name: kept)
    mesh._drop_later(mesh._released([kept]))
    assert ended(1) == ["dtoolkit-drop"]
    with pytest.raises(CommunicationError, match=r"ctx\.rebuild"):
        kept.send(torch.zeros(3, dtype=torch.uint8), 0, 1)


def test_the_thread_that_drops_has_the_last_reference() -> None:
    Group.destroyed.clear()
    for _ in range(50):
        groups: list[Any] = [Group(), Group()]
        mesh._drop_later(groups)
        assert groups == []
    assert ended(100) == ["dtoolkit-drop"] * 100


def test_a_communicator_kept_beyond_its_launch_says_so(cluster2: dt.Cluster) -> None:
    def keep(ctx: Any) -> None:
        import builtins

        builtins.kept_pair = ctx.comm.split(0)  # type: ignore[attr-defined]

    def use(ctx: Any) -> str:
        import builtins

        try:
            builtins.kept_pair.barrier()  # type: ignore[attr-defined]
        except CommunicationError as error:
            return str(error)
        finally:
            del builtins.kept_pair  # type: ignore[attr-defined]
        return "no error"

    cluster2.run(keep)
    assert all("is over" in said for said in cluster2.run(use))
