"""What travels is made small: the largest elements, random ones, or signs; what is left is owed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtoolkit.training.compression.base import Compressor
from dtoolkit.training.compression.exchange import Stream, elements
from dtoolkit.training.compression.feedback import ErrorFeedback
from dtoolkit.training.compression.random_k import RandomK
from dtoolkit.training.compression.sign import Sign
from dtoolkit.training.compression.top_k import TopK

__all__ = [
    "COMPRESSORS",
    "Compressor",
    "ErrorFeedback",
    "RandomK",
    "Sign",
    "Stream",
    "TopK",
    "as_compressor",
    "elements",
]

COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    "top-k": TopK,
    "random-k": RandomK,
    "sign": Sign,
}
"""Compressors by name, with their defaults."""


def as_compressor(compression: Any) -> Compressor | None:
    """What a person passed as ``compression=``, as a compressor; None for none.

    Parameters
    ----------
    compression : None, str or Compressor
        A name of :data:`COMPRESSORS` stands for its defaults.

    Raises
    ------
    ValueError
        No such name.
    TypeError
        Neither None, a name nor a compressor.
    """
    if compression is None or isinstance(compression, Compressor):
        return compression
    names = ", ".join(repr(name) for name in COMPRESSORS)
    if isinstance(compression, str):
        if compression not in COMPRESSORS:
            raise ValueError(f"compression={compression!r}: wanted None, {names} or a Compressor")
        return COMPRESSORS[compression]()
    raise TypeError(f"compression={compression!r}: wanted None, {names} or a Compressor")
