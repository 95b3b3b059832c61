"""Which worker holds which part of a model: a plan, and what it costs.

Source: Subnetwork data parallelism (arXiv 2507.09029). How masks are made is not stated in what we
have; a cyclic assignment, each block on exactly ``coverage * workers`` workers, meets the principle
that it states: every parameter is held, as often as any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from torch import nn

from dtoolkit.training.subnetworks.finding import owned_by, residual_blocks, rows_of

__all__ = ["CITATION", "Block", "Part", "SubnetworkPlan", "holders_of", "plan_subnetworks"]

CITATION = "Subnetwork data parallelism, arXiv 2507.09029"


@dataclass(frozen=True)
class Part:
    """A run of the elements of a parameter.

    Attributes
    ----------
    parameter : str
    start, stop : int
        Elements of the flat parameter.
    """

    parameter: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Block:
    """What is held together: a residual block, or some neurons of a layer.

    Attributes
    ----------
    module : str
    rows : (int, int) or None
        Neurons from and to; None for a whole module.
    parts : tuple of Part
    holders : tuple of int
        Workers, ascending.
    """

    module: str
    rows: tuple[int, int] | None
    parts: tuple[Part, ...]
    holders: tuple[int, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))


@dataclass(frozen=True)
class SubnetworkPlan:
    """Who holds what.

    Attributes
    ----------
    coverage : float
    by : {"neuron", "block"}
    workers : int
    blocks : tuple of Block
        What is masked.
    common : tuple of Part
        What all workers hold: whatever else is learned.
    """

    coverage: float
    by: str
    workers: int
    blocks: tuple[Block, ...]
    common: tuple[Part, ...]

    @property
    def maskable(self) -> int:
        """Elements that are masked somewhere."""
        return sum(map(len, self.blocks))

    @property
    def learned(self) -> int:
        """Elements in all."""
        return self.maskable + sum(map(len, self.common))

    def sets(self) -> dict[tuple[int, ...], tuple[Part, ...]]:
        """What each set of workers holds together, the set of all workers first."""
        found: dict[tuple[int, ...], list[Part]] = {tuple(range(self.workers)): [*self.common]}
        for block in self.blocks:
            found.setdefault(block.holders, []).extend(block.parts)
        return {holders: _merged(parts) for holders, parts in found.items() if parts}

    def held(self, worker: int) -> int:
        """Elements of the masked ones that a worker holds."""
        return sum(len(block) for block in self.blocks if worker in block.holders)

    def gradient_words(self) -> int:
        """Words that all workers send in a step for gradients: the ring all-reduces of all sets."""
        return sum(
            2 * (len(holders) - 1) * sum(map(len, parts)) for holders, parts in self.sets().items()
        )

    def weight_words(self) -> int:
        """Words that all workers send to give others what these do not hold, once."""
        return sum((self.workers - len(block.holders)) * len(block) for block in self.blocks)

    def facts(self) -> list[tuple[str, str]]:
        """The plan as names and values."""
        each = [self.held(worker) for worker in range(self.workers)]
        dense = 2 * (self.workers - 1) * self.learned
        noun = "residual blocks" if self.by == "block" else "groups of neurons"
        return [
            (
                "masked",
                f"{self.maskable:,} of {self.learned:,} parameters, in {len(self.blocks)} {noun}",
            ),
            ("on", f"{round(self.coverage * self.workers)} of {self.workers} workers each"),
            ("a worker holds", f"{min(each):,} to {max(each):,} of them"),
            ("gradients", f"{self.gradient_words():,} words a step in all, of {dense:,}"),
            ("weights", f"{self.weight_words():,} words to give all the whole"),
        ]

    def cite(self) -> str:
        """What to cite."""
        return CITATION

    def __repr__(self) -> str:
        lines = [f"  {name:15} {value}" for name, value in self.facts()]
        head = f"<SubnetworkPlan: coverage {self.coverage:g} by {self.by}"
        return "\n".join([head, *lines]) + ">"

    def _repr_html_(self) -> str:
        from dtoolkit.figures.subnetwork_card import subnetwork_card

        return subnetwork_card(self)


def plan_subnetworks(
    model: nn.Module,
    *,
    workers: int,
    coverage: float = 0.5,
    by: str = "neuron",
    forward: bool = False,
    blocks: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
) -> SubnetworkPlan:
    """Give each block of a model to ``coverage * workers`` workers, in turn.

    By neuron, the rows of each linear or convolutional layer are cut into as many groups as there
    are workers; a group has its weights and biases. What is no such row (norms, embeddings, tied
    and parametrized weights) is held by all. Layers begin with workers in turn, and so do residual
    blocks.

    Parameters
    ----------
    model : nn.Module
    workers : int
    coverage : float
        Above 0 and up to 1; times the workers, a whole number.
    by : {"neuron", "block"}
    forward : bool
        The forward is masked too: the last layer's neurons, which are outputs, are held by all.
    blocks : sequence of str, optional
        Names of residual blocks; by default what looks like them
        (:func:`~dtoolkit.training.subnetworks.finding.residual_blocks`).
    keep : sequence of str, optional
        By neuron, layers that all workers hold, in place of the last one.

    Returns
    -------
    SubnetworkPlan

    Raises
    ------
    ValueError
        An argument makes no sense, or nothing of the model can be masked.
    """
    count = holders_of(coverage, workers)
    if by == "neuron":
        found = _by_neuron(model, workers, count, keep=keep, forward=forward)
    elif by == "block":
        found = _by_block(model, workers, count, residual_blocks(model, blocks))
    else:
        raise ValueError(f"by={by!r}: wanted 'neuron' or 'block'")
    if not found and count < workers:
        raise ValueError(
            f"coverage={coverage:g} by {by}: the model has nothing that can be masked, such as "
            "hidden layers; wanted coverage=1, or another model"
        )
    taken: dict[str, int] = {}
    for block in found:
        for part in block.parts:
            taken[part.parameter] = taken.get(part.parameter, 0) + len(part)
    common = tuple(
        Part(name, 0, value.numel())
        for name, value in model.named_parameters()
        if value.requires_grad and name not in taken
    )
    return SubnetworkPlan(float(coverage), by, workers, tuple(found), common)


def holders_of(coverage: float, workers: int) -> int:
    """How many workers hold a block.

    Raises
    ------
    ValueError
        The coverage is out of range, or gives no whole number of workers.
    """
    real = isinstance(coverage, Real) and not isinstance(coverage, bool)
    if not real or not 0 < float(coverage) <= 1:
        raise ValueError(f"coverage={coverage!r}: wanted a number above 0 and up to 1")
    exact = float(coverage) * workers
    count = round(exact)
    if count < 1 or not math.isclose(exact, count, rel_tol=1e-9):
        choices = ", ".join(f"{k}/{workers}" for k in range(1, workers + 1))
        raise ValueError(
            f"coverage={coverage:g}: of {workers} workers that is {exact:g}, and each block is on "
            f"a whole number of them; wanted one of {choices}"
        )
    return count


def _ring(first: int, count: int, workers: int) -> tuple[int, ...]:
    return tuple(sorted((first + place) % workers for place in range(count)))


def _by_neuron(
    model: nn.Module,
    workers: int,
    count: int,
    *,
    keep: Sequence[str] | None,
    forward: bool,
) -> list[Block]:
    names = {id(value): name for name, value in model.named_parameters() if value.requires_grad}
    blocks = []
    for turn, (module, layer) in enumerate(rows_of(model, keep=keep, forward=forward)):
        values = [
            value
            for value in layer._parameters.values()
            if value is not None and id(value) in names and owned_by(model, module, value)
        ]
        rows = len(values[0])
        ends = [rows * group // workers for group in range(workers + 1)]
        for group in range(workers):
            start, stop = ends[group], ends[group + 1]
            parts = tuple(_rows(names[id(value)], value, start, stop) for value in values)
            if start < stop:
                holders = _ring(group + turn, count, workers)
                blocks.append(Block(module, (start, stop), parts, holders))
    return blocks


def _by_block(
    model: nn.Module, workers: int, count: int, found: Sequence[tuple[str, nn.Module]]
) -> list[Block]:
    blocks = []
    for turn, (module, block) in enumerate(found):
        parts = tuple(
            Part(f"{module}.{name}", 0, value.numel())
            for name, value in block.named_parameters()
            if value.requires_grad and owned_by(model, module, value)
        )
        blocks.append(Block(module, None, parts, _ring(turn, count, workers)))
    return blocks


def _merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The same elements in as few runs as there can be, by parameter."""
    by_name: dict[str, list[Part]] = {}
    for part in parts:
        runs = by_name.setdefault(part.parameter, [])
        if runs and runs[-1].stop == part.start:
            runs[-1] = Part(part.parameter, runs[-1].start, part.stop)
        else:
            runs.append(part)
    return tuple(part for runs in by_name.values() for part in runs)


def _rows(name: str, value: nn.Parameter, start: int, stop: int) -> Part:
    width = value.numel() // len(value)
    return Part(name, start * width, stop * width)
