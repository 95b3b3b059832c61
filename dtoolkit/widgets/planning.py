"""What a panel plans: pure functions of what was chosen, and the code that does the same."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from dtoolkit.arrays import partitioners
from dtoolkit.arrays.layout import Layout
from dtoolkit.comm import Network
from dtoolkit.data import as_csr
from dtoolkit.errors import PlanError
from dtoolkit.figures.strategy_table import Contender
from dtoolkit.spmm import Plan, strategies
from dtoolkit.spmm.partition import lay_out
from dtoolkit.spmm.plan import plan
from dtoolkit.spmm.summary import imbalance
from dtoolkit.widgets.matrices import Matrix

__all__ = [
    "NEEDS",
    "PARTITIONERS",
    "SLOW",
    "STRATEGIES",
    "Question",
    "answer",
    "code",
    "contender",
    "layouts",
    "partitioner_choices",
    "partitioner_names",
    "run_code",
    "strategy_names",
]

PARTITIONERS = {
    "block": "Blocks of rows",
    "cyclic": "Rows dealt out in turn",
    "random": "Random",
    "balanced": "Blocks with even nonzeros",
    "rcm": "Blocks after reordering (RCM)",
    "metis": "METIS: cut of the graph",
    "hypergraph": "Hypergraph: rows sent",
}
"""Name to words; names that ``dt.plan`` has beside these are offered too."""

NEEDS = {"metis": "pymetis", "hypergraph": "mtkahypar"}
"""Modules that partitioners stand on and that may be missing."""

SLOW = {"rcm": 2_000_000, "metis": 60_000, "hypergraph": 0}
"""Nonzeros from which a partitioner is run in a process of its own."""

STRATEGIES = {
    "joint": "Joint: the least that can move",
    "column": "Column: rows of B",
    "row": "Row: partial rows of C",
    "oblivious": "Oblivious: all of B to all",
    "hier-joint": "Joint in two tiers",
    "hier-column": "Column in two tiers",
    "hier-row": "Row in two tiers",
    "node-pair": "Joint by pair of nodes",
    "1.5d": "1.5D: replicated",
    "2d": "2D: a grid of ranks",
}
"""Name to words, in the order of the table; names that ``dt.plan`` has beside these come last."""


@dataclass(frozen=True)
class Question:
    """What was chosen beside the matrix.

    Attributes
    ----------
    parts : int
    partition, strategy : str
    ranks_per_node : int or None
        None where there are no nodes, or parts do not fill them.
    k : int
        Dense columns.
    dtype : str
        Of the dense matrices.
    seed : int
        Of the partitioner, where it draws.
    """

    parts: int
    partition: str
    strategy: str
    ranks_per_node: int | None
    k: int
    dtype: str
    seed: int


def partitioner_names() -> dict[str, str]:
    """Partitioners that ``dt.plan`` knows, with words."""
    names = [n for n in PARTITIONERS if n in partitioners.NAMES]
    names += [n for n in partitioners.NAMES if n not in PARTITIONERS]
    return {name: PARTITIONERS.get(name, name) for name in names}


def partitioner_choices() -> dict[str, str]:
    """Partitioners as they are offered: those whose package is missing say so."""
    return {
        name: words
        if name not in NEEDS or find_spec(NEEDS[name]) is not None
        else f"{words.partition(':')[0]} (not installed)"
        for name, words in partitioner_names().items()
    }


def strategy_names() -> dict[str, str]:
    """Strategies that ``dt.plan`` knows, with words."""
    known = [n for n in STRATEGIES if n in strategies.NAMES]
    known += [n for n in strategies.NAMES if n not in STRATEGIES and n != "auto"]
    return {name: STRATEGIES.get(name, name) for name in known}


def layouts(A: Any, parts: int, partition: str, seed: int) -> tuple[Layout, Layout]:
    """Lay out rows and columns; this is what takes long with some partitioners."""
    return lay_out(as_csr(A, copy=False), parts, _partitioner(partition, seed)[0])


def answer(A: Any, question: Question, rows: Layout, columns: Layout, strategy: str) -> Plan:
    """Plan one strategy on layouts that are there.

    Raises
    ------
    PlanError
        In words, where the strategy cannot be had with these parts.
    """
    if strategy in strategies.OVER_NODES and question.ranks_per_node is None:
        raise PlanError(
            f"{strategy} needs nodes: choose a network of two tiers, and parts that fill its nodes"
        )
    more: dict[str, Any] = {}
    if question.ranks_per_node is not None:
        more["ranks_per_node"] = question.ranks_per_node
    return plan(A, parts=question.parts, strategy=strategy, partition=rows, columns=columns, **more)


def contender(made: Plan, question: Question, network: Network | None, why: str) -> Contender:
    """Sum up a plan as a line of the table.

    Parameters
    ----------
    made : Plan
    question : Question
    network : Network or None
    why : str
        Why there is no network.
    """
    between = inside = seconds = None
    bottleneck = ""
    if made.nodes is not None:
        between, inside = int(made.volume_between_nodes), int(made.volume_inside_nodes)
    if network is not None:
        predicted = made.predict(network, k=question.k, dtype=question.dtype)
        seconds, bottleneck = float(predicted.seconds), predicted.bottleneck
    return Contender(
        strategy=made.strategy,
        volume=made.volume,
        between=between,
        inside=inside,
        sent_bytes=made.bytes(question.k, question.dtype),
        traffic_balance=imbalance(made.own_load.moved),
        work_balance=imbalance(made.work),
        seconds=seconds,
        bottleneck=bottleneck,
        note="" if network is not None else why,
    )


def code(matrix: Matrix, question: Question, network: str) -> str:
    """Write Python that makes the same plan and the same figure without the panel."""
    lines = ["import dtoolkit as dt", "from dtoolkit.figures import overview", ""]
    if matrix.comment:
        lines.append(f"# {matrix.comment}")
    if matrix.code != "A":
        lines.append(f"A = {matrix.code}")
    lines += [
        "plan = dt.plan(",
        "    A,",
        f"    parts={question.parts},",
        f"    strategy={question.strategy!r},",
        f"    partition={_partitioner(question.partition, question.seed)[1]},",
    ]
    if question.ranks_per_node is not None:
        lines.append(f"    ranks_per_node={question.ranks_per_node},")
    lines += [")", "plan.compare()  # all strategies side by side, planned", ""]
    if network:
        lines.append(f"network = {network}")
        lines.append(
            f"prediction = plan.predict(network, k={question.k}, dtype={question.dtype!r})"
        )
        lines.append("print(prediction)  # modelled")
    lines.append(f"overview(A, plan, k={question.k}, dtype={question.dtype!r})")
    return "\n".join(lines) + "\n"


def run_code(question: Question) -> str:
    """Write Python that multiplies on workers; it goes on from :func:`code`."""
    return "\n".join(
        [
            "",
            "# On workers:",
            f"shape = (A.shape[1], {question.k})",
            f"drawn = dict(seed={question.seed}, layout=plan.columns, dtype={question.dtype!r})",
            f"with dt.Cluster(workers={question.parts}) as cluster:",
            "    B = dt.arrays.standard_normal(cluster, shape, **drawn)",
            "    C = dt.distribute(cluster, A, plan) @ B",
            "    print(cluster.trace)  # measured",
            "",
        ]
    )


def _partitioner(name: str, seed: int) -> tuple[Any, str]:
    """Partitioner of a name, with the seed where it takes one, and the Python that says so."""
    kind = type(partitioners.by_name(name))
    takes = {field.name for field in dataclasses.fields(kind)}
    if "seed" not in takes or seed == 0:
        return name, repr(name)
    return kind(seed=seed), f"dt.arrays.partitioners.{kind.__name__}(seed={seed})"  # type: ignore[call-arg]
