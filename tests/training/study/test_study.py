"""Studies on real workers: measured, stopped, killed, gone on with."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import dtoolkit as dt
from dtoolkit.comm import Network
from dtoolkit.errors import LaunchCancelled
from dtoolkit.training.sharding import memory, words
from dtoolkit.training.strategies import DataParallel
from dtoolkit.training.study import Study, StudyProgress, submit_study
from tests.training.study.toys import MODELLED, toy

ASKED: dict[str, Any] = {
    "workers": [1, 2, 4],
    "stages": (),
    "strategies": ["data-parallel"],
    "micro_batches": [16],
    "learning_rates": [0.001, 0.5, 1e12],
    "samples": 360,
    "scaling": "weak",
    **MODELLED,
}


def calm(**changes: Any) -> dict[str, Any]:
    return {**ASKED, **changes}


@pytest.fixture(scope="module")
def found(cluster_of) -> tuple[Study, list[StudyProgress]]:
    told: list[StudyProgress] = []
    before = cluster_of(2).trace.total
    study = dt.study(cluster_of(2), toy(), **ASKED, on_progress=told.append)
    assert cluster_of(2).trace.total == before  # the cluster's own trace is left alone
    return study, told


def test_one_table_of_what_was_measured_and_modelled(found) -> None:
    study, told = found
    table = study.results
    own = table[table["source"] == "measured"]
    assert own.groupby("workers").size().to_dict() == {1: 3, 2: 3}
    assert table[table["source"] == "modelled"]["workers"].tolist() == [4]
    best = own[own["outcome"] == "finished"]
    assert best["learning_rate"].tolist() == [0.5, 0.5]
    assert (best["samples"] >= 360).all()
    assert best["batch"].tolist() == [32, 64]  # weak scaling
    assert (best["samples_per_second"] > 0).all()
    assert (best["loss"] < math.log(10)).all()
    stopped = own[own["outcome"] == "stopped"]
    assert set(stopped["learning_rate"]) >= {0.001}
    slow = stopped[stopped["learning_rate"] == 0.001]["why"]
    assert slow.str.contains("the best, learning rate 0.5, had").all()
    assert len(told) == len(study.measured) == told[-1].done
    assert told[-1].most == study.plan.trials == 8
    assert "loss" in str(told[-1])


def test_bytes_are_those_of_the_formula(found) -> None:
    table = found[0].results
    own = table[(table["source"] == "measured") & (table["outcome"] == "finished")]
    alone, two = own["bytes_per_step"]
    assert alone == 0
    parameters = int(own["parameters"].iloc[0])
    # Beside the gradients, each worker says how many samples it has used.
    assert 0 <= two - 4 * words(parameters, 2, 0) < 100


def test_cards_and_citation(found) -> None:
    study, _ = found
    assert "measured" in study._repr_html_()
    assert "Plan of a study" in study.plan._repr_html_()
    assert "1910.02054" in study.cite()
    assert study.best()["source"] == "measured"


def test_a_study_that_was_stopped_goes_on_where_it_was(cluster2, found, tmp_path: Path) -> None:
    path = tmp_path / "a.study"
    seen: list[StudyProgress] = []
    three = threading.Event()

    def count(told: StudyProgress) -> None:
        seen.append(told)
        if len(seen) == 3:
            studying.stop()
            three.set()

    studying = submit_study(cluster2, toy(), **ASKED, file=path)
    studying.on_progress(count)
    part = studying.result(60)
    assert studying.done()
    assert studying.status == "stopped"
    assert not part.complete
    done = len(part.measured)
    assert done >= 3
    later: list[StudyProgress] = []
    whole = dt.study(cluster2, toy(), **ASKED, file=path, on_progress=later.append)
    assert len(later) == len(whole.measured) - sum(not m.error for m in part.measured.values())
    assert whole.complete
    # What was measured before is not measured again, and all of it learned the same.
    for key, one in part.measured.items():
        assert one.error or whole.measured[key] == one
    assert set(whole.measured) == set(found[0].measured)
    for key, one in whole.measured.items():
        if key[0].learning_rate == 0.5:
            assert one.loss == pytest.approx(found[0].measured[key].loss, rel=1e-5)


def test_cancel_and_waiting_in_an_event_loop(cluster2: dt.Cluster, tmp_path: Path) -> None:
    asked = calm(samples=10_000_000, learning_rates=[0.5], scaling="strong", workers=[2])
    studying = submit_study(cluster2, toy(), **asked, file=tmp_path / "c.study")

    async def body() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(studying.wait(), 0.5)

    asyncio.run(body())
    assert "0 of at most 1 trials: digits by data-parallel on 2 workers" in studying.status
    assert studying.cancel()
    with pytest.raises(LaunchCancelled):
        studying.result(20)
    assert not studying.cancel()
    assert studying.status == "failed: LaunchCancelled"
    assert len(dt.train(cluster2, toy(), steps=2).history) == 2


class Failing(DataParallel):
    name = "failing"

    def step(self, replica: Any, step: int) -> Any:
        raise RuntimeError(f"no luck on process {os.getpid()}")


def test_a_setting_that_fails_does_not_end_the_study(cluster2: dt.Cluster) -> None:
    asked = calm(strategies=[Failing(), "data-parallel"], learning_rates=None, workers=[1])
    table = dt.study(cluster2, toy(), **asked).results.set_index("strategy")
    assert table["outcome"].to_dict() == {"failing": "failed", "data-parallel": "finished"}
    assert "no luck" in table.loc["failing", "why"]


def test_memory_is_what_the_process_took(cluster2: dt.Cluster) -> None:
    asked = calm(learning_rates=None, workers=[2], samples=128, scaling="strong")
    large = dt.training.tasks.digits(hidden=20_000, batch=32, optimizer="adam")
    row = dt.study(cluster2, large, **asked).results.iloc[0]
    state = 16 * row["parameters"]  # 24 MB
    if math.isnan(row["memory"]):
        pytest.skip("the system does not tell how much memory a process has taken")
    assert state < 1.25 * row["memory"]
    assert row["memory"] < 2.5 * state


def test_stages_hold_and_send_what_the_formulas_say(cluster2: dt.Cluster) -> None:
    asked = calm(learning_rates=None, samples=96, scaling="strong", workers=[2])
    asked |= {"stages": (0, 1, 2, 3), "strategies": ()}
    task = toy(optimizer="adam")
    table = dt.study(cluster2, task, **asked).results.set_index("stage")
    parameters = int(table["parameters"].iloc[0])
    for stage, row in table.iterrows():
        assert row["state"] == pytest.approx(memory(parameters, 2, stage, precision="fp32"), abs=8)
        # Beside the words, a worker says which parameters it has used, a byte each.
        assert 0 <= row["bytes_per_step"] - 4 * words(parameters, 2, stage) < 100
    assert table["loss"].nunique() == 1


def test_on_an_emulated_network(cluster_of) -> None:
    network = Network.flat(2, bandwidth="2MB/s")
    with dt.Cluster(client=cluster_of(2).client, workers=2, emulate=network) as slow:
        asked = calm(learning_rates=None, samples=128)
        study = dt.study(slow, toy(hidden=512), **asked)
    table = study.results[study.results["source"] == "measured"]
    assert table["workers"].tolist() == [1, 2]
    alone, two = table["samples_per_second"]
    # 38,410 parameters: 154 kB over 2 MB/s take 77 ms for 64 samples.
    assert two < 64 / 0.07
    assert alone > 0
    assert "emulated" in repr(study)
