"""What compressors have in common that send some of a vector's elements as they are."""

from __future__ import annotations

from dataclasses import dataclass

from dtoolkit.training.compression.base import Compressor

__all__ = ["SomeElements"]


@dataclass(frozen=True)
class SomeElements(Compressor):
    """Sends k elements of a vector, or a share of them.

    Parameters
    ----------
    share : float, optional
        Part of the elements that is sent, more than 0 and at most 1; at least one element is.
        0.01 by default.
    k : int, optional
        Their number, instead of `share`.
    error_feedback : bool
        Add what was not sent to the next vector.

    Raises
    ------
    ValueError, TypeError
        `share` or `k` is out of range, or both are given.
    """

    share: float | None = None
    k: int | None = None
    error_feedback: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", _checked(self.share, self.k))

    def count(self, n: int) -> int:
        """How many of n elements are sent: `k`, or the nearest number to `share`; at least one."""
        wanted = self.k if self.k is not None else round((self.share or 0.0) * n)
        return min(n, max(1, wanted))


def _checked(share: float | None, k: int | None) -> float | None:
    """Check the two ways to say how much is sent; return the share, 0.01 where neither is given.

    Raises
    ------
    ValueError, TypeError
    """
    if k is not None:
        if share is not None:
            raise ValueError(f"share={share!r}, k={k!r}: give one of the two")
        if isinstance(k, bool) or not isinstance(k, int):
            raise TypeError(f"k={k!r}: wanted an integer")
        if k < 1:
            raise ValueError(f"k={k}: wanted at least 1")
        return None
    if share is None:
        return 0.01
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise TypeError(f"share={share!r}: wanted a number")
    if not 0 < share <= 1:
        raise ValueError(f"share={share!r}: wanted more than 0 and at most 1")
    return share
