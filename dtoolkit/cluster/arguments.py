"""What a cluster is asked for, checked before anything starts."""

from __future__ import annotations

import os
import sys

from distributed import Client

__all__ = ["check_arguments", "gpus_of"]


def check_arguments(
    workers: int | None,
    client: Client | None,
    threads: int,
    device: str | None,
    timeout: float | None,
) -> None:
    """Refuse what makes no sense, naming the argument.

    Raises
    ------
    ValueError, TypeError, OSError
    """
    if sys.platform == "win32":
        raise OSError("dtoolkit runs on Linux and macOS; on Windows use WSL2")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be an integer of at least 1, got {workers!r}")
    if client is not None:
        if not isinstance(client, Client):
            raise TypeError(f"client must be a distributed.Client, got {type(client).__name__}")
        if client.asynchronous:
            raise ValueError(
                "client was made with asynchronous=True; make it as Client(address), which runs "
                "its event loop in a thread of its own"
            )
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads must be an integer of at least 1, got {threads!r}")
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device must be 'cpu' or 'cuda', got {device!r}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds or None, got {timeout}")


def gpus_of(device: str | None) -> list[str]:
    """Names of the GPUs to use, as CUDA_VISIBLE_DEVICES takes them. CUDA is not initialised."""
    if device == "cpu":
        return []
    import torch

    count = torch.cuda.device_count()
    if device == "cuda" and not count:
        raise ValueError("device='cuda', but torch sees no GPU on this machine")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(i) for i in range(count)]
