"""Parameter servers: one optimizer for all, fed with gradients within a bound of staleness."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.training.averaging import kept_buffers
from dtoolkit.training.compression import Stream, as_compressor, elements
from dtoolkit.training.finite import check_gradients
from dtoolkit.training.local_step import load_local, local_state
from dtoolkit.training.message import Message, pack, unpack
from dtoolkit.training.server import GRANT, OPEN, PUSH, STOP, Server, computing
from dtoolkit.training.service import Service
from dtoolkit.training.serving_rule import Serving
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["AsyncParameterServer", "BoundedStaleness", "ParameterServer"]


class ParameterServer(Strategy):
    """Workers compute gradients on a version of the model; a server applies what they push.

    The server is a thread on rank 0 and owns the optimizer. It applies pushes as one update as soon
    as nobody who still computes would be more than `bound` versions behind
    (:mod:`dtoolkit.training.serving_rule`); whoever waits for that is idle. (Where all meet, to
    evaluate or to stop, the wait for the last one is in no step.) With bound 0 all pushes of a step
    are applied together: one process on the whole batch. A push counts by its samples' part of the
    batch, so that pushes of n workers move as far as one synchronous step.

    Ranks run free: there are ``steps`` pushes for each rank that has samples, of which fast ranks
    make more than slow ones. A rank's n-th push computes its share of the n-th batch. The schedule
    is stepped, and the task's penalty counts, once for as many pushes as there are such ranks.

    Where a run stops or is saved, nothing is under way, and the server's model, optimizer and
    schedule are brought to all ranks: they are replicated there, and a run goes on from them.

    With bound 0 batch norm uses the statistics of all ranks, else each rank's own; running
    statistics and other buffers are pooled at the server with each update.

    Parameters
    ----------
    bound : int or None
        Versions that a push may be behind when it is applied; None for no bound.

    Raises
    ------
    ValueError, TypeError
        The bound is no such number.

    References
    ----------
    Langer et al., "Distributed training of deep learning models: a taxonomic perspective", IEEE
    TPDS 2020 (arXiv 2007.03970).
    """

    name: ClassVar[str] = "parameter-server"
    free: bool = True
    promise: ClassVar[Promise] = Promise(
        trajectory="one process on the whole batch, to rounding (bound 0)",
        resume="bit-equal (bound 0, or one worker)",
        other_workers="to rounding (bound 0)",
    )

    def __init__(self, bound: int | None = 0) -> None:
        whole = hasattr(type(bound), "__index__") and not isinstance(bound, bool)
        if bound is not None and not whole:
            raise TypeError(f"bound={bound!r}: wanted an integer, or None for no bound")
        self.bound = Serving(bound=None if bound is None else int(bound)).bound
        self.batch_norm = "sync" if bound == 0 else "local"  # type: ignore[misc]
        self._service: Service | None = None

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        allowed = ("sync", "local") if self.bound == 0 else ("local",)
        if settings.batch_norm not in (None, *allowed):
            raise ValueError(
                f"batch_norm={settings.batch_norm!r}: a parameter server with bound={self.bound} "
                f"has {' and '.join(map(repr, allowed))}"
            )
        as_compressor(settings.compression)

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        self._members = tuple(
            rank
            for rank in range(replica.size)
            if self.bound == 0 or replica.sampler.has_samples(rank)
        )
        compressor = as_compressor(replica.settings.compression)
        self._stream: Stream | None = None
        if compressor is not None:
            self._stream = Stream(compressor, seed=replica.settings.seed, name="push")
        self._size = replica.flat_parameters()
        self._pushes: int | None = None  # asked for so far, all told; None: as many as steps say
        self._updates = self._largest = 0
        self._quiet = True
        self._granted = False
        self._worker = replica
        self._server: Server | None = None
        if replica.rank == 0:
            self._worker = computing(replica)
        self._service = Service(replica.comm, self._answer, threads=replica.ctx.threads)

    def until(self, replica: Replica, step: int, meeting: int) -> None:
        """See :meth:`Strategy.until`: the server asks for as many pushes as are missing."""
        done = step * len(self._members) if self._pushes is None else self._pushes
        wanted = Message(OPEN, (float(max(0, meeting * len(self._members) - done)),))
        if self.bound == 0:
            self._updates = step
        self._quiet = False
        who = torch.zeros(replica.size, dtype=torch.bool)
        if replica.rank == 0:
            self._worker.model.load_state_dict(replica.model.state_dict())
            state = Serving(self.bound, version=self._updates, granted=done)
            self._server = Server(replica, state, self._members, self._stream)
            who[[int(rank) for rank in self._ask(wanted).numbers]] = True
        with replica.comm.phase("opening"):
            self._granted = bool(replica.comm.broadcast(who)[replica.rank])

    def step(self, replica: Replica, step: int) -> StepReport | None:
        """See :meth:`Strategy.step`: compute a push, and take the version that it led to."""
        if not self._granted:
            return None
        worker, start = self._worker, time.perf_counter()
        worker.zero_grad()
        loss, samples, planned = 0.0, 0, worker.sampler.planned(step)
        # What is compressed stays a sum: what it owes is of sums too.
        weight = 1.0 if self._stream is not None else 1 / planned
        for micro, ids in enumerate(worker.sampler.share(step, worker.rank)):
            one, count = worker.backward(ids, step=step, micro=micro, weight=weight)
            loss, samples = loss + one, samples + count
        check_gradients(worker, step)
        flat, used = worker.gradients()
        compute = time.perf_counter() - start
        if self._stream is not None:
            where = elements(worker.parameters, used)
            flat = self._stream.encode(flat, step=step, item=worker.rank, where=where)
        elif not samples:
            flat = flat[:0]  # stands for zeros
        numbers = (float(samples), float(planned), float(step))
        buffers = kept_buffers(worker.model).values()
        reply = self._ask(Message(PUSH, numbers, (flat, used, *buffers)))
        self._granted = reply.kind == GRANT
        staleness, idle, *rates = reply.numbers
        self._take(replica, reply.tensors, rates)
        mine = worker.sampler.planned(step, worker.rank)
        return StepReport(loss, samples, mine, compute, idle, staleness=int(staleness))

    def stop(self, replica: Replica) -> None:
        """See :meth:`Strategy.stop`."""
        self._ask(Message(STOP))

    def pause(self, replica: Replica) -> None:
        """See :meth:`Strategy.pause`: all ranks get the server's model, optimizer and schedule."""
        with replica.comm.phase("pause"):
            replica.comm.barrier()  # all are dismissed: nothing is under way
            data = None
            if self._server is not None:
                rule = self._server.state
                self._largest = max(self._largest, self._server.staleness)
                numbers = (float(rule.granted), float(rule.version), float(self._largest))
                whole = (_to_bytes(local_state(replica)),) if replica.size > 1 else ()
                data = pack(Message(0, numbers, whole))
            told = unpack(replica.comm.broadcast(data).cpu())
        self._pushes, self._updates, self._largest = map(int, told.numbers)
        if replica.rank != 0:
            load_local(replica, _from_bytes(told.tensors[0]))
        self._quiet = True

    def reached(self, replica: Replica, step: int) -> int:
        """See :meth:`Strategy.reached`: whole steps' worth of pushes."""
        assert self._pushes is not None
        return self._pushes // len(self._members)

    def finish(self, replica: Replica) -> None:
        """See :meth:`Strategy.finish`."""
        service, self._service = self._service, None
        if service is not None:
            service.end(quiet=self._quiet)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Strategy.own_state`: what is owed, and on rank 0 the count of pushes."""
        own = {} if self._stream is None else self._stream.own_state()
        if self.bound != 0 and self._server is not None:
            own |= {"pushes": self._pushes, "updates": self._updates, "largest": self._largest}
        return own

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Strategy.restore`."""
        if self._stream is not None:
            self._stream.restore(own, self._size.numel(), self._size.dtype)
        if "pushes" in own:
            self._pushes, self._updates = int(own["pushes"]), int(own["updates"])
            self._largest = int(own["largest"])

    def cite(self) -> str:
        """What to cite."""
        return (
            "M. Langer et al., Distributed training of deep learning models: a taxonomic "
            "perspective, IEEE TPDS 2020 (arXiv 2007.03970); Q. Ho et al., More effective "
            "distributed ML via a stale synchronous parallel parameter server, NeurIPS 2013"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bound={self.bound})"

    def summary(self) -> dict[str, Any]:
        """See :meth:`Strategy.summary`."""
        return {
            "bound": "none" if self.bound is None else self.bound,
            "updates": self._updates,
            "pushes": self._pushes or 0,
            "largest staleness": self._largest,
        }

    def _answer(self, source: int, message: Message) -> list[tuple[int, Message]]:
        assert self._server is not None
        return self._server.answer(source, message)

    def _ask(self, message: Message) -> Message:
        assert self._service is not None
        return self._service.ask(message)

    def _take(
        self, replica: Replica, tensors: tuple[torch.Tensor, ...], rates: list[float]
    ) -> None:
        """Take a version of the model, and on ranks without the server its learning rates."""
        flat, *buffers = tensors
        worker = self._worker
        worker.load_parameters(flat.to(worker.device))
        with torch.no_grad():
            for mine, value in zip(kept_buffers(worker.model).values(), buffers, strict=True):
                mine.copy_(value)
        if replica.rank != 0:
            for group, rate in zip(replica.optimizer.param_groups, rates, strict=True):
                if isinstance(group["lr"], torch.Tensor):
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate


class AsyncParameterServer(ParameterServer):
    """A parameter server without a bound: each push is applied as it comes.

    With one worker that is sequential training, to the bit.
    """

    name: ClassVar[str] = "parameter-server-async"
    promise: ClassVar[Promise] = Promise(
        trajectory="one process with one worker, bit-equal",
        resume="bit-equal with one worker",
        other_workers="refused",
    )

    def __init__(self) -> None:
        super().__init__(bound=None)

    def __repr__(self) -> str:
        return "AsyncParameterServer()"


class BoundedStaleness(ParameterServer):
    """A parameter server whose fast workers wait when slow ones would fall too far behind.

    Parameters
    ----------
    bound : int
        Versions that a push may be behind when it is applied.
    """

    name: ClassVar[str] = "bounded-staleness"
    promise: ClassVar[Promise] = Promise(
        trajectory="no push is staler than the bound; with bound 0 one process, to rounding",
        resume="bit-equal with bound 0 or one worker",
        other_workers="refused",
    )

    def __init__(self, bound: int = 2) -> None:
        if bound is None:
            raise TypeError("bound=None: wanted an integer; parameter-server-async has no bound")
        super().__init__(bound)


def _to_bytes(content: dict[str, Any]) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _from_bytes(data: torch.Tensor) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=True)
    return content
