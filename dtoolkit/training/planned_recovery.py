"""Which recovery policy suits a cluster: closed forms and a simulation, before anything is rented.

A policy costs by what it computes twice, by what it loses with a failure, and by how long the run
stands still. How long an all-reduce, a checkpoint and a newcomer's catching up take follows from
the network, the bytes of the state and the speed of the disk. All times are modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from dtoolkit.comm.amounts import bytes_text, seconds_text
from dtoolkit.comm.network import Network
from dtoolkit.comm.units import bandwidth, seconds, size
from dtoolkit.training.expected_recovery import expected
from dtoolkit.training.stacked.conditions import Conditions
from dtoolkit.training.stacked.endurance import best_redundancy
from dtoolkit.training.stacked.placement import CITATION
from dtoolkit.training.stacked.rulers import largest_redundancy
from dtoolkit.training.stacked.simulation import Policy, Simulation, simulate
from dtoolkit.training.steptimes import check_count

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PlannedPolicy", "RecoveryPlan", "plan_recovery"]

_SIMULATED_AS: dict[str, Policy] = {"restart": "checkpoint"}  # where the name is another one


@dataclass(frozen=True)
class PlannedPolicy:
    """What a policy is expected to make of the run.

    Attributes
    ----------
    name : {"restart", "shrink", "replica", "stacked"}
        As ``recovery=`` takes it.
    redundancy : int
        Groups that can compute a type of shard without data from elsewhere.
    endured : float
        Expected losses to the wipe-out, by formula; infinite where newcomers come in time.
    period : float
        Seconds from one checkpoint to the next, at best; infinite where none is needed.
    computed : float
        Shards that a group computes in a step, in the mean, by formula.
    available : float
        Share of the time in which steps are made that count, by formula.
    expected : float
        Time to train over that without failures and redundancy, by formula.
    simulated : float or None
        The same, of the simulation; infinite where it was given up; None where there was none.
    """

    name: str
    redundancy: int
    endured: float
    period: float
    computed: float
    available: float
    expected: float
    simulated: float | None

    @property
    def ratio(self) -> float:
        """Simulated where it was, else expected."""
        return self.expected if self.simulated is None else self.simulated


@dataclass(frozen=True, repr=False)
class RecoveryPlan:
    """Policies compared for one cluster and state (modelled). Made by :func:`plan_recovery`.

    Attributes
    ----------
    network : Network
        With as many ranks as there are groups.
    groups : int
    mtbf : float
        Seconds between failures of the whole gang.
    gradient, state : int
        Bytes that are all-reduced in a step, and of the whole state of the run.
    compute, reduce : float
        Seconds of one shard's gradient, and of the all-reduce.
    save, restart, catch_up : float
        Seconds of a checkpoint, of a restart, and in which a newcomer receives the state.
    policies : tuple of PlannedPolicy
    simulation : Simulation or None
    """

    network: Network
    groups: int
    mtbf: float
    gradient: int
    state: int
    compute: float
    reduce: float
    save: float
    restart: float
    catch_up: float
    policies: tuple[PlannedPolicy, ...]
    simulation: Simulation | None

    def __getitem__(self, name: str) -> PlannedPolicy:
        for policy in self.policies:
            if policy.name == name:
                return policy
        raise KeyError(f"{name!r}: wanted one of {', '.join(one.name for one in self.policies)}")

    @property
    def best(self) -> PlannedPolicy:
        """The policy with the least time to train, the first of equal ones."""
        return min(self.policies, key=lambda policy: policy.ratio)

    def table(self) -> pd.DataFrame:
        """One row a policy: the attributes of :class:`PlannedPolicy`.

        Returns
        -------
        DataFrame
            Indexed by name.
        """
        import pandas as pd

        rows = [{one.name: getattr(p, one.name) for one in fields(p)} for p in self.policies]
        return pd.DataFrame(rows).set_index("name")

    def facts(self) -> list[tuple[str, str]]:
        """What was assumed, as names and values."""
        return [
            ("groups", f"{self.groups:,}"),
            ("network", self.network.name),
            ("a failure every", seconds_text(self.mtbf)),
            ("a shard's gradient", seconds_text(self.compute)),
            ("all-reduce", f"{seconds_text(self.reduce)}, {bytes_text(self.gradient)}"),
            ("checkpoint", f"{seconds_text(self.save)}, {bytes_text(self.state)}"),
            ("restart", seconds_text(self.restart)),
            ("catch-up", seconds_text(self.catch_up)),
        ]

    def cite(self) -> str:
        """What to cite."""
        return CITATION

    def __repr__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self.facts()]
        for policy in self.policies:
            times = f"{policy.expected:.2f} expected"
            if policy.simulated is not None:
                times += f", {policy.simulated:.2f} simulated"
            lines.append(f"{policy.name}: {times}, of the time without failures")
        return "\n".join([f"<RecoveryPlan (modelled): best is {self.best.name}", *lines]) + ">"

    def _repr_html_(self) -> str:
        from dtoolkit.figures.recovery_cards import recovery_plan_card

        return recovery_plan_card(self)


def plan_recovery(
    network: Network,
    mtbf: float | str,
    *,
    groups: int | None = None,
    compute: float | str = 1.0,
    gradient: int | str = "40MB",
    state: int | str | None = None,
    disk: float | str = "1GB/s",
    save: float | str | None = None,
    restart: float | str | None = None,
    detect: float | str = 1.0,
    replace: float | str = 10.0,
    redundancy: int | None = None,
    shape: float = 0.78,
    steps: int = 10_000,
    simulated: bool = True,
    seed: int = 0,
) -> RecoveryPlan:
    """Compare the recovery policies on a network, by closed forms and by simulation.

    Parameters
    ----------
    network : Network
    mtbf : float or str
        Mean time between failures of the whole gang: seconds, or text such as ``"5min"``.
    groups : int, optional
        Workers, by default the network's ranks; another number is that of
        :meth:`~dtoolkit.comm.Network.with_ranks`.
    compute : float or str
        Time of a step's gradient on one worker.
    gradient : int or str
        Bytes that are all-reduced in a step (a ring): 40 MB are 10 M parameters in float32.
    state : int or str, optional
        Bytes of the run's state; by default three times the gradient: parameters and two moments.
    disk : float or str
        Bandwidth at which checkpoints are written and read.
    save, restart : float or str, optional
        Time of a checkpoint, and of a restart from it; by default what the disk takes, and for the
        restart `detect` and `replace` besides.
    detect, replace : float or str
        Time until a loss is noticed and the others go on, and until a newcomer is there.
    redundancy : int, optional
        Of the stacks; by default the best one by formula, but 2 where that would be none.
    shape : float
        Weibull shape of the intervals between failures; 1 is exponential.
    steps : int
        Length of the run.
    simulated : bool
        Whether to simulate it, too: a second or a few for 1,000 groups.
    seed : int
        Of the simulation.

    Returns
    -------
    RecoveryPlan
        Of "restart", "shrink", "replica" and "stacked".

    Raises
    ------
    TypeError, ValueError, PlanError
        Naming the argument that is wrong.

    Examples
    --------
    >>> from dtoolkit.comm import Network
    >>> plan_recovery(Network.flat(8, bandwidth="10GB/s"), "30min", steps=500).best.name
    'replica'
    """
    if not isinstance(network, Network):
        raise TypeError(
            f"network={network!r}: wanted a dt.comm.Network, such as "
            'Network.flat(8, bandwidth="10GB/s")'
        )
    n = network.ranks if groups is None else check_count("groups", groups)
    whole = network if n == network.ranks else network.with_ranks(n)
    between, nbytes = seconds(mtbf, "mtbf"), size(gradient, "gradient")
    kept = 3 * nbytes if state is None else size(state, "state")
    disk_seconds = kept / bandwidth(disk, "disk")
    noticed, there = seconds(detect, "detect"), seconds(replace, "replace")
    given = Conditions.of(
        steps=steps,
        mtbf=between,
        shape=shape,
        compute=seconds(compute, "compute"),
        reduce=_ring(whole, nbytes),
        save=disk_seconds if save is None else seconds(save, "save"),
        restart=noticed + there + disk_seconds if restart is None else seconds(restart, "restart"),
        patch="needed",
        sets=False,
        replace=there,
        catch_up=float(whole.time(0, n - 1, kept)),
        pause=noticed,
    )
    r = redundancy
    if r is None:
        best = best_redundancy(n, mtbf=between, save=given.save, restart=given.restart)
        r = min(max(best, 2), largest_redundancy(n))  # stacks of one shard are "restart"
    found = _simulated(n, r, given, seed) if simulated else None
    planned = [
        _planned(name, n, r, given, found) for name in ("restart", "shrink", "replica", "stacked")
    ]
    return RecoveryPlan(
        whole,
        n,
        between,
        nbytes,
        kept,
        given.compute,
        given.reduce[0],
        given.save,
        given.restart,
        given.catch_up,
        tuple(planned),
        found,
    )


def _ring(network: Network, nbytes: int) -> float:
    """Seconds of a ring all-reduce: each rank sends a part to the next, 2 (n - 1) times."""
    n = network.ranks
    if n == 1:
        return 0.0
    sent = np.zeros((n, n), np.int64)
    sent[np.arange(n), (np.arange(n) + 1) % n] = -(-nbytes // n)
    longest = max(float(links.seconds.max(initial=0.0)) for links in network.loads(sent))
    return 2 * (n - 1) * longest


def _simulated(n: int, r: int, given: Conditions, seed: int) -> Simulation:
    policies: tuple[Policy, ...] = ("checkpoint", "shrink", "replica", "stacked")
    return simulate(n, r, policies=policies, seed=seed, **vars(given))


def _planned(
    name: str, n: int, r: int, given: Conditions, found: Simulation | None
) -> PlannedPolicy:
    way = expected(name, n, r, given)
    ideal = given.compute + given.reduce[0]
    slower = (way.computed * given.compute + given.reduce[0]) / ideal
    return PlannedPolicy(
        name,
        way.redundancy,
        way.endured,
        given.period(way.endured),
        way.computed,
        way.available,
        slower / way.available if way.available > 0 else math.inf,
        None if found is None else found[_SIMULATED_AS.get(name, name)].ratio,
    )
