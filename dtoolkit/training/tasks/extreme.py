"""Extreme classification: sparse inputs, one hidden layer, very many classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import torch
from torch import nn

from dtoolkit.data import LabelledSamples
from dtoolkit.data import extreme as planted
from dtoolkit.training.slide import RowSparseAdam, SlideLinear
from dtoolkit.training.slide.bag import BagLinear
from dtoolkit.training.slide.hashed_bag import HashedBag
from dtoolkit.training.slide.model import SlideModel
from dtoolkit.training.sparse_examples import SparseExamples
from dtoolkit.training.task import Task
from dtoolkit.training.tasks.options import count, number

__all__ = ["extreme"]

_CITATION = (
    "B. Chen et al., SLIDE: in defense of smart algorithms over hardware acceleration for "
    "large-scale deep learning systems, MLSys 2020"
)


def extreme(
    data: LabelledSamples | Callable[[], LabelledSamples] | None = None,
    *,
    hidden: int = 128,
    output: str | Callable[..., nn.Module] = "slide",
    batch: int = 256,
    lr: float = 0.003,
    test_samples: int | None = None,
    hash_hidden: Mapping[str, Any] | None = None,
    **layer: Any,
) -> Task:
    """Tell which of very many classes a sample has, by a network with a hashed output layer.

    The network is an embedding bag of the sample's features with ReLU, and an output layer. With
    ``output="slide"`` each sample computes the classes that hash as its hidden units do; the
    gradients touch the features and the classes of a batch, and no others
    (:class:`~dtoolkit.training.slide.RowSparseAdam`). One process trains it with any strategy,
    several with "dslide" alone, since such gradients are not exchanged. With ``output="full"`` all
    classes are computed, with dense gradients and Adam, by any strategy but "dslide".

    Parameters
    ----------
    data : LabelledSamples or callable, optional
        The samples: :func:`dtoolkit.data.called_names`, :func:`dtoolkit.data.read_xmc` and others
        give some. A callable is called here, for the sizes, and on every worker, so that nothing
        large is sent. By default ``dtoolkit.data.extreme(2000, 1000, 20_000)``.
    hidden : int
        Units of the hidden layer.
    output : "slide", "full" or callable
        A callable makes another output layer that computes some classes of each sample, as
        ``output(hidden, classes, seed=, rows=)``
        (:class:`~dtoolkit.training.slide.OutputLinear`).
    batch : int
        Samples a step, of all workers together.
    lr : float
        Learning rate of Adam.
    test_samples : int, optional
        Evaluate on so many of the test samples, the first; by default on all.
    hash_hidden : mapping, optional
        Hash the hidden layer as well, with these settings of
        :class:`~dtoolkit.training.slide.hashed_bag.HashedBag`; for very wide ones.
    **layer
        Settings of :class:`~dtoolkit.training.SlideLinear`: ``tables=``, ``hashes=``, ``family=``,
        ``capacity=``, ``policy=``, ``refresh=``, ``bias=``.

    Returns
    -------
    Task
        Loss: cross-entropy (nats), of the classes computed while it learns, of all in evaluation.
        Metric: ``precision``, the share of samples whose most likely class, of all, is a label.

    Raises
    ------
    TypeError, ValueError
        For options out of range.
    """
    count("hidden", hidden)
    rate = number("lr", lr, above=0.0)
    if test_samples is not None:
        count("test_samples", test_samples)
    if data is None:
        data = partial(planted, 2000, 1000, 20_000)
    found = data() if callable(data) else data
    if not isinstance(found, LabelledSamples):
        raise TypeError(
            f"data is {type(found).__name__}: wanted a dtoolkit.data.LabelledSamples, or a "
            "callable that gives one"
        )
    source = data if callable(data) else found
    adam = torch.optim.Adam if output == "full" else RowSparseAdam
    has_test = len(found.test) > 0
    return Task(
        name="extreme",
        model=partial(
            SlideModel,
            found.features,
            int(hidden),
            found.classes,
            _output(output, layer),
            full=output == "full",
            units=_units(hash_hidden, output),
        ),
        train=_part(source, "train", None),
        test=_part(source, "test", test_samples) if has_test else None,
        loss=_loss,
        metrics={"precision": _precision},
        optimizer=partial(adam, lr=rate),
        batch=count("batch", batch),
        citation=f"{_CITATION}; data: {found.cite()}",
    )


def _output(output: Any, layer: dict[str, Any]) -> Callable[..., nn.Module]:
    """What makes the output layer."""
    if output == "slide":
        SlideLinear(16, 2, **layer)  # refuses settings that it does not have, or that make no sense
        return partial(SlideLinear, **layer)
    if layer:
        raise ValueError(f"{', '.join(layer)}: settings of output='slide', not of {output!r}")
    if output == "full":
        return nn.Linear
    if not callable(output):
        raise ValueError(f"output={output!r}: wanted 'slide', 'full', or a callable")
    made: Callable[..., nn.Module] = output
    return made


def _units(settings: Mapping[str, Any] | None, output: Any) -> Callable[..., BagLinear] | None:
    """What makes a hashed hidden layer; None for a plain one."""
    if settings is None:
        return None
    if output == "full":
        raise ValueError("hash_hidden: output='full' computes all, in both layers")
    HashedBag(16, 2, **settings)  # refuses settings that make no sense
    return partial(HashedBag, **settings)


def _part(source: Any, name: str, most: int | None) -> Any:
    """A part of the samples; of a callable, to be made where it is used."""
    return partial(_made, source, name, most) if callable(source) else _cut(source, name, most)


def _made(source: Callable[[], LabelledSamples], name: str, most: int | None) -> SparseExamples:
    return _cut(_kept(source), name, most)


@lru_cache(maxsize=1)
def _kept(source: Callable[[], LabelledSamples]) -> LabelledSamples:
    """What a callable gives: once for both parts."""
    return source()


def _cut(data: LabelledSamples, name: str, most: int | None) -> SparseExamples:
    rows = getattr(data, name)[:most]
    return SparseExamples(data.matrix[rows], data.labels[rows])


def _loss(model: Any, inputs: Any, labels: Any) -> torch.Tensor:
    losses: torch.Tensor = model.loss(inputs, labels)
    return losses


def _precision(model: Any, inputs: Any, labels: Any) -> torch.Tensor:
    right = (labels.ids == model.best(inputs)[labels.row_of]).float()
    return torch.zeros(inputs.rows, device=right.device).index_add_(0, labels.row_of, right)
