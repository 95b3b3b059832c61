"""How long a layer takes on this device, dense and sparse."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import nn

__all__ = ["layer_run", "medians"]

_SECONDS, _FEWEST, _MOST = 0.2, 5, 25


def medians(runs: Mapping[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """Run each once a round, and give the median over the rounds.

    Parameters
    ----------
    runs : mapping of str to callable
    device : torch.device
        That they run on.

    Returns
    -------
    dict of str to float
        Seconds. Rounds end after a fifth of a second, but there are 5 at least and 25 at most.
    """
    for _ in range(2):
        for run in runs.values():
            _timed(run, device)
    times: dict[str, list[float]] = {name: [] for name in runs}
    began = time.perf_counter()
    for rounds in range(_MOST):
        if rounds >= _FEWEST and time.perf_counter() - began > _SECONDS:
            break
        for name, run in runs.items():
            times[name].append(_timed(run, device))
    return {name: statistics.median(each) for name, each in times.items()}


def layer_run(module: nn.Module, inputs: torch.Tensor, *, backward: bool) -> Callable[[], object]:
    """Make what runs a layer once; gradients of its parameters are left alone.

    Parameters
    ----------
    module : torch.nn.Module
    inputs : tensor
    backward : bool
        Whether gradients of inputs and trained parameters are computed too.

    Returns
    -------
    callable
    """
    if not backward:

        def forward() -> None:
            with torch.no_grad():
                module.forward(inputs)

        return forward
    inputs = inputs.detach().requires_grad_()
    trained = [inputs, *(p for p in module.parameters(recurse=False) if p.requires_grad)]
    with torch.no_grad():
        gradient = torch.ones_like(module.forward(inputs))

    def both() -> None:
        with torch.enable_grad():
            torch.autograd.grad(module.forward(inputs), trained, gradient)

    return both


def _timed(run: Callable[[], object], device: torch.device) -> float:
    _settle(device)
    began = time.perf_counter()
    run()
    _settle(device)
    return time.perf_counter() - began


def _settle(device: torch.device) -> None:
    """Wait for what was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
