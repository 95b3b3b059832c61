"""States that are not finite on those that are left, and what a report says of several faults."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.faults import Corrupt, Fault, Kill, Raise, SlowLink
from dtoolkit.faults.injection import Fired
from dtoolkit.training import Run, Task
from dtoolkit.training.recovery import Recovery, RecoveryReport
from dtoolkit.training.recovery.matching import matched
from tests.training.toys import toy

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=3, device="cpu", timeout=60) as one:
        yield one


@pytest.fixture(scope="module")
def whole(cluster: dt.Cluster) -> Run:
    """The run without faults."""
    return dt.train(cluster, task(), steps=8)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def task(**more: object) -> Task:
    return toy(model=model, **more)


def bad(rank: int, what: str = "parameters") -> Corrupt:
    """The same element on every rank, so that those that are hit hold the same."""
    kept = "0.weight" if what == "parameters" else "0.weight.exp_avg"
    return Corrupt(rank, at_step=5, what=what, kind="nan", layer=kept, element=3)


@pytest.mark.parametrize(
    ("policy", "faults", "seen"),
    [
        ("shrink", [Kill(1, at_step=2), Kill(2, at_step=2), bad(0)], "not finite"),
        ("replica", [bad(0), bad(1), bad(2)], "not finite"),
        ("stacked", [bad(1), bad(2)], "wiped out"),
        ("shrink", [bad(0, "optimizer"), bad(1, "optimizer")], "wiped out"),
    ],
    ids=["the last one", "all", "most", "most, in the optimizer"],
)
def test_what_is_not_finite_never_wins(
    cluster: dt.Cluster, whole: Run, policy: str, faults: list[Fault], seen: str
) -> None:
    run = dt.train(cluster, task(), steps=8, recovery=policy, faults=faults)
    assert run.state.differs_from(whole.state) == []
    hit = {str(fault) for fault in faults if isinstance(fault, Corrupt)}
    entries = [entry for entry in run.recoveries if entry.fault.split(": ")[0] in hit]
    assert len(entries) == len(hit)
    assert entries[0].how.startswith("started again from step")
    assert {entry.kind for entry in run.recoveries} - {"lost"} >= {seen}
    assert {entry.how for entry in entries} == {entries[0].how}


@pytest.mark.parametrize("policy", ["shrink", "restart"])
def test_a_divergence_ends_after_some_restarts(cluster: dt.Cluster, policy: str) -> None:
    learned = task(optimizer=partial(torch.optim.SGD, lr=1e38), schedule=None)
    training = dt.submit_training(cluster, learned, steps=30, recovery=policy)
    with pytest.raises(FloatingPointError, match=r"on rank \d at step \d"):
        training.result(40)
    assert len(training.launch.numbers) == 3  # whichever rank was heard first


def test_faults_of_one_launch_are_got_over_together(cluster: dt.Cluster, whole: Run) -> None:
    faults = [Kill(1, at_step=4, where="backward"), Raise(2, at_step=4)]
    run = dt.train(cluster, task(), steps=8, recovery="restart", faults=faults)
    assert run.state.differs_from(whole.state) == []
    struck = {entry.fault: entry for entry in run.recoveries}
    assert set(struck) <= {str(fault) for fault in faults}
    assert all(entry.recovered is not None for entry in run.recoveries)
    assert [entry.kind for entry in run.recoveries if entry.kind == "unnoticed"] == []


def test_what_a_restart_undoes() -> None:
    def fired(fault: Fault, number: int, *, step: int, launch: int, time: float) -> Fired:
        return Fired(fault, number, fault.rank, step, "", launch, time, time)

    flip = partial(Corrupt, what="gradients", kind="bitflip")
    struck = [
        fired(flip(0, at_step=2), 0, step=2, launch=7, time=1.0),  # it is in the checkpoint of 4
        fired(flip(0, at_step=5), 1, step=5, launch=7, time=1.5),
        fired(SlowLink(0, 1, at_step=5, latency="1ms"), 2, step=5, launch=7, time=1.6),
        fired(Raise(2, at_step=6), 3, step=6, launch=7, time=2.0),
        fired(Kill(1, at_step=6), 4, step=6, launch=7, time=2.2),
        fired(flip(0, at_step=7), 5, step=7, launch=8, time=4.0),  # the next launch comes through
    ]
    entry = Recovery(
        "rank 2: RuntimeError", "raised", (2,), step=6, detected=2.1, recovered=3.0, steps_lost=2
    )
    found = matched([entry], struck, began=0.0, policy="restart", launches={0: 7})
    by_time = sorted(found, key=lambda one: one.injected or 0.0)
    kinds = ["unnoticed", "raised", "unnoticed", "raised", "raised", "unnoticed"]
    assert [one.kind for one in by_time] == kinds
    kill = by_time[4]
    assert (kill.ranks, kill.detected, kill.recovered) == ((1,), 2.2, 3.0)
    assert by_time[0].how == "nothing noticed it"


def test_faults_that_never_fired_are_told(cluster: dt.Cluster, tmp_path: Path) -> None:
    never = Kill(1, at_step=100)
    run = dt.train(cluster, task(), steps=3, recovery="shrink", faults=[never])
    assert run.recoveries.never_fired == (str(never),)
    assert f"never fired: {never}" in repr(run.recoveries)
    assert str(never) in run.recoveries._repr_html_()
    assert ("never fired", str(never)) in run.facts()
    run.save(tmp_path / "run.pt")
    assert Run.load(tmp_path / "run.pt").recoveries.never_fired == (str(never),)
    assert "never fired" not in repr(RecoveryReport(policy="shrink"))
