"""Elastic policies: what else a run has, newcomers, losses while it recovers, and wipe-outs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.errors import RankError
from dtoolkit.faults import Corrupt, Fault, Kill, Raise, Slow
from dtoolkit.training import Checkpoint, Run, Task
from dtoolkit.training.recovery import Replica, Shrink, Stacked
from dtoolkit.training.strategies import Ordered
from tests.training import cases
from tests.training.random_faults import campaign, model, task
from tests.training.toys import examples, toy

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=4, device="cpu", timeout=60) as one:
        yield one


def both(
    cluster: dt.Cluster, policy: Any, faults: list[Fault], *, learned: Any = None, **more: Any
) -> Run:
    """Train with and without faults, and see that there is no difference."""
    chosen = {"steps": 9, **more}
    learned = learned or task()
    about = {k: v for k, v in chosen.items() if k not in ("checkpoint", "deadline")}
    whole = dt.train(cluster, learned, **about)
    run = dt.train(cluster, learned, recovery=policy, faults=faults, **chosen)
    assert run.state.differs_from(whole.state) == []
    assert run.history["samples"].tolist() == whole.history["samples"].tolist()
    names = [name for name in whole.history if name.startswith("test_")]
    assert run.history[names].equals(whole.history[names])
    return run


# ------------------------------------------------------------------- what else a run has


@pytest.mark.parametrize("policy", ["shrink", "replica", "stacked"])
@pytest.mark.parametrize(
    "more",
    [
        {"partition": "cyclic", "accumulate": 2},
        {"partition": [i * i // 5 % 4 for i in range(22)]},
        {"partition": [3] * 22},
        {"batch": 2},
        {"evaluate_every": 2, "batch": 22},
    ],
    ids=["cyclic, two micro-batches", "uneven", "all on one", "fewer than workers", "evaluated"],
)
def test_shares_of_any_kind(cluster: dt.Cluster, policy: str, more: dict[str, Any]) -> None:
    run = both(cluster, policy, [Kill(3, at_step=4)], **more)
    assert [entry.kind for entry in run.recoveries] == ["lost"]


@pytest.mark.parametrize("policy", ["shrink", "replica", "stacked"])
@pytest.mark.parametrize("shards", [3, 8])
def test_ordered_with_batch_norm_by_shard(cluster: dt.Cluster, policy: str, shards: int) -> None:
    strategy = Ordered(shards=shards)
    faults = [Kill(1, at_step=3, where="backward"), Kill(0, at_step=6)]
    both(cluster, policy, faults, learned=toy(batch=22), strategy=strategy)


@pytest.mark.parametrize("name", [*cases.MODELS, "mixed"])
def test_models_that_one_may_trip_over(cluster: dt.Cluster, name: str) -> None:
    learned = cases.task(name) if name in cases.MODELS else _mixed()
    norm = {"batch_norm": "local"} if name == "batch norm" else {}
    both(cluster, "replica", [Kill(2, at_step=2)], learned=learned, steps=6, **norm)


def _mixed() -> Task:
    """Parameters of two dtypes."""
    made = partial(torch.optim.SGD, lr=0.1)
    return Task.of(cases.mixed, cases.examples(torch.float32), "cross-entropy", optimizer=made)


def test_examples_that_workers_load(cluster: dt.Cluster) -> None:
    learned = toy(model=model, train=examples)
    run = both(cluster, Replica(patience=10.0), [Kill(1, at_step=3)], learned=learned)
    assert "1 of them new" in run.recoveries[0].how


def test_slow_workers_and_penalty(cluster: dt.Cluster) -> None:
    learned = toy(model=model, penalty=_penalty)
    both(cluster, "stacked", [Slow(1, seconds=0.01), Kill(2, at_step=3)], learned=learned)


def _penalty(model: nn.Module) -> torch.Tensor:
    return sum(value.square().sum() for value in model.parameters())


def test_it_is_the_run_of_the_strategy_itself(cluster: dt.Cluster) -> None:
    for policy in ("shrink", "replica", "stacked"):
        both(cluster, policy, [], evaluate_every=4)
        both(cluster, policy, [], strategy="ordered", learned=toy())


# ---------------------------------------------------------------------------- newcomers


def test_a_newcomer_gets_the_state_and_its_share(cluster: dt.Cluster) -> None:
    run = both(cluster, Replica(patience=15.0), [Kill(2, at_step=4)], steps=8)
    (entry,) = run.recoveries
    assert entry.how == "went on with 4 of 4 workers, 1 of them new"
    assert (entry.kind, entry.ranks) == ("lost", (2,))
    assert entry.bytes_moved > run.state.nbytes
    moved = run.trace.filter(phase="catch-up").matrix()
    assert moved.sum() >= entry.bytes_moved
    assert run.history["samples_2"].notna().all()


def test_it_joins_while_the_run_goes_on(cluster: dt.Cluster) -> None:
    faults = [Slow(seconds=0.03), Kill(0, at_step=3)]
    run = both(cluster, "replica", faults, steps=40)
    (entry,) = run.recoveries
    assert "went on with 3 of 4 workers; newcomers joined before step" in entry.how
    assert entry.bytes_moved > 0
    assert run.history["samples_0"].isna().any()
    assert run.history["samples_0"].tolist()[-1] > 0


def test_a_shrunk_run_stays_small(cluster: dt.Cluster) -> None:
    faults = [Slow(seconds=0.03), Kill(0, at_step=3)]
    run = both(cluster, "shrink", faults, steps=30)
    assert run.history["samples_0"].isna().sum() == 27
    assert "newcomers" not in run.recoveries[0].how


# --------------------------------------------------------------- losses while it recovers


@pytest.mark.parametrize(
    "second",
    [
        Kill(3, at_operation=("barrier", 0)),
        Kill(0, at_operation="send"),  # the peer that gives the state away
        Kill(2, at_operation="recv"),  # the newcomer that gets it
        Kill(1, at_operation=("all_reduce", 0)),
    ],
    ids=["in the barrier", "who gives", "who gets", "after that"],
)
def test_a_loss_while_a_newcomer_catches_up(cluster: dt.Cluster, second: Fault) -> None:
    both(cluster, Replica(patience=10.0), [Kill(2, at_step=4), second], steps=8)


@pytest.mark.parametrize("policy", ["shrink", "replica", "stacked"])
def test_a_loss_in_the_step_that_is_made_again(cluster: dt.Cluster, policy: str) -> None:
    faults = [Kill(1, at_step=4, where="backward"), Kill(0, at_operation=("all_gather", 9))]
    both(cluster, policy, faults)


def test_who_was_ahead_hands_its_state_on(cluster: dt.Cluster) -> None:
    # In the last message of a step some have all they need, and others wait for the lost one.
    for number in range(6, 12):
        both(cluster, "shrink", [Kill(2, at_operation=("all_to_all", number))], steps=6)


def test_losses_at_the_very_end(cluster: dt.Cluster) -> None:
    for operation in (("barrier", 0), ("all_gather_v", 0), ("all_gather_v", 1)):
        for rank in (0, 3):
            run = both(cluster, "replica", [Kill(rank, at_operation=operation)], steps=3)
            assert not run.stopped


@pytest.mark.parametrize("policy", ["shrink", "stacked"])
def test_the_rank_that_has_the_state_is_lost_after_the_last_barrier(
    cluster: dt.Cluster, policy: str, tmp_path: Path
) -> None:
    def dies_once(ctx: Any, mark: str) -> None:
        from dtoolkit.training.recovery.elastic import ElasticRank

        whole = ElasticRank._state

        def state(self: Any) -> Any:
            last = sys._getframe(1).f_code.co_name == "_all_steps"  # not that of a checkpoint
            if last and self.ctx.rank == 0 and not os.path.exists(mark):
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(self)

        ElasticRank._state = state  # type: ignore[method-assign]

    cluster.run(dies_once, str(tmp_path / policy))
    run = both(cluster, policy, [], steps=4)
    assert [entry.kind for entry in run.recoveries][-1] == "wiped out"


def test_three_of_four(cluster: dt.Cluster) -> None:
    faults = [Kill(rank, at_step=4) for rank in (0, 1, 3)]
    run = both(cluster, "shrink", faults)
    assert {entry.how for entry in run.recoveries} == {"went on with 1 of 4 workers"}


# ------------------------------------------------------------------------------ wipe-outs


@pytest.mark.parametrize("policy", ["shrink", "replica"])
def test_all_are_gone(cluster: dt.Cluster, policy: str, tmp_path: Path) -> None:
    faults = [Kill(rank, at_step=7, where="backward") for rank in range(4)]
    kept = Checkpoint(tmp_path / "run.pt", every=5)
    run = both(cluster, policy, faults, checkpoint=kept, evaluate_every=3)
    assert {entry.how for entry in run.recoveries} == {"started again from step 5"}
    assert len(run.recoveries) == 4
    assert Run.load(kept.path).history["samples"].tolist() == run.history["samples"].tolist()


def test_stacks_are_wiped_out_and_start_again(cluster: dt.Cluster) -> None:
    faults = [Kill(1, at_step=5), Kill(2, at_step=5)]
    run = both(cluster, Stacked(redundancy=2), faults)
    assert {entry.kind for entry in run.recoveries} == {"wiped out"}
    assert "no survivor" in str(run.recoveries[0].fault) or len(run.recoveries) == 2


def test_no_majority(cluster2: dt.Cluster) -> None:
    flip = Corrupt(1, at_step=4, what="parameters", kind="bitflip")
    run = both(cluster2, "shrink", [flip], steps=7)
    (entry,) = run.recoveries
    assert entry.kind == "wiped out"
    assert entry.how == "started again from step 4"


def test_states_that_are_compared_seldom(cluster: dt.Cluster) -> None:
    for verify in (0, 4):
        flip = Corrupt(1, at_step=2, what="parameters", kind="bitflip")
        run = both(cluster, Shrink(verify=verify), [flip], steps=7)
        assert run.recoveries[0].how.startswith("started again from step")


# ------------------------------------------------------------------------------- failures


def test_twice_in_a_step_is_an_error(cluster: dt.Cluster) -> None:
    faults = [Raise(1, at_step=3), Raise(1, at_step=3, where="backward")]
    with pytest.raises(RankError, match=r"rank 1 .* raised in learn: RuntimeError"):
        dt.train(cluster, task(), steps=6, recovery="shrink", faults=faults)
    nan = Corrupt(2, at_step=3, what="gradients", kind="nan")
    faults = [nan, Raise(1, at_step=3)]  # at once on two ranks: one void step
    assert len(both(cluster, "shrink", faults).recoveries) == 2


def test_a_gradient_that_stays_bad_is_named(cluster: dt.Cluster) -> None:
    learned = toy(model=model, loss=_bad)
    with pytest.raises(FloatingPointError, match=r"the loss is nan on rank \d at step 0"):
        dt.train(cluster, learned, steps=3, recovery="replica")


def _bad(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return model(x).sum(1) * float("nan")


def test_stop_and_resume(cluster: dt.Cluster, tmp_path: Path) -> None:
    training = dt.submit_training(
        cluster, task(), steps=10**6, recovery="replica", faults=[Kill(2, at_step=20)]
    )
    until(lambda: training.step > 60)
    training.stop()
    run = training.result(30)
    assert run.stopped
    assert len(run.history) == run.state.step
    assert [entry.kind for entry in run.recoveries] == ["lost"]
    more = run.state.step + 5
    whole = dt.train(cluster, task(), steps=more)
    again = dt.train(
        cluster, task(), steps=more, resume=run, recovery="stacked",
        faults=[Kill(0, at_step=more - 3)],
    )  # fmt: skip
    assert again.state.differs_from(whole.state) == []
    assert again.history["step"].tolist() == list(range(run.state.step, more))


def test_a_kill_from_outside_on_one_after_the_other(cluster: dt.Cluster) -> None:
    slow = [Slow(seconds=0.02)]
    whole = dt.train(cluster, task(), steps=60)
    training = dt.submit_training(cluster, task(), steps=60, recovery="replica", faults=slow)
    for step in (5, 25, 45):
        until(lambda step=step: training.step > step)
        pids = [p for p in cluster.pids if psutil.pid_exists(p)]
        os.kill(pids[step % len(pids)], signal.SIGKILL)
    assert training.result(40).state.differs_from(whole.state) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"strategy": "gossip"},
            "use strategy='data-parallel' or 'ordered'",
        ),
        ({"compression": "top-k"}, "compression= with recovery='shrink'"),
        ({"task": toy()}, "batch norm uses the joint statistics"),
        ({"recovery": Stacked(redundancy=3)}, "r=3 shards a stack"),
    ],
)
def test_what_cannot_be_recovered_is_refused(
    cluster: dt.Cluster, more: dict[str, Any], words: str
) -> None:
    chosen = {"task": task(), "recovery": "shrink", **more}
    with pytest.raises(ValueError, match=words):
        dt.train(cluster, steps=3, **chosen)


# ------------------------------------------------------------------------------ campaigns


def test_random_plans() -> None:
    trials, leftovers = campaign(10, first=1000)
    assert [(trial.policy, trial.seed, trial.wrong) for trial in trials if trial.wrong] == []
    assert leftovers == []
    assert sum(trial.recovered for trial in trials) > 20


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def test_nothing_is_left_when_the_kernel_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import dtoolkit as dt
        from dtoolkit.faults import Kill
        from tests.training.random_faults import task

        if __name__ == "__main__":
            with dt.Cluster(workers=3, device="cpu", timeout=100) as cluster:
                faults = [Kill(1, at_step=20)]
                training = dt.submit_training(
                    cluster, task(), steps=10**7, recovery="replica", faults=faults
                )
                training.on_step(lambda row: print(row["step"], flush=True))
                training.result()
        """)
    )
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "TMPDIR": str(tmp_path / "temporary")}
    kernel = subprocess.Popen(
        [sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert kernel.stdout is not None
        for line in kernel.stdout:
            if int(line) >= 80:
                break
        family = psutil.Process(kernel.pid).children(recursive=True)
        assert list((tmp_path / "temporary").glob("dtoolkit-run-*"))
    finally:
        kernel.kill()
        kernel.wait()
        kernel.stdout.close()  # type: ignore[union-attr]
    _, alive = psutil.wait_procs(family, timeout=15)
    assert alive == []
    until(lambda: not list((tmp_path / "temporary").glob("dtoolkit-run-*")))
