"""Make the masked layers of a model run without their zeros, where that is faster."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from dtoolkit.sparsity.flops import run_once
from dtoolkit.sparsity.masks import find_mask
from dtoolkit.sparsity.tiles.execution import Execution, Measured
from dtoolkit.sparsity.tiles.fast_path import allow_fast_path, leave_fast_path
from dtoolkit.sparsity.tiles.kernels import layer_kernels
from dtoolkit.sparsity.tiles.layers import COMPILED, sparse_class
from dtoolkit.sparsity.tiles.measuring import layer_run, medians

__all__ = ["compile_sparse", "compiled_layers", "masked_layers", "uncompile"]

Model = TypeVar("Model", bound=nn.Module)
_MARGIN = 1.05  # a gain below it is noise


def compile_sparse(
    model: Model,
    example_inputs: Any = None,
    *,
    kernel: str = "auto",
    training: bool | None = None,
    rows: int = 256,
    width: int | None = None,
    dense_gradient: bool = False,
    frozen: bool = False,
) -> Model:
    """Let masked layers multiply by their live weights alone, where that is faster here.

    ::

        model = dt.sparsity.compile_sparse(model, example_inputs=batch)
        dt.sparsity.sparse_report(model)   # which kernel each layer runs, and what was measured

    Each masked linear layer and convolution is timed on this device, dense and with the sparse
    kernels that its mask allows; the fastest runs from then on, and layers that gain nothing stay
    dense. The model is changed in place: layers keep their names, weights, masks and hooks, an
    optimizer and a :class:`~dtoolkit.sparsity.Sparsifier` go on as before, state dicts are those of
    the masked model, and copies and pickles stay compiled. Weights are read at every call; when a
    mask changes its tiles are found anew. Masked weights get no gradient, whichever kernel runs.

    Parameters
    ----------
    model : torch.nn.Module
        With masks, as :class:`~dtoolkit.sparsity.Sparsifier` or :func:`~dtoolkit.sparsity.prune`
        make them. Compiled layers in it are compiled anew.
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments, optional
        What the model is called with: layers are measured with inputs of the shape that they get
        in it, those that it does not call stay dense. Without it linear layers are measured with
        `rows` rows, and convolutions, whose images nobody knows, stay dense.
    kernel : str
        ``"auto"``, or ``"sparse"``: a sparse kernel wherever there is one, unmeasured.
    training : bool, optional
        Whether forward and backward pass are measured, or the forward pass alone; default: as the
        model is set (``model.training``).
    rows : int
        Batch of linear layers without `example_inputs`.
    width : int, optional
        Outputs of a tile; default: as costs the least for each mask.
    dense_gradient : bool
        Whether masked weights get a gradient, which RigL grows them by: it costs a dense product
        more in each backward pass, and convolutions stay dense.
    frozen : bool
        Promise that weights are not written to behind autograd's back (through ``.data``): then
        what is packed is kept between calls without gradients, which pays for small batches.

    Returns
    -------
    torch.nn.Module
        The model itself.

    Raises
    ------
    TypeError
        It is no module.
    ValueError
        It has no masks, masked weights are not 0, or an argument is wrong.

    Notes
    -----
    Kernels: ``"tiles"`` (dense products of compacted tiles, for tile-wise and channel masks and
    any other whose neighbouring outputs share inputs; weights that stand alone as a sparse
    product), ``"channels"`` (a smaller convolution), ``"semi-structured"`` (2:4, on CUDA in half
    precision; no CPU has a kernel for N:M). Guo et al., SC 2020, section VI.
    """
    _check(model, kernel, rows)
    uncompile(model)
    layers = list(masked_layers(model))
    if not layers:
        raise ValueError("model has no masks: make a Sparsifier for it, or prune it, before")
    shapes = None if example_inputs is None else _shapes_seen(model, layers, example_inputs)
    training = model.training if training is None else training
    changed = []
    for name, module in layers:
        made = sparse_class(module)
        if made is None:
            continue
        _check_zeros(name, module)
        shape = _without_example(module, rows) if shapes is None else shapes.get(name)
        module.__class__ = made
        module.__dict__["_execution"] = Execution(
            "dense", width=width, dense_gradient=dense_gradient, frozen=frozen
        )
        _choose(module, shape, auto=kernel == "auto", backward=training)
        changed.append(module)
    leave_fast_path(model, changed)
    return model


def uncompile(model: Model) -> Model:
    """Give compiled layers their ordinary class back; weights and masks stay as they are.

    Returns
    -------
    torch.nn.Module
        The model itself.
    """
    for _, module in compiled_layers(model):
        del module.__dict__["_execution"]
        module.__class__ = type(module).ordinary  # type: ignore[attr-defined]
    allow_fast_path(model)
    return model


def compiled_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Names and modules of compiled layers."""
    return ((n, m) for n, m in [*model.named_modules()] if isinstance(m, COMPILED))


def masked_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Names and modules of layers whose ``weight`` has a mask."""
    for name, module in [*model.named_modules()]:
        if find_mask(module, "weight") is not None:
            yield name, module


def _choose(
    module: nn.Module, shape: tuple[torch.Size, torch.dtype] | None, *, auto: bool, backward: bool
) -> None:
    """Set the kernel of a layer."""
    execution: Execution = module.__dict__["_execution"]
    kernels, reason = layer_kernels(module, execution)
    if not kernels:
        execution.reason = reason
    elif not auto:
        execution.kernel, execution.reason = kernels[0], "asked for, not measured"
    elif shape is None:
        execution.reason = "not called with a tensor on the example, or no example to measure with"
    else:
        _measure(module, execution, kernels, shape, backward=backward)


def _measure(
    module: nn.Module,
    execution: Execution,
    kernels: list[str],
    shape: tuple[torch.Size, torch.dtype],
    *,
    backward: bool,
) -> None:
    """Time the dense layer and each kernel, and keep the fastest."""
    device = module.get_parameter("weight").device
    inputs = torch.randn(shape[0], device=device).to(shape[1])
    dense = copy.copy(module)
    dense.__class__ = type(module).ordinary  # type: ignore[attr-defined]
    runs, failed = {"dense": layer_run(dense, inputs, backward=backward)}, ""
    for kernel in kernels:
        sparse = copy.copy(module)
        sparse.__dict__["_execution"] = replace(execution, kernel=kernel)
        try:
            run = layer_run(sparse, inputs, backward=backward)
            run()
        except (RuntimeError, NotImplementedError) as error:
            failed = f"{kernel} does not run here: {str(error).splitlines()[0]}"
        else:
            runs[kernel] = run
    if len(runs) == 1:
        execution.reason = failed
        return
    found = medians(runs, device)
    best = min((name for name in found if name != "dense"), key=found.__getitem__)
    rows = shape[0][:-1].numel() if isinstance(module, nn.Linear) else shape[0][:-3].numel()
    execution.measured = Measured(best, found["dense"], found[best], rows, backward, str(device))
    if execution.measured.ratio > _MARGIN:
        execution.kernel, execution.reason = best, "faster"
    else:
        execution.reason = f"not faster by {best}"


def _shapes_seen(
    model: nn.Module, layers: list[tuple[str, nn.Module]], example_inputs: Any
) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Shape and dtype of what each layer is first called with, when the model runs once."""
    seen: dict[str, tuple[torch.Size, torch.dtype]] = {}

    def watch(name: str) -> Callable[..., None]:
        def look(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if arguments and isinstance(arguments[0], torch.Tensor):
                seen.setdefault(name, (arguments[0].shape, arguments[0].dtype))

        return look

    handles = [module.register_forward_pre_hook(watch(name)) for name, module in layers]
    leave_fast_path(model, [module for _, module in layers])
    try:
        run_once(model, example_inputs)
    finally:
        allow_fast_path(model)
        for handle in handles:
            handle.remove()
    return seen


def _without_example(module: nn.Module, rows: int) -> tuple[torch.Size, torch.dtype] | None:
    """Shape to measure a linear layer with; the images of a convolution are unknown."""
    if not isinstance(module, nn.Linear):
        return None
    return torch.Size((rows, module.in_features)), module.weight.dtype


def _check(model: Any, kernel: str, rows: int) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r}: wanted a torch.nn.Module")
    if kernel not in ("auto", "sparse"):
        raise ValueError(f"kernel={kernel!r}: wanted 'auto' or 'sparse'")
    if rows < 1:
        raise ValueError(f"rows={rows}: wanted 1 or more")


def _check_zeros(name: str, module: nn.Module) -> None:
    """Refuse masked weights that are not 0: dense and sparse kernels would differ."""
    weight, mask = module.get_parameter("weight").detach(), module.get_buffer("weight_mask")
    if bool((weight.masked_fill(mask, 0) != 0).any()):
        raise ValueError(
            f"masked weights of {name!r} are not 0: call the Sparsifier's apply() before, so that "
            "the model computes what its masks say"
        )
