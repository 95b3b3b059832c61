"""Elastic launches whose next group is lost too: as it is asked for, forms, or has just formed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.cluster import Site
from dtoolkit.errors import PeerLost, RankError

HUNG = 1.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=4, device="cpu", timeout=25) as one:
        yield one


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def once(path: str, name: int | str) -> bool:
    """Whether this is the first that comes here, of all processes."""
    try:
        Path(f"{path}.{name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def ends_while_forming(end: Callable[[], None], moment: str) -> None:
    """Have this process end in the group that it forms next: before, in the middle, or after."""
    from dtoolkit.cluster.mesh import Mesh

    original = Mesh._form

    def form(mesh: Mesh, members: Any, name: str) -> Any:
        if moment == "before":
            end()
        if moment == "in the middle":
            mesh._store.set = lambda *_: end()
        made = original(mesh, members, name)
        end()
        return made

    form.original = original  # type: ignore[attr-defined]
    Mesh._form = form  # type: ignore[method-assign]


def go_on(ctx: Any, size: int | None = None) -> tuple[int, float]:
    """Size and sum of the first group in which an all-reduce succeeds."""
    while True:
        try:
            total = float(ctx.comm.all_reduce(torch.ones(1000))[0])
            ctx.comm.barrier()  # nobody leaves while another has not got it
            return ctx.size, total
        except PeerLost:
            ctx.rebuild(size, timeout=10)


@pytest.mark.parametrize("moment", ["before", "in the middle", "after"])
@pytest.mark.parametrize(("first", "then"), [(3, (1,)), (3, (0,)), (0, (1,)), (2, (0, 3))], ids=str)
def test_a_loss_while_the_next_group_forms(
    cluster: dt.Cluster, first: int, then: tuple[int, ...], moment: str
) -> None:
    def work(ctx: Any) -> tuple[int, float]:
        if not ctx.joined:
            ctx.comm.barrier()
            if ctx.rank == first:
                die()
            if ctx.rank in then:
                ends_while_forming(die, moment)
        return go_on(ctx, size=4)

    assert cluster.run(work, elastic=True, timeout=20) == [(4, 4.0)] * 4


@pytest.mark.parametrize("moment", ["before", "in the middle"])
def test_a_rank_that_hangs_while_the_next_group_forms(cluster: dt.Cluster, moment: str) -> None:
    def work(ctx: Any) -> tuple[int, float]:
        if not ctx.joined:
            ctx.comm.barrier()
            if ctx.rank == 3:
                die()
            if ctx.rank == 1:
                ends_while_forming(stop, moment)
        return go_on(ctx, size=4)

    assert cluster.run(work, elastic=True, timeout=20, deadline=HUNG) == [(4, 4.0)] * 4


class DeadlyToRead:
    """Lets one process that reads it end in the group that it forms next: the n-th, from 0."""

    def __init__(self, path: Path, reader: int) -> None:
        self.path, self.reader = str(path), reader

    def __reduce__(self) -> Any:
        return _read, (self.path, self.reader)


def _read(path: str, reader: int) -> None:
    number = 0
    while not once(path, number):
        number += 1
    if number == reader:
        ends_while_forming(die, "in the middle")


@pytest.mark.parametrize("reader", [0, 2, 4], ids=["first", "third", "newcomer"])
def test_one_that_goes_in_the_first_group_it_forms(
    cluster: dt.Cluster, tmp_path: Path, reader: int
) -> None:
    def work(ctx: Any, _: None) -> tuple[int, float]:
        if not ctx.joined and reader == 4:
            ctx.comm.barrier()
            if ctx.rank == 1:
                die()
        return go_on(ctx, size=4)

    cluster._gang.break_group()
    deadly = DeadlyToRead(tmp_path / "read", reader)
    answers = cluster.run(work, deadly, elastic=True, timeout=20)
    assert answers in ([(4, 4.0)] * 4, [(3, 3.0)] * 3)  # with the replacement or before it came


def refuse() -> None:
    raise RuntimeError("no connection to be had")


@pytest.mark.parametrize("end", [die, refuse])
def test_a_subgroup_that_cannot_be_formed(cluster: dt.Cluster, end: Callable[[], None]) -> None:
    def work(ctx: Any) -> tuple[bool, tuple[int, float]]:
        split = False
        if not ctx.joined:
            if ctx.rank == 1:
                ends_while_forming(end, "before")
            try:
                ctx.comm.split(0)
                split = True
            except PeerLost:
                from dtoolkit.cluster.mesh import Mesh

                Mesh._form = getattr(Mesh._form, "original", Mesh._form)  # type: ignore
                ctx.rebuild(4)
        return split, go_on(ctx, size=4)

    assert cluster.run(work, elastic=True, timeout=20) == [(False, (4, 4.0))] * 4


@pytest.mark.parametrize("victim", [0, 2])
def test_two_at_once_and_a_newcomer_that_goes_at_once(
    cluster: dt.Cluster, tmp_path: Path, victim: int
) -> None:
    def work(ctx: Any, path: str) -> tuple[int, float]:
        if ctx.joined and once(path, "newcomer"):
            die()
        if not ctx.joined:
            ctx.comm.barrier()
            if ctx.rank in (victim, 1):
                die()
        return go_on(ctx, size=4)

    answers = cluster.run(work, str(tmp_path / "a"), elastic=True, timeout=20)
    assert answers == [(4, 4.0)] * 4


class Kills:
    """Kills what began as a rank before its operation of some name and number."""

    def __init__(self, rank: int, operation: str, number: int) -> None:
        self.rank = rank
        self.point = operation, number

    def attach(self, site: Site) -> None:
        def before(operation: str, phase: str, number: int) -> None:
            if (operation, number) == self.point:
                die()

        # Ranks change as groups do, and another may have its first barrier under this one's.
        if site.rank == self.rank and not site.joined:
            site.on_operation(before)

    def heard(self, message: dict[str, Any]) -> None:
        raise AssertionError(message)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_loss_in_the_barrier_of_rebuild(cluster: dt.Cluster, victim: int) -> None:
    def work(ctx: Any) -> tuple[int, float]:
        if not ctx.joined:
            ctx.rebuild()
        return go_on(ctx, size=4)

    kills = Kills(victim, "barrier", 0)
    answers = cluster.run(work, elastic=True, timeout=20, instruments=[kills])
    assert answers in ([(4, 4.0)] * 4, [(3, 3.0)] * 3)  # with the replacement or before it came


def test_a_rank_that_raises_while_the_others_wait_for_the_next_group(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        ctx.comm.barrier()
        if ctx.rank == 3:
            die()
        try:
            while True:
                ctx.comm.barrier()
        except PeerLost:
            if ctx.rank == 0:
                raise ValueError("instead of going on") from None
            ctx.rebuild(size=3)

    with pytest.raises(RankError, match="instead of going on") as caught:
        cluster.run(work, elastic=True, timeout=20)
    assert caught.value.rank == 0
    assert cluster.run(lambda ctx: ctx.size) == [4] * 4
