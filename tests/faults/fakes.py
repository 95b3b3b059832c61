"""A rank without a cluster: what faults are attached to where no process is at stake."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dtoolkit.faults import Fault, Injection, Moment


@dataclass(frozen=True, repr=False)
class Note(Fault):
    """Writes down on its rank that it has struck: a fault of one's own."""

    rank: int
    mark: str = "note"

    def words(self) -> str:
        return f"note on rank {self.rank}"

    def strike(self, site: Any, moment: Moment) -> None:
        site.done.append((self.mark, moment.kind, moment.step))


class FakeCluster:
    """What the ranks of all launches share: claims, and the instrument on the client."""

    def __init__(self, injection: Injection) -> None:
        self.injection = injection
        self.claims: set[str] = set()
        self.launches = 0
        self.now = 100.0

    def launch(self, ranks: int) -> list[FakeSite]:
        """The ranks of a new launch, with their copies of the instrument attached."""
        self.launches += 1
        return [self.enter(rank, ranks) for rank in range(ranks)]

    def enter(self, rank: int, ranks: int, *, joined: bool = False) -> FakeSite:
        """One rank of the launch of now."""
        site = FakeSite(self, rank, ranks, joined)
        pickle.loads(pickle.dumps(self.injection)).attach(site)
        return site


class FakeSite:
    """A rank: what happens to it is called by hand."""

    def __init__(self, cluster: FakeCluster, rank: int, size: int, joined: bool) -> None:
        self.cluster = cluster
        self.rank, self.size, self.joined = rank, size, joined
        self.launch = cluster.launches
        self.started = cluster.now
        self.done: list[tuple[Any, ...]] = []
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self._hooks: dict[str, list[Callable[..., object]]] = {}
        self._begun: dict[str, int] = {}

    def clock(self) -> float:
        return self.cluster.now

    def announce(self, message: dict[str, Any]) -> None:
        self.cluster.injection.heard(message)

    def claim(self, name: str) -> bool:
        first = name not in self.cluster.claims
        self.cluster.claims.add(name)
        return first

    def on_step(self, callback: Callable[..., object]) -> None:
        self._hooks.setdefault("step", []).append(callback)

    def on_operation(self, callback: Callable[..., object]) -> None:
        self._hooks.setdefault("operation", []).append(callback)

    def on_state(self, callback: Callable[..., object]) -> None:
        self._hooks.setdefault("state", []).append(callback)

    def on_rebuild(self, callback: Callable[..., object]) -> None:
        self._hooks.setdefault("rebuild", []).append(callback)

    def at(self, seconds: float, callback: Callable[[], object]) -> None:
        self.timers.append((self.cluster.now + seconds, callback))

    def cut(self, peer: int) -> None:
        self.done.append(("cut", peer))

    def delay(
        self, peer: int, *, seconds: float | None = None, bandwidth: float | None = None
    ) -> None:
        self.done.append(("delay", peer, seconds, bandwidth))

    # ------------------------------------------------------------------------- what happens

    def steps(self, *numbers: int, operations: int = 1, gradients: bool = True) -> None:
        """Begin steps, each with its gradients and operations."""
        for number in numbers:
            self._tell("step", number)
            if gradients:
                self._tell("state", "gradients", dict)
            for _ in range(operations):
                self.operation("all_reduce")

    def operation(self, name: str) -> None:
        number = self._begun.get(name, 0)
        self._begun[name] = number + 1
        self._tell("operation", name, "", number)

    def state(self, name: str, tensors: dict[str, torch.Tensor]) -> None:
        self._tell("state", name, lambda: tensors)

    def rebuilt(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._tell("rebuild")

    def wait(self, seconds: float) -> None:
        """Let time pass for this rank: its timers ring."""
        self.cluster.now += seconds
        for timer in sorted(self.timers, key=lambda one: one[0]):
            if timer[0] <= self.cluster.now:
                self.timers.remove(timer)
                timer[1]()

    def _tell(self, hook: str, *words: Any) -> None:
        for callback in self._hooks.get(hook, ()):
            callback(*words)
