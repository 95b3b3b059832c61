"""Which device a worker computes on, and with how many threads."""

from __future__ import annotations

import os

import torch

__all__ = ["gpu_identity", "limit_threads", "of_this_process"]


def of_this_process() -> torch.device:
    """The device of this worker.

    A worker that was given GPUs (``CUDA_VISIBLE_DEVICES``, as dask-cuda sets it) computes on the
    first of them; every other worker on the CPU.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible and visible != "-1" and torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("cpu")


def gpu_identity(device: torch.device) -> str:
    """What tells GPUs of one host apart; empty for the CPU."""
    if device.type != "cuda":
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def limit_threads(threads: int) -> None:
    """Compute with `threads` threads in this process: torch, BLAS and Numba.

    Environment variables come too late for libraries that a fork server has loaded already.
    """
    import numba
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads)
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(threads, most))
