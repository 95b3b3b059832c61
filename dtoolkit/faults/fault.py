"""What a fault is: something that goes wrong on a rank, at a point that is named exactly.

A point is a step (its beginning, after its backward pass, or as its first exchange begins), an
operation of the communicator, or a time. At the point the rank itself does what the fault says:
nothing is simulated from outside, and nothing depends on how fast a message of the client is.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.comm.messages import BEGUN
from dtoolkit.faults.arguments import check_number, check_rank, read_whole

if TYPE_CHECKING:
    from dtoolkit.cluster.instrument import Site

__all__ = ["WHERE", "Fault", "Moment"]

WHERE = {
    "begin": "step",
    "backward": "state",
    "exchange": "operation",
}
"""Point within a step to the kind of moment that it is."""


@dataclass(frozen=True)
class Moment:
    """Where a rank is: what the faults are held against.

    Attributes
    ----------
    kind : str
        ``"step"`` (one begins), ``"state"`` (tensors are there), ``"operation"`` (one of the
        communicator begins) or ``"time"``.
    step : int or None
        The step that the rank has begun last; None before any.
    name : str
        Of the state or the operation.
    number : int
        How many operations of that name this rank had begun before in the launch.
    first : bool
        The operation is the step's first.
    seconds : float
        The time, counted from the beginning of the launch.
    tensors : callable
        Gives the tensors of a state by name.
    """

    kind: str
    step: int | None = None
    name: str = ""
    number: int = 0
    first: bool = False
    seconds: float = 0.0
    tensors: Callable[[], Mapping[str, torch.Tensor]] = field(default=dict, repr=False)


@dataclass(frozen=True, repr=False)
class Fault(ABC):
    """Something that goes wrong on one rank, once, at one point.

    One's own fault derives from this, says in :meth:`strike` what happens and in :meth:`words` how
    it is called. Exactly one of `at_step`, `at_operation` and `after` names the point.

    Parameters
    ----------
    at_step : int, optional
        In this step, as ``ctx.step`` or training tells it.
    where : {"begin", "backward", "exchange"}
        In which part of the step: before anything; when the gradients are there and nobody has got
        them (training says so); as the first operation of the communicator in the step begins.
    at_operation : str or (str, int), optional
        As the rank begins this operation of the communicator, such as ``"all_reduce"``: its first
        in a launch, or the one with this number, from 0. Names are those of the trace.
    after : float, optional
        So many seconds after the launch has begun on the rank.

    Attributes
    ----------
    rank : int
        Where it happens, as ranks are numbered at that moment.

    Raises
    ------
    TypeError, ValueError
        An argument is out of range, or not exactly one point is named.
    """

    _: KW_ONLY
    at_step: int | None = None
    where: str = "begin"
    at_operation: str | tuple[str, int] | None = None
    after: float | None = None

    in_thread: ClassVar[bool] = False
    """It must happen in the thread of the function: a time that comes meanwhile waits for the
    function's next step, operation or state."""
    lasts: ClassVar[bool] = False
    """It goes on after it has begun, in every launch from its point on: see :meth:`holds`."""

    if TYPE_CHECKING:

        @property
        def rank(self) -> int:
            """Where it happens."""
            ...

    def __post_init__(self) -> None:
        given = [name for name in _POINTS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{self.name}: exactly one of at_step=, at_operation= and after= says when; got "
                f"{' and '.join(given) or 'none'}"
            )
        if self.at_step is not None:
            self._set("at_step", self._whole("at_step"))
        self._one_of("where", WHERE)
        if self.where != "begin" and self.at_step is None:
            raise ValueError(
                f"{self.name}: where={self.where!r} is a part of a step, and {given[0]}= names none"
            )
        if self.at_operation is not None:
            self._set("at_operation", self._operation())
        if self.after is not None:
            self._number("after")

    # --------------------------------------------------------------------- what a fault says

    @abstractmethod
    def strike(self, site: Site, moment: Moment) -> None:
        """Do it, here and now.

        Parameters
        ----------
        site : Site
            The rank.
        moment : Moment
        """

    @abstractmethod
    def words(self) -> str:
        """What happens, in words without the point: ``"kill rank 2"``."""

    def detail(self, site: Site, moment: Moment) -> str:
        """What only the moment tells, for the log; asked before :meth:`strike`."""
        return ""

    def due(self, moment: Moment) -> bool:
        """Whether this is the point."""
        if self.at_step is not None:
            return moment.step == self.at_step and _is_part(self.where, moment)
        if self.at_operation is not None:
            return ("operation", *self._operation()) == (moment.kind, moment.name, moment.number)
        return moment.kind == "time" and moment.seconds == self.after

    def holds(self, step: int | None, seconds: float) -> bool:
        """Whether a fault that lasts goes on.

        Parameters
        ----------
        step : int or None
            The step that the rank has begun.
        seconds : float
            Since the fault has begun in this launch.
        """
        return False

    @property
    def mark(self) -> str:
        """What traces of launches say in which a fault has lasted; empty: nothing."""
        return ""

    @property
    def span(self) -> float | None:
        """Seconds after which a fault that lasts ends by itself; None: never."""
        return None

    def end(self, site: Site) -> None:
        """End a fault that lasts."""
        raise TypeError(f"{self.name} lasts, and does not say how it ends")

    def check(self, ranks: int) -> None:
        """Refuse a rank that is not there.

        Parameters
        ----------
        ranks : int
            How many ranks there are.

        Raises
        ------
        ValueError
        """
        check_rank(self.name, "rank", self.rank, ranks)

    @property
    def name(self) -> str:
        """Name of the fault's class."""
        return type(self).__name__

    @property
    def when(self) -> str:
        """The point, in words."""
        if self.at_step is not None:
            return f"at step {self.at_step}{_PARTS[self.where]}"
        if self.at_operation is not None:
            name, number = self._operation()
            return f"at its first {name}" if number == 0 else f"at {name} {number}"
        return f"{self.after:g} s after the beginning" if self.after else "at the beginning"

    def __str__(self) -> str:
        return f"{self.words()} {self.when}"

    def __repr__(self) -> str:
        said = [
            f"{one.name}={_shown(getattr(self, one.name))}"
            for one in sorted(fields(self), key=lambda one: bool(one.kw_only))
            if one.default is MISSING or getattr(self, one.name) != one.default
        ]
        return f"{self.name}({', '.join(said)})"

    # --------------------------------------------------------------------- for who derives

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _whole(self, name: str) -> int:
        """Read an attribute that must be an integer of at least 0."""
        return read_whole(self.name, name, getattr(self, name))

    def _one_of(self, name: str, names: Collection[str]) -> None:
        """Check an attribute that must be one of some names."""
        value = getattr(self, name)
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"{self.name}: {name}={value!r}; wanted one of {', '.join(names)}")

    def _number(self, name: str) -> None:
        """Check an attribute that must be a finite number of at least 0."""
        check_number(self.name, name, getattr(self, name))

    def _operation(self) -> tuple[str, int]:
        value = self.at_operation
        name, number = (value, 0) if isinstance(value, str) else _pair(value)
        if not isinstance(name, str) or number < 0:
            raise ValueError(
                f"{self.name}: at_operation={value!r}; wanted the name of an operation, or the "
                "name and a number from 0, such as ('all_reduce', 3)"
            )
        if name not in BEGUN:
            raise ValueError(
                f"{self.name}: at_operation={value!r}; the communicator has no operation {name!r}: "
                f"wanted one of {', '.join(BEGUN)}"
            )
        return name, number


_POINTS = ("at_step", "at_operation", "after")
_PARTS = {
    "begin": "",
    "backward": ", after its backward pass",
    "exchange": ", as its exchange begins",
}


def _is_part(where: str, moment: Moment) -> bool:
    """Whether a moment of a step is the part of it that was asked for."""
    if moment.kind != WHERE[where]:
        return False
    if where == "backward":
        return moment.name == "gradients"
    return where != "exchange" or moment.first


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


def _pair(value: Any) -> tuple[Any, int]:
    """A name and a number; -1 where it is no such pair."""
    if not isinstance(value, list | tuple) or len(value) != 2 or isinstance(value[1], bool):
        return "", -1
    try:
        return value[0], operator.index(value[1])
    except TypeError:
        return "", -1
