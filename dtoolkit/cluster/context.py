"""What a function of a launch gets: its rank, its device, its communicator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from dtoolkit.cluster.hooks import Hooks
from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.recorder import Recorder

__all__ = ["Context"]


class Context:
    """The first argument of every function that a cluster runs.

    Attributes
    ----------
    rank, size : int
        Number of this rank, and how many there are. They change with :meth:`rebuild`.
    device : torch.device
        Where this rank computes.
    comm : Communicator
    joined : bool
        True on a rank that entered an elastic launch after it began.
    address : str
        Address of the Dask worker.
    addresses : tuple of str
        Addresses of all ranks.
    threads : int
        Threads that the rank should compute with.
    elastic : bool
    """

    def __init__(
        self,
        *,
        comm: Communicator,
        recorder: Recorder,
        device: torch.device,
        address: str,
        addresses: tuple[str, ...],
        threads: int,
        joined: bool,
        elastic: bool,
        emit: Callable[[dict[str, Any]], None],
        messages: Callable[[], list[Any]],
        newcomers: Callable[[], int],
        rebuild: Callable[[Context, int | None, bool, float], None] | None,
        hooks: Hooks | None = None,
    ) -> None:
        self.comm = comm
        self.device = device
        self.address = address
        self.addresses = addresses
        self.threads = threads
        self.joined = joined
        self.elastic = elastic
        self.recorder = recorder
        self._emit = emit
        self._messages = messages
        self._newcomers = newcomers
        self._rebuild = rebuild
        self._hooks = hooks
        self._step = -1

    @property
    def rank(self) -> int:
        """Number of this rank."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.comm.size

    @property
    def newcomers(self) -> int:
        """Workers that :meth:`rebuild` would take in now: replacements of those lost, and spares.

        0 where the launch has all its ranks. The ranks hear of a newcomer one after the other:
        those that act on it together must agree on when.
        """
        return self._newcomers()

    def step(self, number: int, *, report: bool = True) -> None:
        """Say which step begins: a sign of life, and what instruments go by.

        Parameters
        ----------
        number : int
        report : bool
            Let the client see it in ``launch.events``.
        """
        self._step = int(number)
        if self._hooks is not None:
            self._hooks.step(self._step)
        if report:
            self._emit({"rank": self.rank, "step": self._step, "time": self.clock()})

    def log(self, metrics: dict[str, Any] | None = None, **more: Any) -> None:
        """Send metrics to the client while the launch runs.

        Parameters
        ----------
        metrics : dict, optional
            Names and plain values: numbers, strings, booleans, None, lists of them. Tensors of one
            element are sent as numbers.
        **more
            Further metrics.
        """
        values = {name: _plain(name, value) for name, value in {**(metrics or {}), **more}.items()}
        if self._hooks is not None:
            self._hooks.beat()
        self._emit({"rank": self.rank, "step": self._step, "time": self.clock(), **values})

    def alive(self) -> None:
        """Give a sign of life, where nothing else does for long: see ``deadline=``."""
        if self._hooks is not None:
            self._hooks.beat()

    @property
    def exposed(self) -> bool:
        """Whether an instrument looks at what :meth:`expose` shows."""
        return self._hooks is not None and bool(self._hooks.states)

    def expose(self, name: str, get: Callable[[], dict[str, torch.Tensor]]) -> None:
        """Show state to the instruments of the launch, which may look at it or change it.

        Parameters
        ----------
        name : str
            What it is: ``"gradients"``, ``"parameters"``, ``"optimizer"``.
        get : callable
            Gives the tensors by name, the real ones; called only where an instrument asks.
        """
        if self._hooks is not None:
            self._hooks.expose(name, get)

    def messages(self) -> list[Any]:
        """Messages that ``launch.send`` brought since the last call, in the order of sending.

        Every rank gets every message, but not at the same time: ranks that act on one together
        must agree on when.
        """
        return self._messages()

    def clock(self) -> float:
        """Seconds on the client's clock (error as stated by the trace)."""
        return time.perf_counter() + self.recorder.offset

    def rebuild(
        self, size: int | None = None, *, newcomers: bool = True, timeout: float = 30.0
    ) -> Communicator:
        """Form the next group of an elastic launch, after a loss or to take newcomers in.

        Every surviving rank must call. Locals stay as they are; `rank`, `size` and `comm` change.

        Parameters
        ----------
        size : int, optional
            Wait until the group has so many ranks again, replacements included. By default the
            ranks that are there go on at once, with the newcomers that are there.
        newcomers : bool
            False: the surviving ranks go on alone, if one of them says so. Who waits to join still
            waits afterwards.
        timeout : float
            Seconds to wait for `size`; after that the group is formed of those that are there.

        Returns
        -------
        Communicator

        Raises
        ------
        RuntimeError
            The launch is not elastic.
        ValueError
            A size to wait for, and no newcomers.
        """
        if self._rebuild is None:
            raise RuntimeError("rebuild: this launch is not elastic; start it with elastic=True")
        if size is not None and not newcomers:
            raise ValueError(f"rebuild: size={size} waits for newcomers, and newcomers=False")
        self._rebuild(self, size, not newcomers, timeout)
        return self.comm

    def __repr__(self) -> str:
        return f"<Context: rank {self.rank} of {self.size} on {self.device}>"


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise TypeError(f"log: {name!r} is a tensor of {value.numel()} elements, not a number")
        return value.item()
    if hasattr(value, "item") and getattr(value, "size", None) == 1:  # NumPy scalars
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, one) for one in value]
    raise TypeError(f"log: {name!r} is {type(value).__name__}; numbers, strings and lists travel")
