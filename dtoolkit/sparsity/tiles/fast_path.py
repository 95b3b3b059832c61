"""PyTorch's fused transformer layer reads weights and calls no layers: how to keep it out.

In evaluation ``nn.TransformerEncoderLayer`` hands its weights to one fused operation, past whatever
its linear layers and its attention have become.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

__all__ = ["allow_fast_path", "leave_fast_path"]

_BEFORE = "_before_leaving_fast_path"
_SETTINGS = {
    nn.TransformerEncoderLayer: "activation_relu_or_gelu",
    nn.TransformerEncoder: "use_nested_tensor",
}


def leave_fast_path(model: nn.Module, changed: Iterable[nn.Module]) -> None:
    """Make transformer layers call the modules in them where one of those has changed.

    Parameters
    ----------
    model : torch.nn.Module
    changed : iterable of torch.nn.Module
    """
    these = {id(module) for module in changed}
    for module in model.modules():
        setting = _setting(module)
        if setting is None or _BEFORE in module.__dict__:
            continue
        if any(id(inner) in these for inner in module.modules()):
            module.__dict__[_BEFORE] = getattr(module, setting)
            setattr(module, setting, 0)


def allow_fast_path(model: nn.Module) -> None:
    """Undo :func:`leave_fast_path`, but where a module with a forward pass of its own is inside."""
    for module in model.modules():
        setting = _setting(module)
        if setting is None or _BEFORE not in module.__dict__:
            continue
        if not any(hasattr(inner, "own_forward") for inner in module.modules()):
            setattr(module, setting, module.__dict__.pop(_BEFORE))


def _setting(module: nn.Module) -> str | None:
    for kind, setting in _SETTINGS.items():
        if isinstance(module, kind):
            return setting
    return None
