"""STREAM on distributed arrays: what the memories of the workers deliver.

Four kernels on vectors of N = workers * 2**lg elements, timed apart, without communication: copy
C = A, scale B = q C, add C = A + B, triad A = B + q C (McCalpin's STREAM; distributed by maps as in
Kepner et al., HPEC 2025, arXiv 2508.17493). With q = sqrt(2) - 1 and A = 1 at the start, A = 1,
B = q and C = sqrt(2) after any number of trials, which is checked.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.arrays.array import check_memory
from dtoolkit.arrays.convert import as_dtype
from dtoolkit.arrays.creation import empty, ones
from dtoolkit.arrays.layout import Layout
from dtoolkit.cluster import Cluster, Context

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KERNELS", "StreamResult", "run_kernel", "stream"]

KERNELS = ("copy", "scale", "add", "triad")
Q = math.sqrt(2) - 1

_LEAD = 1e-3  # seconds from the last rank's word to the common start

# Arrays that a kernel reads and writes: nominal passes over memory, each of one element's size.
PASSES = {"copy": 2, "scale": 2, "add": 3, "triad": 3}


@dataclass(frozen=True)
class StreamResult:
    """What STREAM measured, and whether its arithmetic was exact.

    Nominal bytes count what a kernel reads and writes: 16 an element for copy and scale, 24 for add
    and triad (float64). A cache that reads a line before it overwrites it moves one pass more, 24
    and 32, unless it is written around; so a memory can be faster than these figures say, by up to
    1.5 and 1.33. Every kernel here is one pass of torch over its arrays, into a given one.

    Attributes
    ----------
    frame : DataFrame
        A row a kernel and rank: kernel, rank, host, device, elements, nominal bytes, seconds (best
        trial), median seconds, GB/s (nominal bytes by best seconds, 10**9 bytes).
    samples : DataFrame
        A row a kernel, trial and rank: kernel, trial, rank, host, device, nominal bytes, start on
        the client's clock, seconds.
    elements : int
        Length of each array, over all ranks.
    trials : int
    dtype : str
    layout : str
    error : float
        Largest deviation of an element of A, B or C from its exact value, relative to it.
    tolerance : float
        What is allowed: 4e-16 * (trials + 1) in float64, in proportion to the precision of others.
    bytes_sent : int
        Payload that the ranks sent while kernels were timed, from the trace.
    """

    frame: pd.DataFrame
    samples: pd.DataFrame
    elements: int
    trials: int
    dtype: str
    layout: str
    error: float
    tolerance: float
    bytes_sent: int

    @property
    def exact(self) -> bool:
        """Whether all elements are right, no row is missing or twice, and nothing was sent."""
        rows = self.frame[self.frame["kernel"] == "copy"]["elements"].sum()
        return self.error <= self.tolerance and self.bytes_sent == 0 and rows == self.elements

    def bandwidth(self, by: str = "worker") -> pd.DataFrame:
        """Nominal GB/s.

        Parameters
        ----------
        by : {"worker", "device", "node", "cluster"}
            For a worker by its own seconds. For what several share, their bytes by the time from
            the first one's start to the last one's end, best trial, so that workers which wait for
            a core do not look faster than they are. All begin together in every trial.

        Returns
        -------
        DataFrame
            Index: rank, (host, device), host, or "all"; a column a kernel.
        """
        groups = {"worker": ["rank"], "device": ["host", "device"], "node": ["host"]}
        samples = self.samples.assign(end=self.samples["start"] + self.samples["seconds"])
        if by == "cluster":
            samples, keys = samples.assign(cluster="all"), ["cluster"]
        elif by in groups:
            keys = groups[by]
        else:
            raise ValueError(f"by={by!r}: wanted 'worker', 'device', 'node' or 'cluster'")
        found = samples.groupby([*keys, "kernel", "trial"])
        sums = found.agg({"nominal bytes": "sum", "start": "min", "end": "max"})
        rate = sums["nominal bytes"] / (sums["end"] - sums["start"]) / 1e9
        table = rate.groupby([*keys, "kernel"]).max().unstack("kernel")
        table.columns.name = None
        return table[list(KERNELS)]

    def __repr__(self) -> str:
        return f"{self._heading}\n{self._table.to_string(float_format='{:.2f}'.format)}"

    def _repr_html_(self) -> str:
        table = self._table.to_html(float_format="{:.2f}".format, border=0)
        return f"<div><p>{self._heading}</p>{table}</div>"

    @property
    def _heading(self) -> str:
        verdict = "exact" if self.exact else "NOT EXACT"
        return (
            f"STREAM, {self.elements:,} elements of {self.dtype} ({self.layout}), best of "
            f"{self.trials} trials, nominal GB/s (measured). {verdict}: relative error "
            f"{self.error:.1e}, allowed {self.tolerance:.1e}; {self.bytes_sent} bytes sent while "
            "timed"
        )

    @property
    def _table(self) -> pd.DataFrame:
        import pandas as pd

        parts = []
        for by in ("worker", "device", "node", "cluster"):
            table = self.bandwidth(by)
            names = [" ".join(map(str, i)) if isinstance(i, tuple) else i for i in table.index]
            parts.append(table.set_axis([f"{by} {name}" for name in names], axis=0))
        return pd.concat(parts)


def stream(
    cluster: Cluster,
    *,
    lg: int = 22,
    trials: int = 10,
    layout: str | Layout = "block",
    dtype: Any = "float64",
) -> StreamResult:
    """Measure the bandwidth of the workers' memories.

    Parameters
    ----------
    cluster : Cluster
    lg : int
        Each of the three arrays has workers * 2**lg elements; take them several times larger than
        the caches (2**22 float64 are 32 MiB).
    trials : int
        Times that each kernel runs.
    layout : "block", "cyclic" or Layout
        The map; shards are contiguous in memory whatever it is, so that it must not matter.
    dtype : torch.dtype, or NumPy's or Python's name of one
        Floating.

    Returns
    -------
    StreamResult

    Raises
    ------
    ValueError
        An argument is out of range.
    MemoryError
        The arrays do not fit.
    """
    lg, trials = _count("lg", lg, 0, 40), _count("trials", trials, 1, 100_000)
    found = as_dtype(dtype)
    if not found.is_floating_point:
        raise TypeError(f"dtype={dtype!r}: wanted a floating-point dtype")
    members = cluster.workers
    n = len(members) << lg
    rows = Layout.block(n, len(members)).sizes if isinstance(layout, str) else layout.sizes
    check_memory(cluster, list(3 * rows * found.itemsize), f"STREAM on 3 arrays of {n} elements")
    A = ones(cluster, n, layout=layout, dtype=found)
    B, C = (empty(cluster, n, layout=A.layout, dtype=found) for _ in range(2))
    seen = len(cluster.trace.events)
    answers = cluster.run(_measure, A, B, C, trials)
    events = cluster.trace.events[seen:]
    samples = _samples(answers, members, found.itemsize)
    return StreamResult(
        _best(samples),
        samples,
        n,
        trials,
        str(found).removeprefix("torch."),
        A.layout.kind,
        max(answer["error"] for answer in answers),
        4e-16 * (trials + 1) * torch.finfo(found).eps / torch.finfo(torch.float64).eps,
        sum(sum(event.sent) for event in events if event.phase == "timed"),
    )


def run_kernel(name: str, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, q: float) -> None:
    """Run one kernel in place, as one pass over its arrays."""
    if name == "copy":
        C.copy_(A)
    elif name == "scale":
        torch.mul(C, q, out=B)
    elif name == "add":
        torch.add(A, B, out=C)
    else:
        torch.add(B, C, alpha=q, out=A)


def _measure(
    ctx: Context, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, trials: int
) -> dict[str, Any]:
    """Each kernel of each trial, begun together: start on the client's clock, and seconds."""
    starts: dict[str, list[float]] = {name: [] for name in KERNELS}
    seconds: dict[str, list[float]] = {name: [] for name in KERNELS}
    B.zero_(), C.zero_()  # pages are there before the clock runs
    if A.is_cuda:
        torch.cuda.synchronize(A.device)
    for _ in range(trials):
        for name in KERNELS:
            _wait_for_all(ctx)
            with ctx.comm.phase("timed"):
                starts[name].append(ctx.clock())
                began = perf_counter()
                run_kernel(name, A, B, C, Q)
                if A.is_cuda:
                    torch.cuda.synchronize(A.device)
                seconds[name].append(perf_counter() - began)
    error = max(
        float((array.double() - exact).abs().max() / exact) if len(array) else 0.0
        for array, exact in ((A, 1.0), (B, Q), (C, math.sqrt(2)))
    )
    return {"elements": len(A), "starts": starts, "seconds": seconds, "error": error}


def _wait_for_all(ctx: Context) -> None:
    """Let all ranks begin at one time: a barrier alone lets them go one after the other."""
    clocks = ctx.comm.all_gather(torch.tensor([ctx.clock()], dtype=torch.float64))
    sleep(max(0.0, float(clocks.max()) + _LEAD - ctx.clock()))


def _samples(answers: list[dict[str, Any]], members: list[Any], itemsize: int) -> pd.DataFrame:
    import pandas as pd

    lines = [
        {
            "kernel": name,
            "trial": trial,
            "rank": member.rank,
            "host": member.host,
            "device": member.gpu or member.device,
            "elements": answer["elements"],
            "nominal bytes": PASSES[name] * itemsize * answer["elements"],
            "start": start,
            "seconds": seconds,
        }
        for member, answer in zip(members, answers, strict=True)
        for name in KERNELS
        for trial, (start, seconds) in enumerate(
            zip(answer["starts"][name], answer["seconds"][name], strict=True)
        )
    ]
    return pd.DataFrame(lines)


def _best(samples: pd.DataFrame) -> pd.DataFrame:
    """Best and median trial of each kernel and rank."""
    keys = ["kernel", "rank", "host", "device", "elements", "nominal bytes"]
    found = samples.groupby(keys, sort=False)["seconds"].agg(["min", "median"]).reset_index()
    found = found.rename(columns={"min": "seconds", "median": "median seconds"})
    return found.assign(**{"GB/s": found["nominal bytes"] / found["seconds"] / 1e9})


def _count(name: str, value: Any, low: int, high: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r}: wanted an integer") from None
    if not low <= number <= high:
        raise ValueError(f"{name}={number}: wanted {low} to {high}")
    return number
