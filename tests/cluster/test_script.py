"""Clusters in scripts and notebooks: started, interrupted, killed, left open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.cluster.kills import leftover_processes


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return [sys.executable, str(path)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def start(command: list[str], **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | more,
        start_new_session=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text and process.wait(10) is not None:
        assert process.stderr is not None
        raise AssertionError(process.stderr.read())
    return text.strip()


def test_a_script_with_its_own_classes(tmp_path: Path) -> None:
    text = """
        import dtoolkit as dt
        import torch

        class Model:
            def __init__(self, weight):
                self.weight = weight

        def work(ctx, model):
            total = ctx.comm.all_reduce(torch.tensor(float(model.weight + ctx.rank)))
            return Model(total.item())

        if __name__ == "__main__":
            with dt.Cluster(workers=2, device="cpu") as cluster:
                print([type(m) is Model and m.weight for m in cluster.run(work, Model(3))])
    """
    done = subprocess.run(
        script(tmp_path, text), capture_output=True, text=True, timeout=90, env=environment()
    )
    assert done.stdout.strip() == "[7.0, 7.0]", done.stderr
    assert done.returncode == 0
    assert done.stderr == "", "a cluster that is closed says nothing"


def test_a_script_that_leaves_its_cluster_open(tmp_path: Path) -> None:
    text = """
        import dtoolkit as dt

        if __name__ == "__main__":
            cluster = dt.Cluster(workers=2, device="cpu")
            kept = cluster.keep(lambda ctx: ctx.rank)
            print(*cluster.pids)
    """
    began = time.monotonic()
    done = subprocess.run(
        script(tmp_path, text), capture_output=True, text=True, timeout=90, env=environment()
    )
    assert done.returncode == 0
    assert time.monotonic() - began < 60
    assert "Traceback" not in done.stderr, done.stderr
    assert leftover_processes({int(pid) for pid in done.stdout.split()}) == []


@pytest.mark.parametrize("everyone", [False, True], ids=["the kernel", "its process group"])
def test_an_interrupt_stops_the_ranks_and_the_cluster_goes_on(
    tmp_path: Path, everyone: bool
) -> None:
    text = """
        import os, signal, sys, time
        from pathlib import Path
        import dtoolkit as dt

        # A shell starts what it puts in the background with interrupts ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def long(ctx, mark):
            ctx.comm.barrier()
            Path(mark).touch()
            while True:
                ctx.comm.barrier()

        if __name__ == "__main__":
            cluster = dt.Cluster(workers=2, device="cpu")
            pids = cluster.pids
            print("ready", flush=True)
            try:
                cluster.run(long, sys.argv[1])
            except KeyboardInterrupt:
                began = time.monotonic()
                print(cluster.run(lambda ctx: ctx.rank), cluster.pids == pids, flush=True)
                print(time.monotonic() - began < 5, flush=True)
            cluster.close()
    """
    mark = tmp_path / "runs"
    process = start([*script(tmp_path, text), str(mark)])
    try:
        assert line(process) == "ready"
        end = time.monotonic() + 60
        # Before it waits, Python may lose an interrupt in a callback of a weak reference.
        while not mark.exists() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        # An interrupt of Jupyter or of a terminal goes to the whole process group.
        (os.killpg if everyone else os.kill)(process.pid, signal.SIGINT)
        assert line(process) == "[0, 1] True"
        assert line(process) == "True"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_killed_kernel_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    text = """
        import os, signal, time
        import dtoolkit as dt

        if __name__ == "__main__":
            cluster = dt.Cluster(workers=3, device="cpu")
            pids = cluster.pids
            cluster.submit(lambda ctx: time.sleep(60))
            time.sleep(0.2)
            os.kill(pids[1], signal.SIGSTOP)
            print(*pids, flush=True)
            time.sleep(60)
    """
    (folder := tmp_path / "tmp").mkdir()
    process = start(script(tmp_path, text), TMPDIR=str(folder))
    try:
        workers = {int(pid) for pid in line(process).split()}
        family = {p.pid for p in psutil.Process(process.pid).children(recursive=True)}
        process.kill()
        process.wait()
        assert leftover_processes(workers) == [], "workers, the stopped one too"
        assert leftover_processes(family, 30.0) == [], "fork server, resource tracker, reaper"
        assert [path for path in folder.rglob("*") if "torchinductor" not in str(path)] == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_notebook(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    cells = [
        """
        import dtoolkit as dt, torch
        from dtoolkit.errors import RankError
        class Model:
            def __init__(self, weight): self.weight = weight
        def work(ctx, model):
            ctx.log(weight=model.weight)
            return Model(ctx.comm.all_reduce(torch.tensor(model.weight)).item())
        cluster = dt.Cluster(workers=2, device="cpu")
        assert [m.weight for m in cluster.run(work, Model(2.0))] == [4.0, 4.0]
        """,
        """
        run = cluster.submit(work, Model(3.0))
        assert [m.weight for m in await run.wait()] == [6.0, 6.0]
        assert len(run.events) == 2
        """,
        """
        import asyncio
        long = cluster.submit(lambda ctx: [ctx.comm.barrier() for _ in iter(int, 1)])
        await asyncio.sleep(0.2)
        long.cancel()
        try:
            await long.wait()
        except dt.errors.LaunchCancelled as error:
            assert "cancelled" in str(error)
        """,
        """
        try:
            cluster.run(lambda ctx: 1 / 0)
        except RankError as error:
            assert "ZeroDivisionError" in error.cause
        """,
        # The first cell once more: a second cluster takes the place of the first.
        """
        first = cluster.pids
        cluster = dt.Cluster(workers=2, device="cpu")
        assert not set(first) & set(cluster.pids)
        assert [m.weight for m in cluster.run(work, Model(2.0))] == [4.0, 4.0]
        """,
        "cluster",
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in cells]
    )
    client = NotebookClient(notebook, timeout=90, kernel_name="python3")
    client.execute(env=environment())
    card = notebook.cells[-1].outputs[-1]["data"]
    assert "text/html" in card
    assert "2 ranks on cpu; idle" in card["text/plain"]
