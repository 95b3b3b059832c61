"""The state of an optimizer by the names of parameters, not by their numbers.

A name says which parameter it is in a digest and in an error, and survives another order of the
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dtoolkit.training.plain import plain

__all__ = ["load_optimizer", "optimizer_state"]


def optimizer_state(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[tuple[str, nn.Parameter]],
    *,
    copy: bool = True,
) -> dict[str, Any]:
    """State and settings of an optimizer, on the host.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
    parameters : sequence of (str, Parameter)
        At least those that it steps, with their names.
    copy : bool
        As of :func:`~dtoolkit.training.plain.plain`.

    Returns
    -------
    dict
        ``"state"``: by parameter what the optimizer keeps of it (``exp_avg``, ``step`` ...);
        ``"groups"``: a dict a parameter group, with ``"params"`` the names in it.
    """
    names = {id(parameter): name for name, parameter in parameters}
    state = {
        names[id(parameter)]: plain(
            kept, f"the optimizer's state of {names[id(parameter)]}", copy=copy
        )
        for group in optimizer.param_groups
        for parameter in group["params"]
        if (kept := optimizer.state.get(parameter))
    }
    groups = [
        {
            "params": [names[id(parameter)] for parameter in group["params"]],
            **{
                name: plain(value, f"the optimizer's setting {name}", copy=copy)
                for name, value in group.items()
                if name not in ("params", "param_names")
            },
        }
        for group in optimizer.param_groups
    ]
    return {"state": state, "groups": groups}


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    saved: dict[str, Any],
    parameters: Sequence[tuple[str, nn.Parameter]],
) -> None:
    """Put what :func:`optimizer_state` gave into an optimizer of the same parameters, to the bit.

    Raises
    ------
    ValueError
        The groups hold other parameters than the saved ones.
    """
    names = {id(parameter): name for name, parameter in parameters}
    here = [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]
    there = [group["params"] for group in saved["groups"]]
    if [sorted(one) for one in here] != [sorted(one) for one in there]:
        raise ValueError(
            f"the optimizer has the parameters {here} in its groups, and the saved state {there}"
        )
    for group, kept in zip(optimizer.param_groups, saved["groups"], strict=True):
        for name, value in kept.items():
            if name != "params":
                group[name] = _loaded(value, group.get(name))
    optimizer.state.clear()
    for group in optimizer.param_groups:
        # As in torch: the count of steps stays on the host, but for steps that are one kernel.
        on_device = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            kept = saved["state"].get(names[id(parameter)])
            if kept is not None:
                optimizer.state[parameter] = {
                    key: _placed(
                        value, "cpu" if key == "step" and not on_device else parameter.device
                    )
                    for key, value in kept.items()
                }


def _loaded(value: Any, before: Any) -> Any:
    """A setting, copied; on the device of the one that it replaces."""
    if isinstance(value, torch.Tensor):
        device = before.device if isinstance(before, torch.Tensor) else value.device
        return value.to(device, copy=True)
    return value


def _placed(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, copy=True)
    if isinstance(value, list):
        return [_placed(one, device) for one in value]
    if isinstance(value, dict):
        return {name: _placed(one, device) for name, one in value.items()}
    return value
