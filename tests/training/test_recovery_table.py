"""Every fault and every policy that survives it, on four workers: the run ends as if nothing was.

================================  =======  ======  =======  =======
fault                             restart  shrink  replica  stacked
================================  =======  ======  =======  =======
kill, at each point of a step     equal    equal   equal    equal
two killed at once                equal    equal   equal    equal
hang; hang that ends by itself    equal    equal   equal    equal
exception, at each point          equal    equal   equal    equal
out of memory; killed for it      equal    equal   equal    equal
NaN in gradients or parameters    equal    equal   equal    equal
flipped bit in parameters or      equal    equal   equal    equal
the optimizer's state
link cut; link slow               equal    equal   equal    equal
================================  =======  ======  =======  =======

Equal: parameters, optimizer and losses of all steps are those of the run without faults, to the
bit. A flipped bit in a gradient is not noticed before it is summed, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.errors import RankError, WorkerLost
from dtoolkit.faults import (
    Corrupt,
    CutLink,
    Fault,
    Hang,
    Kill,
    OutOfMemory,
    Raise,
    SlowLink,
)
from dtoolkit.training import Run, Task
from tests.training.toys import toy

STEPS = 10

FAULTS: dict[str, tuple[str, list[Fault]]] = {  # what is noticed, and the faults
    "kill": ("lost", [Kill(2, at_step=4)]),
    "kill with gradients": ("lost", [Kill(1, at_step=4, where="backward")]),
    "kill the writer": ("lost", [Kill(0, at_step=4, where="exchange")]),
    "kill in an operation": ("lost", [Kill(3, at_operation=("all_gather", 6))]),
    "kill after a time": ("lost", [Kill(2, after=0.1)]),
    "two at once": ("lost", [Kill(1, at_step=4), Kill(2, at_step=4)]),
    "hang": ("hung", [Hang(2, at_step=4)]),
    "hang that ends": ("unnoticed", [Hang(2, at_step=4, seconds=0.2)]),
    "exception": ("raised", [Raise(1, at_step=4)]),
    "exception in an exchange": ("raised", [Raise(1, at_step=4, where="exchange")]),
    "out of memory": ("memory", [OutOfMemory(1, at_step=4)]),
    "killed for memory": ("lost", [OutOfMemory(1, at_step=4, kind="kill")]),
    "NaN in gradients": ("not finite", [Corrupt(1, at_step=3, what="gradients", kind="nan")]),
    "NaN in parameters": ("", [Corrupt(1, at_step=3, what="parameters", kind="nan")]),
    "bit in parameters": ("differs", [Corrupt(2, at_step=5, what="parameters", kind="bitflip")]),
    "bit in the optimizer": ("differs", [Corrupt(1, at_step=5, what="optimizer", kind="bitflip")]),
    "cut link": ("connection", [CutLink(0, 2, at_step=4)]),
    "slow link": ("unnoticed", [SlowLink(0, 2, at_step=4, latency="2ms")]),
}
POLICIES = ("restart", "shrink", "replica", "stacked")


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=4, device="cpu", timeout=60) as one:
        yield one


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.25), nn.Linear(6, 2))


def task(**more: Any) -> Task:
    """With dropout, NAdam, a schedule, and a last batch that is smaller."""
    return toy(model=model, **more)


@pytest.fixture(scope="module")
def whole(cluster: dt.Cluster) -> Run:
    """The run without faults."""
    return dt.train(cluster, task(), steps=STEPS)


def check_equal(run: Run, whole: Run) -> None:
    assert run.state.differs_from(whole.state) == []
    assert run.history["step"].tolist() == whole.history["step"].tolist()
    assert run.history["samples"].tolist() == whole.history["samples"].tolist()
    assert torch.allclose(  # sums over workers are taken in another order
        torch.tensor(run.history["loss"]), torch.tensor(whole.history["loss"]), rtol=1e-6
    )
    assert "to the bit" in run.recoveries.compared(whole)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", FAULTS)
def test_it_ends_as_without_faults(cluster: dt.Cluster, whole: Run, name: str, policy: str) -> None:
    kind, faults = FAULTS[name]
    run = dt.train(cluster, task(), steps=STEPS, recovery=policy, faults=faults, deadline=1.5)
    check_equal(run, whole)
    report = run.recoveries
    assert report.policy == policy
    assert {str(fault) for fault in faults} == {entry.fault.split(": ")[0] for entry in report}
    wiped_out = policy == "stacked" and name == "two at once"
    for entry in report:
        assert entry.injected is not None
        assert entry.kind == kind or not kind or wiped_out
        if kind != "unnoticed":
            assert entry.injected <= entry.detected <= entry.recovered
    assert cluster.run(lambda ctx: ctx.size) == [4] * 4


@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", ["shrink", "restart"])
def test_a_bit_in_a_gradient_is_not_noticed(cluster: dt.Cluster, whole: Run, policy: str) -> None:
    fault = Corrupt(1, at_step=4, what="gradients", kind="bitflip", bit=20)
    run = dt.train(cluster, task(), steps=STEPS, recovery=policy, faults=fault)
    assert [entry.kind for entry in run.recoveries] == ["unnoticed"]
    assert any(name.startswith("model.") for name in run.state.differs_from(whole.state))
    assert "differs from the run without faults in model." in run.recoveries.compared(whole)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Kill(2, at_step=4), WorkerLost, "rank 2 .* was lost"),
        (Hang(1, at_step=4), WorkerLost, "rank 1 .* no sign"),
        (Raise(1, at_step=4), RankError, "rank 1 .*RuntimeError"),
        (
            Corrupt(1, at_step=4, what="gradients", kind="nan"),
            FloatingPointError,
            r"gradient of [03]\.\w+ is not finite on rank 1 at step 4",
        ),
    ],
)
def test_abort_says_what_it_was(
    cluster: dt.Cluster, fault: Fault, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        dt.train(cluster, task(), steps=STEPS, faults=[fault], deadline=1.5)
    assert dt.train(cluster, task(), steps=2).state.step == 2
