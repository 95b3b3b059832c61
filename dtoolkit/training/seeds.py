"""Numbers that depend on the seed, a name, the step and the item: never on timing or state.

Whatever is random in a training run starts from such a number just before it is drawn, and the
generators are put back after. So a run that is resumed draws what it would have drawn, and no state
of a generator need be kept.
"""

from __future__ import annotations

import hashlib
import operator
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["number", "seeded"]


def number(seed: int, name: str, *items: int) -> int:
    """A number for a seed, a name, and whatever counts: step, item, micro-batch.

    Parameters
    ----------
    seed : int
    name : str
        What is drawn.
    *items : int
        In a fixed order; another count of them is another number.

    Returns
    -------
    int
        From 0 to 2**63 - 1, by a stable hash (BLAKE2b).

    Raises
    ------
    TypeError
        The seed or an item is no integer.
    """
    words = ["dtoolkit.training", name, str(_whole("seed", seed))]
    words += [str(_whole("an item", item)) for item in items]
    digest = hashlib.blake2b("\x00".join(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def seeded(seed: int, name: str, *items: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch, NumPy and Python's ``random`` for what runs inside, and put them back after.

    Parameters
    ----------
    seed, name, *items
        As of :func:`number`.
    device : torch.device or str
        A GPU's generator is seeded and put back as well.
    """
    start = number(seed, name, *items)
    gpu = torch.device(device) if torch.device(device).type == "cuda" else None
    torch_state, python_state = torch.default_generator.get_state(), random.getstate()
    gpu_state = None if gpu is None else torch.cuda.get_rng_state(gpu)
    numpy_generator = _random.get_bit_generator()
    try:
        torch.default_generator.manual_seed(start)
        if gpu is not None:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(start)
        # Taking NumPy's state out and back in takes longer than a small model's forward.
        nested = numpy_generator is _NUMPY
        _random.set_bit_generator(np.random.MT19937(0) if nested else _NUMPY)
        np.random.seed(start & 0xFFFFFFFF)
        random.seed(start)
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        if gpu is not None and gpu_state is not None:
            torch.cuda.set_rng_state(gpu_state, gpu)
        _random.set_bit_generator(numpy_generator)
        random.setstate(python_state)


_random: Any = np.random  # whose stubs lack the two functions of its generator
_NUMPY = np.random.MT19937(0)  # what NumPy draws from meanwhile


def _whole(what: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}: wanted an integer") from None
