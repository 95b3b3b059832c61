"""Choose a machine, a layout and a strategy for a matrix and a budget, and score the choice.

Everything here is planned or modelled: an outcome follows from the plan of a product and from the
model of a network, and no worker is asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtoolkit.comm import Network
from dtoolkit.comm.amounts import bytes_text, seconds_text
from dtoolkit.spmm.plan import Plan, plan

__all__ = [
    "Budget",
    "Design",
    "Offer",
    "Outcome",
    "Score",
    "designs",
    "evaluate",
    "score",
    "search",
]


@dataclass(frozen=True)
class Offer:
    """A kind of machine that can be rented by the node.

    Attributes
    ----------
    name : str
    price : float
        Of one node for an hour, in whatever currency.
    ranks_per_node : int
    inter, intra : str
        Bandwidth between nodes and inside one, as ``Network.two_tier`` takes it.
    inter_latency, intra_latency : str
    rate : float
        Nonzeros times dense columns that a rank multiplies in a second.
    """

    name: str
    price: float
    ranks_per_node: int
    inter: str
    intra: str
    inter_latency: str = "5us"
    intra_latency: str = "1us"
    rate: float = 2e9

    def network(self, nodes: int) -> Network:
        """Return the network of so many nodes."""
        return Network.two_tier(
            nodes=nodes,
            ranks_per_node=self.ranks_per_node,
            inter=self.inter,
            intra=self.intra,
            inter_latency=self.inter_latency,
            intra_latency=self.intra_latency,
            rate=self.rate,
        )


@dataclass(frozen=True)
class Design:
    """What is chosen: a machine, how many nodes of it, who gets which rows, and a strategy.

    Attributes
    ----------
    offer : Offer
    nodes : int
    partition : str or other
        What ``dt.plan(partition=)`` takes.
    strategy : str
    """

    offer: Offer
    nodes: int
    partition: Any = "block"
    strategy: str = "joint"

    def __str__(self) -> str:
        named = self.partition if isinstance(self.partition, str) else "a partition of one's own"
        return f"{self.nodes} nodes of {self.offer.name}, {named}, {self.strategy}"


@dataclass(frozen=True)
class Budget:
    """What is to be done, and what it may take.

    Attributes
    ----------
    products : int
        With the same matrix, one after the other.
    k : int
        Dense columns, float32.
    money : float
        For all products, at the offer's price.
    hours : float
    between : float
        Bytes that may cross between nodes in one product.
    """

    products: int
    k: int
    money: float = math.inf
    hours: float = math.inf
    between: float = math.inf


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a design takes.

    Attributes
    ----------
    design : Design
    plan : Plan
    seconds : float
        Of one product (modelled).
    hours, money : float
        Of all products (modelled).
    between : int
        Bytes between nodes in one product (planned).
    """

    design: Design
    plan: Plan
    seconds: float
    hours: float
    money: float
    between: int

    def excess(self, budget: Budget) -> dict[str, float]:
        """Return the limits that are not kept, each with how many times it is exceeded."""
        ratios = {
            "money": self.money / budget.money,
            "hours": self.hours / budget.hours,
            "bytes between nodes": self.between / budget.between,
        }
        return {name: ratio for name, ratio in ratios.items() if ratio > 1}

    def __str__(self) -> str:
        return (
            f"{self.design}: {seconds_text(self.seconds)} a product, {self.hours:.2f} hours, "
            f"{self.money:.2f} of money (modelled), {bytes_text(self.between)} between nodes a "
            "product (planned)"
        )


@dataclass(frozen=True)
class Score:
    """Points from 0 to 100, and why.

    Attributes
    ----------
    points : int
    words : str
    """

    points: int
    words: str

    def __str__(self) -> str:
        return f"{self.points} of 100 points. {self.words}"


def designs(
    offers: Sequence[Offer],
    nodes: Sequence[int],
    partitions: Sequence[Any],
    strategies: Sequence[str],
) -> Iterator[Design]:
    """Yield every combination, those that share a layout one after the other."""
    for partition, count, offer, strategy in itertools.product(
        partitions, nodes, offers, strategies
    ):
        yield Design(offer, count, partition, strategy)


def evaluate(A: Any, design: Design, budget: Budget) -> Outcome:
    """Plan a product by a design, and predict what all products take.

    Parameters
    ----------
    A : matrix
        Anything that ``dt.plan`` takes.
    design : Design
    budget : Budget
        For the number of products and of columns.

    Returns
    -------
    Outcome

    Raises
    ------
    PlanError, LayoutError
        As ``dt.plan``.
    """
    per_node = design.offer.ranks_per_node
    made = plan(
        A,
        parts=design.nodes * per_node,
        partition=design.partition,
        strategy=design.strategy,
        ranks_per_node=per_node,
    )
    return _outcome(made, design, budget)


def search(A: Any, candidates: Iterable[Design], budget: Budget) -> list[Outcome]:
    """Evaluate all candidates; those that keep the budget first, the fastest of them in front.

    Each layout and each plan is made once, however many offers share it.

    Returns
    -------
    list of Outcome
    """
    layouts: dict[tuple[Any, int], Any] = {}
    plans: dict[tuple[Any, ...], Plan] = {}
    found = []
    for design in candidates:
        per_node = design.offer.ranks_per_node
        name = design.partition if isinstance(design.partition, str) else id(design.partition)
        laid = (name, design.nodes * per_node)
        key = (*laid, per_node, design.strategy)
        if key not in plans:
            plans[key] = plan(
                A,
                parts=laid[1],
                partition=layouts.get(laid, design.partition),
                strategy=design.strategy,
                ranks_per_node=per_node,
            )
            layouts[laid] = plans[key].rows
        found.append(_outcome(plans[key], design, budget))
    return sorted(found, key=lambda one: (bool(one.excess(budget)), one.seconds))


def score(outcome: Outcome, reference: Outcome, budget: Budget) -> Score:
    """Hold a design against the best that a search found.

    A design that keeps the budget has 100 points times the reference's time over its own, at most
    100. One that does not has half of that, divided by how many times each limit is exceeded.

    Parameters
    ----------
    outcome, reference : Outcome
    budget : Budget

    Returns
    -------
    Score
    """
    ratio = reference.seconds / outcome.seconds
    over = outcome.excess(budget)
    points = 100 * min(1.0, ratio)
    if over:
        points = 0.5 * points / float(np.prod(list(over.values())))
        words = ", ".join(f"{name} {times:.2f} times the limit" for name, times in over.items())
        return Score(math.floor(points), f"Over the budget: {words}.")
    if ratio > 1:
        words = f"Within the budget, and {ratio:.2f} times as fast as the reference."
    elif ratio == 1:
        words = "Within the budget, and as fast as the reference."
    else:
        words = f"Within the budget, and {1 / ratio:.2f} times as slow as the reference."
    return Score(math.floor(points + 1e-9), words)


def _outcome(made: Plan, design: Design, budget: Budget) -> Outcome:
    network = design.offer.network(design.nodes)
    seconds = float(made.predict(network, k=budget.k, dtype="float32").seconds)
    hours = seconds * budget.products / 3600
    between = int(made.volume_between_nodes) * budget.k * 4
    money = hours * design.nodes * design.offer.price
    return Outcome(design, made, seconds, hours, money, between)
