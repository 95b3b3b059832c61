"""Train a graph network on the whole graph in every step, over all workers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import nn

from dtoolkit.arrays.array import check_memory
from dtoolkit.cluster import Cluster
from dtoolkit.data import LabelledGraph, as_csr
from dtoolkit.data.labelled_graph import SPLITS
from dtoolkit.errors import LayoutError
from dtoolkit.graph import normalise as normalisations
from dtoolkit.graph.loop import Learned, Share, Task, lay, learn
from dtoolkit.graph.models import GCN, GraphSAGE
from dtoolkit.graph.protocol import check_forward, check_maker, check_whole
from dtoolkit.graph.result import FullBatchResult
from dtoolkit.graph.seeded import initialise, key_of
from dtoolkit.spmm import LocalCSR, Plan, distribute, plan

__all__ = ["MODELS", "NORMALISATIONS", "train_full_batch"]

MODELS: dict[str, Callable[..., nn.Module]] = {"gcn": GCN, "sage": GraphSAGE}

NORMALISATIONS: dict[str, Callable[[Any], sparse.csr_array]] = {
    "symmetric": normalisations.symmetric,
    "mean": normalisations.mean,
}


def train_full_batch(
    cluster: Cluster,
    graph: LabelledGraph,
    model: str | nn.Module | Callable[[int, int], nn.Module] = "gcn",
    *,
    partition: Any = "block",
    strategy: Any = "joint",
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    dropout: float = 0.5,
    hidden: int = 16,
    layers: int = 2,
    seed: int = 0,
    normalise: str | Callable[[Any], Any] | None = None,
    row_normalise: bool = True,
    dtype: str = "float32",
    timeout: float | None = -1,
    **plan_options: Any,
) -> FullBatchResult:
    """Train a graph network with Adam; every step sees the whole graph.

    Weights lie on all workers, nodes (features, labels, hidden layers) where the plan's rows lie.
    The loss is the mean cross-entropy over the training nodes of *all* workers; gradients of the
    weights are summed in rank order. Weights and dropout are drawn by name and global node, never
    by rank: the loss curve is the same on any number of workers, to rounding. The defaults are
    those of Kipf and Welling (ICLR 2017).

    Parameters
    ----------
    cluster : Cluster
    graph : LabelledGraph
        ``dtoolkit.data.planetoid("cora")``, or one of your own.
    model : {"gcn", "sage"}, nn.Module, or callable
        A callable gets the number of features and of classes and returns a module, whose
        ``forward(ctx, A, X)`` gives scores for the nodes that are here; inside, products with A
        are :func:`dtoolkit.spmm.spmm`, dropout is :class:`dtoolkit.graph.NodeDropout` (torch's own
        would depend on the number of workers, as batch normalisation would). Layers of this
        package in it are drawn by seed and name, others by torch, seeded. Sparse features come to
        it dense, unless it has a true attribute ``takes_sparse``. A module is trained on from a
        copy of the weights that it has.
    partition, strategy, **plan_options
        As :func:`dtoolkit.plan` takes them.
    epochs : int
    lr : float
        Learning rate.
    weight_decay : float
        Of the parameters that ``model.decayed()`` names (the first layer's in "gcn" and "sage"),
        of all where there is no such method.
    dropout, hidden, layers
        Of "gcn" and "sage".
    seed : int
    normalise : {"symmetric", "mean"} or callable, optional
        What is multiplied by: a function of the adjacency. By default the model's own attribute
        ``normalise``, else "symmetric".
    row_normalise : bool
        Divide each node's features by their sum.
    dtype : {"float32", "float64"}
    timeout : float or None
        As in ``cluster.run``.

    Returns
    -------
    FullBatchResult

    Raises
    ------
    TypeError, ValueError
        An argument is out of range, the graph has no training nodes or no features, or the model
        does not fit; its ``forward`` is held against ``forward(ctx, A, X)`` before it is sent.
    LayoutError
        The plan lays rows and columns in different ways, so that the result of a layer is no
        operand of the next.
    MemoryError
        A rank would need more than its worker's limit; nothing was sent.
    RankError
        The model failed on a worker.
    """
    _check(graph, epochs, lr, weight_decay)
    _check_plan_options(plan_options, cluster.size)
    hidden = check_whole("hidden", hidden)
    if dtype not in _DTYPES:
        raise ValueError(f"dtype={dtype!r}: wanted 'float32' or 'float64'")
    options = {"hidden": hidden, "layers": layers, "dropout": dropout}
    module, drawn = _module(model, graph, options, seed, _DTYPES[dtype])
    matrix = _matrix(graph, normalise or getattr(module, "normalise", "symmetric"), dtype)
    planned = _plan(matrix, cluster.size, partition, strategy, plan_options)
    features = graph.features.astype(dtype)
    if row_normalise:
        features = normalisations.row_normalised(features)
    shares = _shares(graph, features, planned)
    task = Task(
        classes=graph.classes,
        counts={name: len(getattr(graph, name)) for name in SPLITS},
        epochs=int(epochs),
        lr=float(lr),
        weight_decay=float(weight_decay),
        seed=seed,
    )
    widest = max(hidden, graph.classes)
    check_memory(cluster, _memory(shares, planned, widest, dtype), f"training on {graph.name!r}")
    laid = distribute(cluster, matrix, planned)
    shared = cluster.keep(lay, per_rank=[(share,) for share in shares], timeout=timeout)
    start = perf_counter()
    found = cluster.run(learn, laid, shared, module, task, timeout=timeout)
    seconds = perf_counter() - start
    used = {"lr": lr, "weight_decay": weight_decay, **(options if drawn else {}), "seed": seed}
    return _result(found, graph, module, planned, task, {**used, "dtype": dtype}, seconds)


_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def _check(graph: Any, epochs: Any, lr: Any, weight_decay: Any) -> None:
    if not isinstance(graph, LabelledGraph):
        raise TypeError(
            f"graph is {type(graph).__name__}; wanted a dtoolkit.data.LabelledGraph, such as "
            "dtoolkit.data.planetoid('cora') returns"
        )
    if not len(graph.train):
        raise ValueError(f"graph {graph.name!r} has no training nodes")
    if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 0:
        raise ValueError(f"epochs={epochs!r}: wanted an integer of at least 0")
    for name, number, least in (("lr", lr, "> 0"), ("weight_decay", weight_decay, ">= 0")):
        good = isinstance(number, int | float) and not isinstance(number, bool)
        if not good or not np.isfinite(number) or number < 0 or (number == 0 and least == "> 0"):
            raise ValueError(f"{name}={number!r}: wanted a number {least}")


def _check_plan_options(options: dict[str, Any], workers: int) -> None:
    known = inspect.signature(plan).parameters
    for name, value in options.items():
        if name == "parts":
            raise TypeError(
                f"parts={value!r}: leave out parts=, for the plan is made for the cluster's "
                f"{workers} worker(s); start a cluster of as many as you want"
            )
        if name == "A":
            raise TypeError("leave out A=: what is planned is the adjacency of graph=")
        if name not in known:
            raise TypeError(
                f"{name}= is known neither to train_full_batch nor to dt.plan, which takes "
                f"{', '.join(one for one in known if one not in ('A', 'parts'))}"
            )


def _module(
    model: Any, graph: LabelledGraph, options: dict[str, Any], seed: int, dtype: torch.dtype
) -> tuple[nn.Module, bool]:
    """The module, with its weights; and whether it is one that is known by name."""
    first, second = key_of(seed, "torch")
    if isinstance(model, nn.Module):
        return copy.deepcopy(_checked(model)).to("cpu", dtype), False
    named = isinstance(model, str)
    if named and model not in MODELS:
        raise ValueError(
            f"model={model!r}: wanted {', '.join(map(repr, MODELS))}, a module, or a function of "
            "the number of features and of classes that returns one"
        )
    if not named and not callable(model):
        raise TypeError(f"model is {type(model).__name__}; wanted a name, a module or a function")
    make = MODELS[model] if named else model
    if named:
        _check_features(graph)
    else:
        check_maker(make)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(first | second << 32)
        made = make(graph.features.shape[1], graph.classes, **(options if named else {}))
    module = _checked(made).to(dtype)
    initialise(module, seed)
    return module, named


def _check_features(graph: LabelledGraph) -> None:
    if not graph.features.shape[1]:
        raise ValueError(
            f"graph {graph.name!r} has features of shape {graph.features.shape}: wanted at least "
            "one column to learn from"
        )


def _checked(module: Any) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise TypeError(f"model gave {type(module).__name__}; wanted a torch.nn.Module")
    if not any(p.requires_grad for p in module.parameters()):
        raise ValueError("model has no parameter to learn")
    check_forward(module)
    return module


def _matrix(graph: LabelledGraph, normalise: Any, dtype: str) -> sparse.csr_array:
    """What the layers multiply by."""
    named = isinstance(normalise, str)
    if not callable(normalise) and not (named and normalise in NORMALISATIONS):
        raise (ValueError if named else TypeError)(
            f"normalise={normalise!r}: wanted {', '.join(map(repr, NORMALISATIONS))}, or a "
            "function of the adjacency"
        )
    change = NORMALISATIONS[normalise] if named else normalise
    matrix = as_csr(change(graph.adjacency.astype(dtype)), dtype=dtype)
    if matrix.shape != graph.shape:
        raise ValueError(f"normalise gave {matrix.shape}; the graph is {graph.shape}")
    return matrix


def _plan(
    matrix: sparse.csr_array, parts: int, partition: Any, strategy: Any, options: dict[str, Any]
) -> Plan:
    made = plan(matrix, parts=parts, partition=partition, strategy=strategy, **options)
    if made.rows != made.columns:
        raise LayoutError(
            "the plan lays rows and columns of the adjacency in different ways, but what one layer "
            "gives, laid as the rows, is what the next is given, laid as the columns: leave out "
            "columns="
        )
    return made


def _shares(graph: LabelledGraph, features: Any, planned: Plan) -> list[Share]:
    """What each rank gets: the rows of its nodes."""
    shares = []
    masks = {name: getattr(graph, f"{name}_mask") for name in SPLITS}
    for rank in range(planned.parts):
        nodes = planned.rows.indices(rank)
        rows = features[nodes]
        kept = LocalCSR.from_scipy(rows) if sparse.issparse(rows) else torch.tensor(rows)
        splits = {n: torch.tensor(np.flatnonzero(mask[nodes])) for n, mask in masks.items()}
        labels = torch.tensor(graph.labels[nodes])
        shares.append(Share(torch.tensor(nodes), kept, labels, splits))
    return shares


def _memory(shares: list[Share], planned: Plan, widest: int, dtype: str) -> list[int]:
    """Bytes that each rank needs at least: features, those that dropout left, hidden layers."""
    needs = []
    for share, product in zip(shares, planned.memory(widest, dtype), strict=True):
        kept = share.features
        arrays = (kept.indptr, kept.indices, kept.data) if isinstance(kept, LocalCSR) else (kept,)
        needs.append(2 * sum(array.nbytes for array in arrays) + 2 * int(product))
    return needs


def _result(
    found: list[Learned],
    graph: LabelledGraph,
    module: nn.Module,
    planned: Plan,
    task: Task,
    settings: dict[str, Any],
    seconds: float,
) -> FullBatchResult:
    import pandas as pd

    predictions = np.empty(graph.nodes, np.int64)
    for rank, one in enumerate(found):
        predictions[planned.rows.indices(rank)] = one.classes.numpy()
    accuracy = {
        name: found[0].right[name] / count if count else float("nan")
        for name, count in task.counts.items()
    }
    numbers = ["loss", "val_loss", "train_accuracy", "val_accuracy"]
    types = {"epoch": "int64", **dict.fromkeys(numbers, "float64")}
    return FullBatchResult(
        model=type(module).__name__,
        graph=graph.name,
        history=pd.DataFrame(found[0].history, columns=list(types)).astype(types),
        accuracy=accuracy,
        predictions=predictions,
        state=found[0].state,
        workers=planned.parts,
        plan=planned,
        settings=settings,
        seconds=seconds,
        citation=getattr(module, "citation", ""),
    )
