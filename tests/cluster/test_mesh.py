"""Process groups are never destroyed by whoever happens to hold the last reference."""

from __future__ import annotations

import gc
import os
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
    for use in (
        lambda: kept.send(torch.zeros(3, dtype=torch.uint8), 0, 1),
        lambda: kept.subgroup([0], "inner"),
    ):
        with pytest.raises(CommunicationError, match=r"ctx\.rebuild"):
            use()


def test_a_dropped_mesh_closes_its_files_without_the_collector(cluster1: dt.Cluster) -> None:
    """Its transports hold what forms subgroups, which holds the mesh: a cycle, with sockets."""

    def work(ctx: Any) -> tuple[int, int]:
        place = mesh.Assignment("once", 0, 1, "", 0, (ctx.address,), False, 10.0)

        def settled() -> int:
            end = time.monotonic() + 5
            while any(t.name.startswith("dtoolkit-drop") for t in threading.enumerate()):
                assert time.monotonic() < end
                time.sleep(0.002)
            return len(os.listdir("/dev/fd"))

        gc.disable()
        try:
            before = settled()
            for _ in range(5):
                mesh.Mesh(place, "127.0.0.1", Interrupt()).drop()
            return before, settled()
        finally:
            gc.enable()

    (counts,) = cluster1.run(work)
    assert counts[1] <= counts[0] + 2, counts


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
