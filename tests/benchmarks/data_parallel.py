"""Data parallel on 2 workers against torch's DistributedDataParallel, and what a step costs.

``python -m tests.benchmarks.data_parallel [--quick]`` prints two tables and exits 1 where a must is
missed. Both train the same model on the same batches over Gloo, in the same two worker processes,
in turn. What a step costs is measured on 4 workers with a model of one parameter, inside a run.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dtoolkit as dt
from dtoolkit.training import Examples, Replica, Settings, Task
from dtoolkit.training.strategies import STRATEGIES, DataParallel, Subnetwork
from tests.benchmarks.common import Check, machine, options, ratios, table, verdict

SECONDS = 0.3  # of a candidate in a round
EMPTY_STEPS = 100


def perceptron(width: int, layers: int) -> nn.Module:
    """Fully connected, of about `layers` x `width`^2 parameters."""
    middle = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), *middle, nn.Linear(width, 10))


def convolutions() -> nn.Module:
    """Small and convolutional: much to compute, little to send."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 16, 16)),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 64, 10),
    )


MODELS: dict[str, Any] = {
    "perceptron, 1.1 M": (lambda: perceptron(500, 4), 256),
    "perceptron, 10 M": (lambda: perceptron(1500, 4), 256),
    "convolutions, 0.1 M": (convolutions, 64),
}


def losses(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each sample."""
    return nn.functional.cross_entropy(model(inputs), targets, reduction="none")


def task(name: str) -> Task:
    """The model, on random inputs of 256 numbers."""
    model, batch = MODELS[name]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4 * batch, 256, generator=generator)
    targets = torch.randint(0, 10, (4 * batch,), generator=generator)
    return Task(name, model, Examples(inputs, targets), losses, batch=batch)


def race(ctx: Any, name: str, rounds: int) -> tuple[dict[str, list[float]], float, int]:
    """Seconds a step of ours and of DistributedDataParallel's by round; how far gradients differ.

    The difference is relative to the largest element; the last value is the steps of a round.
    """
    replica = Replica(ctx, task(name), Settings(steps=10**6))
    ours, theirs = DataParallel(), copy_of(replica)
    ours.configure(replica)
    join(ctx)
    try:
        parallel = DistributedDataParallel(theirs)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        sampler = replica.sampler

        def rival(step: int) -> None:
            optimizer.zero_grad()
            inputs, targets = replica.examples.take(sampler.share(step, ctx.rank)[0])
            losses(parallel, inputs, targets).mean().backward()
            optimizer.step()

        candidates = {"ours": lambda step: ours.step(replica, step), "theirs": rival}
        apart = compared(replica, theirs, optimizer, candidates)
        return *timed(ctx, candidates, rounds), apart
    finally:
        torch.distributed.destroy_process_group()
        ours.finish(replica)


def copy_of(replica: Replica) -> nn.Module:
    """A model with the same weights."""
    other = replica.task.model()
    other.load_state_dict(replica.model.state_dict())
    return other


def join(ctx: Any) -> None:
    """Form torch's default group, which DistributedDataParallel works on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = torch.tensor(probe.getsockname()[1])
    port = int(ctx.comm.broadcast(port if ctx.rank == 0 else None))
    store = torch.distributed.TCPStore("127.0.0.1", port, ctx.size, ctx.rank == 0)
    torch.distributed.init_process_group("gloo", store=store, rank=ctx.rank, world_size=ctx.size)


def compared(
    replica: Replica, theirs: nn.Module, optimizer: Any, candidates: dict[str, Any]
) -> float:
    """How far the two gradients of one step differ, relative to the largest element."""
    found: dict[str, list[torch.Tensor]] = {}

    def keep(name: str, model: nn.Module) -> Any:
        return lambda *_: found.update({name: [p.grad.clone() for p in model.parameters()]})

    hooks = [
        replica.optimizer.register_step_pre_hook(keep("ours", replica.model)),
        optimizer.register_step_pre_hook(keep("theirs", theirs)),
    ]
    for step in candidates.values():
        step(0)
    for hook in hooks:
        hook.remove()
    return max(
        float((a - b).abs().max() / b.abs().max())
        for a, b in zip(found["ours"], found["theirs"], strict=True)
    )


def timed(ctx: Any, candidates: dict[str, Any], rounds: int) -> tuple[dict[str, list[float]], int]:
    """Seconds a step, by round, in an order that rotates; and the steps of a round."""
    ctx.comm.barrier()
    began = time.perf_counter()
    for step in range(3):
        candidates["theirs"](step)
    took = torch.tensor((time.perf_counter() - began) / 3)
    steps = max(3, int(SECONDS / float(ctx.comm.all_reduce(took, "max"))))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for turn in range(rounds):
        for name in names[turn % 2 :] + names[: turn % 2]:
            ctx.comm.barrier()
            began = time.perf_counter()
            for step in range(steps):
                candidates[name](step)
            ctx.comm.barrier()
            times[name].append((time.perf_counter() - began) / steps)
    return times, steps


def against_torch(rounds: int) -> list[Check]:
    """Ours over DistributedDataParallel's, model by model."""
    rows, checks = [], []
    with dt.Cluster(workers=2, device="cpu") as cluster:
        for name, (_, batch) in MODELS.items():
            times, steps, apart = cluster.run(race, name, rounds, timeout=600)[0]
            ratio = ratios(times, to="theirs")["ours"]
            speed = [batch / statistics.median(times[one]) for one in ("ours", "theirs")]
            rows.append((name, steps, *(f"{one:.0f}" for one in speed), str(ratio), f"{apart:.1e}"))
            checks.append(
                Check(f"{name}: time over DistributedDataParallel's", ratio.median, 1 / 0.9)
            )
            checks.append(Check(f"{name}: gradients apart, in 1e-5", 1e5 * apart, 1.0))
    header = ("2 workers", "steps", "samples/s", "torch's", "time over torch's", "gradients apart")
    print(table(rows, header))
    return checks


class Empty(nn.Module):
    """One parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The parameter, for each sample."""
        return self.weight.expand(len(inputs))


def nothing(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss of next to nothing."""
    return model(inputs)


def of_a_step() -> list[Check]:
    """What a step costs on 4 workers, by strategy."""
    empty = Task(
        "empty", Empty, Examples(torch.zeros(512, 1), torch.zeros(512)), nothing, batch=128
    )
    rows, checks = [], []
    with dt.Cluster(workers=4, device="cpu") as cluster:
        for name in [name for name in STRATEGIES if name != "dslide"]:  # it has a model of its own
            # One parameter is nothing that could be masked.
            strategy = Subnetwork(coverage=1) if name == "subnetwork" else name
            run = dt.train(cluster, empty, strategy, steps=EMPTY_STEPS, timeout=120)
            seconds = run.history["seconds"].iloc[10:]
            median = 1e3 * float(seconds.median())
            rows.append((name, f"{median:.2f}", f"{1e3 * float(seconds.quantile(0.9)):.2f}"))
            checks.append(Check(f"ms of a step of {name}", median, 5.0))
    print(table(rows, ("4 workers, ms a step", "median", "9 of 10 below")))
    return checks


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    print(machine())
    rounds = chosen.rounds or (7 if chosen.quick else 25)
    return verdict([*against_torch(rounds), *of_a_step()])


if __name__ == "__main__":
    sys.exit(main())
