"""A plan carried out on a model and its optimizer: cut for good, or set to zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from dtoolkit.sparsity.channels.graph import uncompiled
from dtoolkit.sparsity.channels.plan import CutPlan, Kept
from dtoolkit.sparsity.optimizer_state import check_optimizer

__all__ = ["apply_cuts", "carry_out", "zero_cuts"]

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


@torch.no_grad()
def apply_cuts(model: nn.Module, optimizer: torch.optim.Optimizer | None, plan: CutPlan) -> None:
    """Cut channels from a model and from what its optimizer keeps, in place: all or nothing.

    Parameters and buffers stay the same objects with smaller values, so that the optimizer's
    groups, their order, what is frozen, ties and hooks stay as they are. Gradients are cut too.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer or None
        Whatever it keeps in the shape of a parameter is cut with it.
    plan : CutPlan

    Raises
    ------
    ValueError
        The plan is of a model with other shapes, the model is wrapped for data-parallel training,
        or the optimizer keeps something that cannot be cut. Nothing has been changed then.
    TypeError
        It is no optimizer, or the model's tensors are of a kind that cannot be cut in place.
    """
    carry_out(model, optimizer, plan)


@torch.no_grad()
def carry_out(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, plan: CutPlan
) -> Callable[[], None]:
    """As :func:`apply_cuts`; what is returned undoes it."""
    model = uncompiled(model)
    tensors = _checked(model, plan)
    if optimizer is not None:
        parameters = {n: t for n, t in tensors.items() if isinstance(t, nn.Parameter)}
        check_optimizer(optimizer, parameters)
        _check_state(optimizer, parameters)
    done: list[Callable[[], None]] = []

    def undo() -> None:
        for one in reversed(done):
            one()

    jobs = [_job(t, plan.kept[name], optimizer) for name, t in tensors.items()]
    jobs += [_sized(module, change) for module, change in _settings(model, plan)]
    try:
        for job in jobs:
            done.append(job())
    except BaseException:
        undo()
        raise
    return undo


@torch.no_grad()
def zero_cuts(model: nn.Module, optimizer: torch.optim.Optimizer | None, plan: CutPlan) -> None:
    """Set to 0 what a plan cuts, in the model and in its optimizer's state; shapes stay.

    To see what a cut does: the output of the model in evaluation mode is that of the model after
    :func:`apply_cuts`. Running statistics of batch norm are left, for its variance may not be 0.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer or None
    plan : CutPlan

    Raises
    ------
    ValueError
        The plan is of a model with other shapes.
    """
    for name, tensor in _checked(uncompiled(model), plan).items():
        if not isinstance(tensor, nn.Parameter):
            continue
        mask = torch.ones_like(tensor, dtype=torch.bool)
        for dim, kept in enumerate(plan.kept[name]):
            if kept is not None:
                mask &= _stays(tensor, dim, torch.from_numpy(kept).to(tensor.device))
        state = {} if optimizer is None else optimizer.state.get(tensor) or {}
        for value in (tensor, *state.values()):
            if isinstance(value, torch.Tensor) and value.shape == mask.shape:
                value.masked_fill_(~mask, 0)


def _checked(model: nn.Module, plan: CutPlan) -> dict[str, torch.Tensor]:
    """Tensors that the plan cuts, once each, if they are those of the plan."""
    if any(isinstance(module, _WRAPPERS) for module in model.modules()):
        raise ValueError(
            "model is wrapped for data-parallel training, and the wrapper holds the old shapes: "
            "give the model inside (model.module), and wrap it again afterwards"
        )
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    for name, shape in plan.shapes.items():
        here = tensors.get(name)
        if here is None or tuple(here.shape) != shape:
            what = "nothing" if here is None else f"shape {tuple(here.shape)}"
            raise ValueError(
                f"plan: it cuts {name!r} of shape {shape}, and the model has {what} there: it was "
                "made for another model, or before the model was cut"
            )
        if type(here) not in (nn.Parameter, torch.Tensor):
            raise TypeError(
                f"model: {name!r} is a {type(here).__name__}, which cannot be cut in place: wanted "
                "plain tensors"
            )
    return {name: tensors[name] for name in plan.shapes}


def _check_state(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]) -> None:
    """Refuse a state with tensors of other shapes, whose entries belong to no channel."""
    for name, parameter in parameters.items():
        for key, value in (optimizer.state.get(parameter) or {}).items():
            for one in tree_leaves(value):
                tensor = isinstance(one, torch.Tensor)
                if tensor and one.numel() > 1 and one.shape != parameter.shape:
                    raise ValueError(
                        f"optimizer: {type(optimizer).__name__} keeps {key!r} of shape "
                        f"{tuple(one.shape)} for {name!r} of shape {tuple(parameter.shape)}: what "
                        "of it belongs to a channel is not known, so that it cannot be cut. Wanted "
                        "one that keeps its state in the shape of the parameters, such as SGD or "
                        "Adam. Nothing was changed"
                    )


def _job(
    tensor: torch.Tensor, kept: Kept, optimizer: torch.optim.Optimizer | None
) -> Callable[[], Callable[[], None]]:
    """Make all smaller tensors now; what is returned puts them in place, and gives the undoing."""
    old, gradient = tensor.data, tensor.grad
    new = _smaller(old, kept)
    new_gradient = None if gradient is None else _smaller(gradient, kept)
    state = (optimizer.state.get(tensor) if optimizer is not None else None) or {}
    old_state = dict(state)

    def cut(value: Any) -> Any:
        alike = isinstance(value, torch.Tensor) and value.dim() and value.shape == old.shape
        return _smaller(value, kept) if alike else value

    new_state = tree_map(cut, old_state)

    def put() -> Callable[[], None]:
        def undo() -> None:
            _place(tensor, old, gradient)
            state.update(old_state)

        try:
            _place(tensor, new, new_gradient)
            state.update(new_state)
        except BaseException:
            undo()
            raise
        return undo

    return put


def _place(tensor: torch.Tensor, data: torch.Tensor, gradient: torch.Tensor | None) -> None:
    tensor.grad = None
    if tensor.requires_grad:
        # Of another dtype for a moment: else autograd would go on with the old shape as long as
        # anybody holds a loss of the model.
        other = torch.float64 if data.dtype != torch.float64 else torch.float32
        tensor.data = torch.empty(0, dtype=other, device=data.device)
    tensor.data = data
    tensor.grad = gradient


def _smaller(tensor: torch.Tensor, kept: Kept) -> torch.Tensor:
    """What stays of a tensor, laid out in memory as before."""
    last = tensor.dim() == 4 and not tensor.is_contiguous()
    last = last and tensor.is_contiguous(memory_format=torch.channels_last)
    for dim, positions in enumerate(kept):
        if positions is None:
            continue
        index = torch.from_numpy(positions).to(tensor.device)
        if index.dim() == 1:
            tensor = tensor.index_select(dim, index)
            continue
        parts = tensor.chunk(len(index))  # rows of each group, whatever is left of them
        tensor = torch.cat([p.index_select(1, i) for p, i in zip(parts, index, strict=True)])
    return tensor.contiguous(memory_format=torch.channels_last) if last else tensor


def _stays(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Mask of what stays along a dimension, to be broadcast over the tensor."""
    flat = torch.zeros(len(index.view(-1, index.shape[-1])), tensor.shape[dim], dtype=torch.bool)
    flat = flat.to(tensor.device).scatter_(1, index.view(len(flat), -1), True)
    shape = [1] * tensor.dim()
    shape[dim] = tensor.shape[dim]
    if index.dim() == 1:
        return flat.view(shape)
    shape[0] = tensor.shape[0]
    return flat.repeat_interleave(tensor.shape[0] // len(flat), dim=0).view(shape)


Change = dict[str, int]


def _settings(model: nn.Module, plan: CutPlan) -> list[tuple[nn.Module, Change]]:
    """Sizes that modules have written down, as they are to be."""
    names = {id(t): n for n, t in [*model.named_parameters(), *model.named_buffers()]}
    found = []
    for module in model.modules():
        change: Change = {}
        for attribute in ("weight", "running_mean"):
            tensor = getattr(module, attribute, None)
            name = names.get(id(tensor), "") if isinstance(tensor, torch.Tensor) else ""
            if name in plan.kept:
                assert isinstance(tensor, torch.Tensor)
                sizes = [
                    size if kept is None else kept.shape[-1]
                    for size, kept in zip(tensor.shape, plan.kept[name], strict=True)
                ]
                change |= _sizes(module, tensor, sizes, name in plan.depthwise)
        if change:
            found.append((module, change))
    return found


def _sizes(module: nn.Module, weight: torch.Tensor, sizes: list[int], depthwise: bool) -> Change:
    """Attributes of torch's own modules that follow from the shape of their weight."""
    if isinstance(module, nn.modules.conv._ConvNd):
        groups = module.groups
        if depthwise:
            groups = groups * sizes[0] // weight.shape[0]
        first, second = sizes[0], sizes[1] * groups
        inputs, outputs = (first, second) if module.transposed else (second, first)
        return {"in_channels": inputs, "out_channels": outputs, "groups": groups}
    if isinstance(module, nn.Linear):
        return {"in_features": sizes[1], "out_features": sizes[0]}
    if isinstance(module, nn.Embedding):
        return {"num_embeddings": sizes[0], "embedding_dim": sizes[1]}
    if isinstance(module, nn.PReLU):
        return {"num_parameters": sizes[0]}
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return {"num_features": sizes[0]}
    return {}


def _sized(module: nn.Module, change: Change) -> Callable[[], Callable[[], None]]:
    before = {name: getattr(module, name) for name in change}

    def put() -> Callable[[], None]:
        for name, size in change.items():
            setattr(module, name, size)

        def undo() -> None:
            for name, size in before.items():
                setattr(module, name, size)

        return undo

    return put
