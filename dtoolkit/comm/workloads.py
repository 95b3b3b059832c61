"""Training steps as lists of layers: how long each computes, and how much it sends.

The four models are *reconstructed*: their shapes are public, but batch sizes, speeds and the parts
of a model that are split are not stated in what we have of the paper that they are taken from. So
each is a formula whose arguments say what was assumed. Time to compute is multiplications and
additions over a rate; the backward pass takes twice the forward one. Numbers have 2 bytes.

Source: the choice of models is that of S. Rashidi et al., ISCA 2022, arXiv 2110.04478.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

__all__ = [
    "PAPER_GAINS",
    "RATE",
    "WORKLOADS",
    "Layer",
    "Workload",
    "dlrm",
    "gnmt",
    "resnet152",
    "transformer",
    "workload_named",
]

RATE = 234e12
"""Operations a second of a rank: three quarters of what an A100 does in 16 bits (assumed)."""

NUMBER = 2  # bytes


@dataclass(frozen=True)
class Layer:
    """One layer of a training step, on one rank.

    Attributes
    ----------
    name : str
    forward, backward : float
        Seconds to compute.
    gradient : float
        Bytes of weight gradients, all-reduced over the copies of the model while the backward pass
        goes on.
    activation : float
        Bytes all-reduced over the ranks of one copy after the forward, and again after the backward
        computation, which wait for it.
    exchange : float
        Bytes that this rank exchanges with all ranks (all-to-all) after the forward computation; as
        many come back before the backward one.
    joins : bool
        The forward computation waits for exchanges that are under way.
    """

    name: str
    forward: float
    backward: float
    gradient: float = 0.0
    activation: float = 0.0
    exchange: float = 0.0
    joins: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in ("name", "joins") and not 0 <= value < float("inf"):
                raise ValueError(f"layer {self.name!r}: {field.name} must be at least 0: {value!r}")


@dataclass(frozen=True)
class Workload:
    """A training step.

    Attributes
    ----------
    name : str
    layers : tuple of Layer
        In order of the forward pass.
    model_ranks : int
        Ranks that hold one copy of the model between them: the first ones of the grid.
    note : str
        What was assumed.
    """

    name: str
    layers: tuple[Layer, ...]
    model_ranks: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError(f"workload {self.name!r} has no layers")
        if not isinstance(self.model_ranks, int) or self.model_ranks < 1:
            raise ValueError(f"model_ranks must be a whole number above 0: {self.model_ranks!r}")

    @property
    def compute(self) -> float:
        """Seconds to compute of a step."""
        return sum(layer.forward + layer.backward for layer in self.layers)

    @property
    def gradient(self) -> float:
        """Bytes of weight gradients on a rank."""
        return sum(layer.gradient for layer in self.layers)


def resnet152(*, batch: int = 32, rate: float = RATE) -> Workload:
    """ResNet-152 on images of 224 x 224, every rank a copy: 60.2 million parameters.

    Parameters
    ----------
    batch : int
        Images a rank.
    rate : float
        Operations a second.
    """
    layers = [_convolution("conv1", 7, 3, 64, 112, batch, rate)]
    channels = 64
    for stage, (blocks, width) in enumerate(((3, 64), (8, 128), (36, 256), (3, 512))):
        side = 56 >> stage
        for block in range(blocks):
            # The 3 x 3 convolution of a stage's first block halves the side.
            before = side * 2 if stage and not block else side
            name = f"stage{stage + 1}.{block}"
            shapes = [(1, channels, width, before), (3, width, width, side)]
            shapes.append((1, width, 4 * width, side))
            if not block:
                shapes.append((1, channels, 4 * width, side))
            layers += [
                _convolution(f"{name}.{i}", kernel, into, out, wide, batch, rate)
                for i, (kernel, into, out, wide) in enumerate(shapes)
            ]
            channels = 4 * width
    layers.append(_dense("fc", channels, 1000, batch, rate))
    return Workload("ResNet-152", tuple(layers), note=f"{batch} images a rank")


def gnmt(*, batch: int = 128, tokens: int = 50, rate: float = RATE) -> Workload:
    """GNMT: 8 + 8 LSTM layers of 1,024, a vocabulary of 32,000, every rank a copy.

    Parameters
    ----------
    batch, tokens : int
        Sentences a rank, and tokens in each.
    rate : float
        Operations a second.
    """
    hidden, words = 1024, 32_000
    rows = batch * tokens

    def lstm(name: str, into: int, directions: int = 1) -> Layer:
        weights = directions * 4 * hidden * (into + hidden)
        return _layer(name, weights + directions * 4 * hidden, 2 * weights * rows, rate)

    layers = [_layer("encoder.embedding", words * hidden, 0, rate), lstm("encoder.0", hidden, 2)]
    layers.append(lstm("encoder.1", 2 * hidden))
    layers += [lstm(f"encoder.{i}", hidden) for i in range(2, 8)]
    layers.append(_layer("decoder.embedding", words * hidden, 0, rate))
    layers += [lstm(f"decoder.{i}", 2 * hidden) for i in range(8)]
    layers.append(_dense("softmax", hidden, words, rows, rate))
    return Workload("GNMT", tuple(layers), note=f"{batch} sentences of {tokens} tokens a rank")


def dlrm(
    *,
    batch: int = 512,
    tables: int = 128,
    width: int = 128,
    bottom: tuple[int, ...] = (2048, 2048, 2048, 128),
    top: tuple[int, ...] = (4096, 4096, 4096, 1),
    rate: float = RATE,
) -> Workload:
    """DLRM: perceptrons copied on every rank, embedding tables spread over all of them.

    Parameters
    ----------
    batch : int
        Samples a rank.
    tables, width : int
        Embedding tables, and columns of each: what a rank looks up is exchanged with all others.
    bottom, top : tuple of int
        Widths of the perceptrons' layers. They are assumed.
    rate : float
        Operations a second.
    """
    looked_up = float(batch * tables * width * NUMBER)
    layers = [Layer("embeddings", 0.0, 0.0, exchange=looked_up)]
    into = 2048
    for i, out in enumerate(bottom):
        layers.append(_dense(f"bottom.{i}", into, out, batch, rate))
        into = out
    into = bottom[-1] + (tables + 1) * tables // 2  # products of pairs, tables and bottom
    for i, out in enumerate(top):
        layers.append(_dense(f"top.{i}", into, out, batch, rate, joins=i == 0))
        into = out
    note = f"{batch} samples a rank, {tables} tables of {width} columns"
    return Workload("DLRM", tuple(layers), note=note)


def transformer(
    *,
    layers: int = 128,
    hidden: int = 25_600,
    tokens: int = 2048,
    batch: int = 16,
    words: int = 51_200,
    model_ranks: int = 128,
    rate: float = RATE,
) -> Workload:
    """Transformer of 10**12 parameters, one copy split over 128 ranks as Megatron does.

    Parameters
    ----------
    layers, hidden, tokens, words : int
        Layers, width, tokens of a sequence, vocabulary.
    batch : int
        Sequences a copy of the model.
    model_ranks : int
        Ranks that share each layer: they all-reduce activations twice a layer and pass.
    rate : float
        Operations a second.
    """
    rows = batch * tokens
    activation = float(rows * hidden * NUMBER)
    attention = 4 * hidden * hidden
    scores = 4 * tokens * hidden * rows  # queries times keys, and weights times values
    perceptron = 8 * hidden * hidden
    made = [_layer("embedding", words * hidden / model_ranks, 0, rate)]
    for i in range(layers):
        for name, weights, more in (
            (f"{i}.attention", attention, scores),
            (f"{i}.perceptron", perceptron, 0),
        ):
            work = (2 * weights * rows + more) / model_ranks
            made.append(_layer(name, weights / model_ranks, work, rate, activation=activation))
    note = f"{batch} sequences of {tokens} tokens a copy on {model_ranks} ranks"
    return Workload("Transformer-1T", tuple(made), model_ranks, note)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "ResNet-152": resnet152,
    "GNMT": gnmt,
    "DLRM": dlrm,
    "Transformer-1T": transformer,
}

PAPER_GAINS = {"ResNet-152": 1.49, "GNMT": 1.30, "DLRM": 1.30, "Transformer-1T": 1.25}
"""Time of a step with the baseline over that with Themis, as the paper has it: on average."""


def workload_named(workload: str | Workload) -> Workload:
    """Look a workload up by name; one's own is returned.

    Raises
    ------
    ValueError
        For an unknown name.
    """
    if isinstance(workload, Workload):
        return workload
    if not isinstance(workload, str) or workload not in WORKLOADS:
        raise ValueError(
            f"workload must be one of {', '.join(WORKLOADS)} or a Workload, got {workload!r}"
        )
    return WORKLOADS[workload]()


def _layer(
    name: str, weights: float, operations: float, rate: float, *, activation: float = 0.0
) -> Layer:
    forward = operations / rate
    return Layer(name, forward, 2 * forward, NUMBER * weights, activation)


def _dense(name: str, into: int, out: int, rows: int, rate: float, *, joins: bool = False) -> Layer:
    forward = 2 * into * out * rows / rate
    return Layer(name, forward, 2 * forward, NUMBER * float((into + 1) * out), joins=joins)


def _convolution(
    name: str, kernel: int, into: int, out: int, side: int, batch: int, rate: float
) -> Layer:
    """One convolution with its batch normalisation."""
    weights = kernel * kernel * into * out
    return _layer(name, weights + 2 * out, 2 * weights * side * side * batch, rate)
