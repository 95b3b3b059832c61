"""Instruments: what is attached to launches from outside, to watch them or to disturb them.

The cluster knows nothing of what an instrument is for. It is pickled with every launch, attached on
every rank, and hears on the client what its copies on the ranks announce.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dtoolkit.cluster.hooks import OperationHook, StateHook, StepHook
from dtoolkit.cluster.letters import check_message
from dtoolkit.comm import units

if TYPE_CHECKING:
    from dtoolkit.cluster.context import Context
    from dtoolkit.cluster.running import Running
    from dtoolkit.comm.communicator import Communicator

__all__ = ["Instrument", "Site", "check_instruments"]


@runtime_checkable
class Instrument(Protocol):
    """What can be attached to the launches of a cluster.

    An instrument travels by pickle: what :meth:`attach` is called on is a copy, one on each rank
    and anew for each launch and each newcomer, made as the order is sent. What :meth:`heard` is
    called on is the object that was given to the cluster.
    """

    def attach(self, site: Site) -> None:
        """Begin on a rank; called in its thread before the function of the launch.

        What it raises, the rank raises.
        """
        ...

    def heard(self, message: dict[str, Any]) -> None:
        """Take what a copy has announced; called on the client, on Dask's thread.

        It must not wait for anything there. All that was announced in a launch has been heard when
        the launch ends. What it raises is logged and otherwise ignored.
        """
        ...


class Site:
    """One rank's part of a launch, as an instrument meets it.

    Callbacks run in the thread that does what they tell of, and what they raise comes out there.

    Attributes
    ----------
    joined : bool
        The rank has entered an elastic launch after it began.
    launch : int
        Number of the launch.
    started : float
        When the rank's part began, on :meth:`clock`.
    address : str
        Address of the Dask worker.
    """

    def __init__(self, running: Running, context: Context, number: int) -> None:
        hooks = running.hooks
        assert hooks is not None
        self._running = running
        self._context = context
        self._hooks = hooks
        self._number = number
        self.joined = context.joined
        self.launch = running.order.launch
        self.address = context.address
        self.started = context.clock()

    @property
    def rank(self) -> int:
        """Number of this rank in the group of now."""
        return self._context.rank

    @property
    def size(self) -> int:
        """Ranks of the group of now."""
        return self._context.size

    @property
    def comm(self) -> Communicator:
        """The launch's communicator of now."""
        return self._context.comm

    def clock(self) -> float:
        """Seconds on the client's clock (error as stated by the trace)."""
        return self._context.clock()

    def announce(self, message: dict[str, Any]) -> None:
        """Bring a message to the instrument on the client.

        Returns when the scheduler has it, or after 2 seconds: a rank that kills itself next has
        been heard. Messages of one rank arrive in order. Not to be called on Dask's thread.

        Parameters
        ----------
        message : dict
            Text to plain values: None, booleans, numbers, text, lists and dicts of them.

        Raises
        ------
        TypeError
            The message is not plain.
        """
        if type(message) is not dict:
            raise TypeError(f"announce: message must be a dict, got {type(message).__name__}")
        check_message(message, operation="announce")
        self._running.announce({"instrument": self._number, "message": message})

    def claim(self, name: str) -> bool:
        """Whether this is the first claim of a name on the cluster, of all ranks and launches.

        For what must happen once, whoever comes to it again: a newcomer, a step that is repeated,
        the next launch. False too where the scheduler does not answer within 2 seconds.

        Parameters
        ----------
        name : str
            Of one instrument; claims of a name are remembered as long as the scheduler lives.
        """
        return self._running.claim(name)

    def on_step(self, callback: StepHook) -> None:
        """Call ``callback(step)`` as ``ctx.step`` says that a step begins."""
        self._hooks.steps.append(callback)

    def on_operation(self, callback: OperationHook) -> None:
        """Call ``callback(operation, phase, number)`` before an operation of the communicator.

        All of them: collective, from rank to rank, standing, of subgroups, of products, and the
        barrier with which ``ctx.rebuild`` begins where nobody was lost. `phase` is the name that
        ``comm.phase`` has set; `number` counts the operations of that name on this rank in this
        launch, from 0. Nothing has been sent yet.
        """
        self._hooks.operations.append(callback)

    def on_state(self, callback: StateHook) -> None:
        """Call ``callback(name, get)`` where ``ctx.expose`` shows state.

        ``get()`` gives the tensors by name: the real ones, so that changes count.
        """
        self._hooks.states.append(callback)

    def on_rebuild(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` as the rank goes on in another group: rank and size are the new."""
        self._hooks.rebuilds.append(callback)

    def at(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call ``callback()`` so many seconds from now on a thread of its own.

        Not if the rank's part of the launch has ended by then.
        """
        self._hooks.at(max(0.0, float(seconds)), callback)

    def cut(self, peer: int) -> int:
        """Break this rank's connections to a peer: their sockets are shut down, on the spot.

        Both processes live on. What is under way between the two fails, and all that they begin
        later in this group. The connections of subgroups go too; those of NCCL do not.

        Parameters
        ----------
        peer : int
            Another rank of the group of now.

        Returns
        -------
        int
            Connections that were cut.

        Raises
        ------
        ValueError
            `peer` is no other rank.
        """
        return self._running.cut_off(self._peer("cut", peer))

    def delay(self, peer: int, *, seconds: Any = None, bandwidth: Any = None) -> bool:
        """Make the link to a peer slow, in both directions, from the next message on.

        Messages are real, and held back where they arrive; a message that the receiver waits for
        is late, and its sender does not notice. The link stays slow in later groups of the launch,
        until the launch ends.

        Parameters
        ----------
        peer : int
            Another rank of the group of now.
        seconds : float or str, optional
            What each message takes more, such as ``"5ms"``.
        bandwidth : float or str, optional
            What the link carries, in bytes a second or such as ``"10MB/s"``. With neither the link
            is as fast as it was.

        Returns
        -------
        bool
            Whether the peer has heard of it; else what comes from it here is slow, and nothing
            that goes there.

        Raises
        ------
        ValueError
            `peer` is no other rank, or a quantity makes no sense.
        """
        address = self._peer("delay", peer)
        return self._running.delay(
            address,
            0.0 if seconds is None else units.seconds(seconds),
            None if bandwidth is None else units.bandwidth(bandwidth),
        )

    def _peer(self, operation: str, peer: int) -> str:
        if peer == self.rank or not 0 <= peer < self.size:
            raise ValueError(
                f"{operation}: peer must be another rank of 0 to {self.size - 1}, got {peer!r} on "
                f"rank {self.rank}"
            )
        return self._context.addresses[peer]


def check_instruments(instruments: Any, name: str = "instruments") -> tuple[Instrument, ...]:
    """The instruments as a tuple.

    Raises
    ------
    TypeError
        One of them has no `attach` and `heard`.
    """
    found = tuple(instruments)
    for number, one in enumerate(found):
        if isinstance(one, type) or not isinstance(one, Instrument):
            raise TypeError(
                f"{name}[{number}] must have attach(site) and heard(message), as "
                f"dtoolkit.cluster.Instrument says; got {type(one).__name__}"
            )
    return found
