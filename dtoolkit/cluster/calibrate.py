"""Measuring the network that a cluster is: pairs, all ranks at once, computing, launches."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.cluster import probes
from dtoolkit.cluster.fits import errors_of, line_through, pair_lines
from dtoolkit.cluster.probes import Work
from dtoolkit.comm.network import Network
from dtoolkit.comm.units import seconds as read_seconds
from dtoolkit.comm.units import size

if TYPE_CHECKING:
    from dtoolkit.cluster.cluster import Cluster

__all__ = ["Workload", "calibrate", "register"]

DTYPES = ("float32", "float64")
SIZES = (100_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000)
PINGS = (8, 200_000, 2_000_000)  # bytes of the messages of a pair
OVERLAPPED = 16_000_000  # bytes that all ranks send while they compute
PASSES = 3  # times that all sizes are gone through: a machine is busier at one time than another
MOST = 15  # rounds of one thing in one pass
SHARES = {"launches": 0.1, "pairs": 0.25, "all at once": 0.35, "computing": 0.2, "overlap": 0.1}


@dataclass(frozen=True)
class Workload:
    """What :func:`calibrate` lets a cluster compute.

    Attributes
    ----------
    compute : callable
        ``compute(ctx, dtype, seed)``, on a rank: gives an amount, in nonzeros times columns, and a
        function that computes it, to be called often.
    launch : callable or None
        ``launch(cluster)``, on the client: gives a function, to be called often, that runs one
        launch in which all ranks exchange and compute next to nothing. None: an exchange alone.
    """

    compute: Work
    launch: Callable[[Cluster], Callable[[], object]] | None = None


_registered: list[Workload] = []


def register(work: Workload) -> None:
    """Say what :func:`calibrate` lets a cluster compute by default; for who computes it."""
    _registered[:] = [work]


def calibrate(
    cluster: Cluster,
    *,
    seconds: float | str = 4.0,
    sizes: Sequence[int | str] = SIZES,
    seed: int = 0,
    work: Workload | None = None,
    progress: Callable[[float, str], object] | None = None,
) -> Network:
    """Measure a cluster, as a network on which :func:`dtoolkit.comm.predict` tells what it will do.

    Pairs of ranks send messages to and fro, one pair at a time; all ranks send to all at once, rows
    that are picked first, as a product's are; all ranks multiply at once, since they share cores
    and memory; both together, which tells how much of one hides behind the other; and launches that
    do next to nothing. What is reported are medians. Nothing is left on the workers, and the trace
    does not record it.

    Parameters
    ----------
    cluster : Cluster
        Idle, on this machine or elsewhere.
    seconds : float or str
        How long it may take, about, or text such as ``"4s"``; each thing is measured at least once
        whatever it takes.
    sizes : sequence of int or str
        Bytes that all ranks together send at once, or text such as ``"4MB"``. Sizes that would take
        too long are left out, but for the two smallest.
    seed : int
        At least 0. Which pairs are measured where there are too many, and which rows are picked.
        Pairs on one host are taken to be alike, and so are those on two, but for pairs whose times
        all differ from what is usual.
    work : Workload, optional
        What is computed; by default sparse products.
    progress : callable, optional
        ``progress(share, text)``: called with what is done, 0 to 1, and what comes next.

    Returns
    -------
    Network
        Kind "measured"; ``error`` is the median relative error of its own measurements.

    Raises
    ------
    ValueError
        For no time, fewer than two sizes, or another value that makes no sense; before anything
        runs.
    TypeError
        For a cluster, work or progress that is none, or sizes that are no sequence.
    """
    _check(cluster, seed, work, progress)
    limit, amounts = read_seconds(seconds, "seconds"), _amounts(sizes)
    if not limit > 0:
        raise ValueError(f"seconds must be above 0, got {seconds!r}")
    job = _Job(cluster, limit, int(seed), progress or (lambda share, text: None))
    with _untraced(cluster):
        job.tell("launches")
        kernel = work or (_registered[0] if _registered else None)
        empty, launch = job.launches(_launch_of(cluster, kernel))
        late, fast, found = _pairs(job)
        capacity, message, errors = _all_at_once(job, amounts, late)
        rate, hidden = (None, 1.0) if kernel is None else _computing(job, kernel.compute)
    job.progress(1.0, "done")
    return Network.measured(
        latency=late,
        bandwidth=fast,
        host_capacity=capacity,
        nodes=np.asarray(job.nodes),
        message=message,
        rate=rate,
        # The launch's own exchange, of next to nothing, is not part of it.
        overhead=max(empty, launch - late.max() - (job.size - 1) * message),
        overlap=hidden,
        error=statistics.median([*found, *errors]) if job.size > 1 else None,
    )


def _check(cluster: Any, seed: Any, work: Any, progress: Any) -> None:
    """Refuse what would fail in the middle of a calibration."""
    from dtoolkit.cluster.cluster import Cluster  # which is made of much else

    if not isinstance(cluster, Cluster):
        raise TypeError(f"cluster must be a dtoolkit.Cluster, got {_kind(cluster)}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    if work is not None and not isinstance(work, Workload):
        raise TypeError(
            "work must be a dtoolkit.cluster.calibrate.Workload(compute, launch) or None, got "
            f"{_kind(work)}"
        )
    for name, value in (("progress", progress), ("work.launch", work and work.launch)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable or None, got {_kind(value)}")
    if work is not None and not callable(work.compute):
        raise TypeError(f"work.compute must be callable, got {_kind(work.compute)}")


def _amounts(sizes: Any) -> list[int]:
    """Read the sizes, ascending."""
    if isinstance(sizes, str | bytes) or not isinstance(sizes, Sequence | np.ndarray):
        raise TypeError(
            "sizes must be a sequence of two numbers of bytes or more, such as (100_000, '4MB'), "
            f"got {_kind(sizes)}"
        )
    amounts = sorted({size(amount, f"sizes[{i}]") for i, amount in enumerate(sizes)})
    if len(amounts) < 2 or amounts[0] < 1:
        raise ValueError(f"sizes must be two numbers of bytes or more, got {tuple(sizes)}")
    return amounts


def _kind(value: Any) -> str:
    return "None" if value is None else f"{value!r} of type {type(value).__name__}"


@dataclass
class _Job:
    """A calibration under way."""

    cluster: Cluster
    seconds: float
    seed: int
    progress: Callable[[float, str], object]
    size: int = 0
    nodes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.nodes = self.cluster.nodes
        self.size = len(self.nodes)

    def tell(self, what: str) -> None:
        """Say what comes next."""
        before = list(SHARES)[: list(SHARES).index(what)]
        self.progress(sum(SHARES[name] for name in before), what)

    def budget(self, what: str) -> float:
        """Seconds for a part of the work."""
        return self.seconds * SHARES[what]

    def run(self, probe: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a probe on all ranks; its results by rank."""
        return self.cluster.run(probe, *args, timeout=120.0 + 10 * self.seconds)

    def launches(self, launch: Callable[[], object]) -> tuple[float, float]:
        """Seconds of a launch that does nothing, and of one that does next to nothing."""
        kinds = (lambda: self.run(probes.nothing), launch)
        times: list[list[float]] = []
        end = time.perf_counter() + self.budget("launches")
        # The first ones form the group, and are not counted.
        while len(times) < 6 or (time.perf_counter() < end and len(times) < 100):
            times.append([])
            for kind in kinds:
                start = time.perf_counter()
                kind()
                times[-1].append(time.perf_counter() - start)
        empty, full = zip(*times[1:], strict=True)
        return statistics.median(empty), statistics.median(full)


def _launch_of(cluster: Cluster, kernel: Workload | None) -> Callable[[], object]:
    if kernel is not None and kernel.launch is not None:
        return kernel.launch(cluster)
    return lambda: cluster.run(probes.touch, timeout=120.0)


def _pairs(job: _Job) -> tuple[NDArray[np.float64], NDArray[np.float64], list[float]]:
    """Latency and bandwidth by pair, and the errors of the lines drawn through the times."""
    late, fast = np.zeros((job.size, job.size)), np.full((job.size, job.size), np.inf)
    job.tell("pairs")
    pairs = list(itertools.combinations(range(job.size), 2))
    kinds = {pair: job.nodes[pair[0]] == job.nodes[pair[1]] for pair in pairs}
    if not pairs:
        return late, fast, []
    order = [pairs[n] for n in np.random.default_rng(job.seed).permutation(len(pairs))]
    # One of each kind first, which tell how many can be measured.
    first = [next(p for p in order if kinds[p] == kind) for kind in sorted(set(kinds.values()))]
    start = time.perf_counter()
    _pinged(job, first, 1)
    each = (time.perf_counter() - start) / len(first) / 2
    room = job.budget("pairs") / each
    chosen = [*dict.fromkeys([*first, *order[: int(room / 6)]])]
    rounds = max(3, _rounds(room / 2, len(chosen)))
    times, again = _pinged(job, chosen, rounds), _pinged(job, chosen, rounds)
    for pair in times:
        times[pair] = [a + b for a, b in zip(times[pair], again[pair], strict=True)]
    lines, errors = pair_lines(times, kinds, PINGS)
    for pair in pairs:
        at_once, per_byte = lines.get(pair, lines[kinds[pair]])
        for source, target in (pair, pair[::-1]):
            late[source, target], fast[source, target] = at_once, 1 / per_byte
    return late, fast, errors


def _pinged(
    job: _Job, pairs: Sequence[tuple[int, int]], rounds: int
) -> dict[tuple[int, int], list[list[float]]]:
    found: dict[tuple[int, int], list[list[float]]] = {}
    for answer in job.run(probes.pings, list(pairs), PINGS, rounds):
        found |= answer
    return found


def _all_at_once(
    job: _Job, sizes: Sequence[int], late: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float, list[float]]:
    """Capacity of each host, what a message costs beside its bytes, and the errors."""
    job.tell("all at once")
    if job.size == 1:
        return np.array([job.run(probes.copying, max(sizes), 5)[0]]), 0.0, []
    messages = job.size * (job.size - 1)
    times = _talked(job, [-(-n // messages) for n in sizes])
    nodes = np.asarray(job.nodes)
    capacity, costs, errors = [], [], []
    for host in range(max(job.nodes) + 1):
        mine = np.flatnonzero(nodes == host)
        # What these ranks send to all, and what comes to them from other hosts.
        through = len(mine) * (2 * job.size - 1 - len(mine))
        moved = [through * nbytes for nbytes in times]
        median = [
            statistics.median(max(one[rank] for rank in mine) for one in rounds)
            for rounds in times.values()
        ]
        line = line_through(moved, median)
        capacity.append(1 / line[1])
        costs.append((line[0] - late[mine].max()) / (job.size - 1))
        errors += errors_of(line, moved, median)
    return np.array(capacity), max(0.0, *costs), errors


def _talked(job: _Job, sizes: Sequence[int]) -> dict[int, list[tuple[float, ...]]]:
    """Seconds of all-to-alls by bytes of a message: rounds, each by rank."""
    times: dict[int, list[tuple[float, ...]]] = {}
    took: dict[int, float] = {}

    def talk(nbytes: int, rounds: int) -> None:
        start = time.perf_counter()
        by_rank = job.run(probes.talk, nbytes, rounds, job.seed)
        took[nbytes] = (time.perf_counter() - start) / (rounds + 1)
        times.setdefault(nbytes, []).extend(zip(*by_rank, strict=True))

    budget = job.budget("all at once")
    start = time.perf_counter()
    for nbytes in sizes:
        talk(nbytes, 1)
        if len(times) > 1 and took[nbytes] > budget / 4:
            break
    left = (budget - (time.perf_counter() - start)) / PASSES / len(times)
    for _ in range(PASSES):
        for nbytes in tuple(times):
            talk(nbytes, _rounds(left, took[nbytes]))
    return times


def _computing(job: _Job, work: Work) -> tuple[dict[str, float], float]:
    """Amounts a second by dtype, and how much of sending and computing hides behind the other."""
    job.tell("computing")
    times: dict[str, list[float]] = {dtype: [] for dtype in DTYPES}
    amounts: dict[str, float] = {}

    def compute(rounds: int) -> None:
        answers = job.run(probes.compute, work, DTYPES, rounds, job.seed)
        for dtype in DTYPES:
            amounts[dtype] = max(answer[dtype][0] for answer in answers)
            times[dtype] += map(max, zip(*(answer[dtype][1] for answer in answers), strict=True))

    start = time.perf_counter()
    compute(1)
    first = time.perf_counter() - start
    each = sum(map(sum, times.values()))
    compute(max(3, _rounds(job.budget("computing") - 2 * first, each)))
    seconds = {dtype: statistics.median(times[dtype]) for dtype in DTYPES}
    rates = {dtype: amounts[dtype] / seconds[dtype] for dtype in DTYPES}
    if job.size == 1:
        return rates, 1.0
    job.tell("overlap")
    return rates, _hidden(job, work, seconds[DTYPES[0]])


def _hidden(job: _Job, work: Work, computing: float) -> float:
    """Share of the shorter of sending and computing that takes no time of its own."""
    nbytes = OVERLAPPED // (job.size * (job.size - 1))
    start = time.perf_counter()
    sending = statistics.median(map(max, zip(*job.run(probes.talk, nbytes, 1, 0), strict=True)))
    repeats = int(min(50, max(1, round(sending / computing))))
    left = job.budget("overlap") - (time.perf_counter() - start)
    rounds = max(3, _rounds(left, 2 * (sending + repeats * computing)))
    answers = job.run(probes.overlap, work, DTYPES[0], nbytes, repeats, rounds, job.seed)
    columns = [
        [max(by_rank) for by_rank in zip(*column, strict=True)]
        for column in zip(*answers, strict=True)
    ]
    shares = [(x + w - both) / min(x, w) for x, w, both in zip(*columns, strict=True)]
    return float(np.clip(statistics.median(shares), 0.0, 1.0))


def _rounds(seconds: float, each: float) -> int:
    return int(min(MOST, max(1, seconds / each)))


@contextmanager
def _untraced(cluster: Cluster) -> Iterator[None]:
    before, cluster.trace.enabled = cluster.trace.enabled, False
    try:
        yield
    finally:
        cluster.trace.enabled = before
