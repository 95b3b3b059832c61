"""The operations of a model, as torch.export writes them down, in evaluation and in training."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind

__all__ = ["Graph", "arguments", "in_mode", "trace", "uncompiled"]


@dataclass(frozen=True, eq=False)
class Graph:
    """Operations in order, and which of the inputs are the model's own tensors.

    Attributes
    ----------
    nodes : list of torch.fx.Node
    names : dict of str to str
        Name in the model by the name of an input of the graph.
    """

    nodes: list[torch.fx.Node]
    names: dict[str, str]


def arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call.

    Parameters
    ----------
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments
    """
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), {}
    return (example_inputs,), {}


def uncompiled(model: nn.Module) -> nn.Module:
    """The module that torch.compile has wrapped, or the module itself."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


@contextlib.contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a model in a mode for a while; batch norm always in that of evaluation.

    Batch norm in training would want more than one value a channel, and what it does to channels
    is the same.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.train(training)
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def trace(model: nn.Module, example_inputs: Any) -> list[Graph]:
    """Write down what the model does in evaluation and in training, where models may differ.

    Raises
    ------
    Exception
        Whatever torch.export raises where it cannot follow.

    Notes
    -----
    Of the fourteen models in ``tests/sparsity/brought_models.py`` torch.export follows all, the
    symbolic tracing of torch.fx thirteen (not one that takes ``len`` of a tensor), and the former
    names the operations of functions as of modules.
    """
    positional, named = arguments(example_inputs)
    graphs = []
    for training in (False, True):
        with in_mode(model, training=training), _quiet():
            done = torch.export.export(model, positional, named, strict=False)
        own = (InputKind.PARAMETER, InputKind.BUFFER)
        names = {
            spec.arg.name: str(spec.target)
            for spec in done.graph_signature.input_specs
            if spec.kind in own
        }
        graphs.append(Graph(list(done.graph.nodes), names))
    return graphs


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Gradients on and fused attention off, so that every operation is seen; no warnings."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
