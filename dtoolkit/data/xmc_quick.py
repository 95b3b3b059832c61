"""Samples of a text file for extreme classification, parsed many at a time.

Where everything in a piece is usual. All else is left to the parser that goes by line
(:mod:`dtoolkit.data.xmc`), which defines the format and finds the line at fault.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table", "parse_samples"]

# What a byte is: part of a whole number, part of any number, a separator, or odd.
_DIGIT, _REAL, _COMMA, _COLON, _BLANK, _END, _ODD = range(7)
_KIND = np.full(256, _ODD, np.uint8)
_KIND[list(b"0123456789")] = _DIGIT
_KIND[list(b".eE+-")] = _REAL
_KIND[[ord(","), ord(":"), ord(" "), ord("\n")]] = _COMMA, _COLON, _BLANK, _END
_FOLLOWS = np.zeros((7, 7), np.bool_)  # [separator, the one before it]
_FOLLOWS[_COMMA, [_COMMA, _END]] = True
_FOLLOWS[_COLON, _BLANK] = True
_FOLLOWS[_BLANK, [_COMMA, _COLON, _END]] = True
_FOLLOWS[_END, [_COMMA, _COLON, _END]] = True
_LAST_WORD = b" -4.9407e-209"


@dataclass(frozen=True)
class Table:
    """What samples have, one after the other.

    Attributes
    ----------
    labelled, counts : int64 array, (samples,)
        How many labels, and features, each has.
    labels, features : int64 array
    values : float64 array
        Of the features.
    """

    labelled: NDArray[np.int64]
    labels: NDArray[np.int64]
    counts: NDArray[np.int64]
    features: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def empty(cls) -> Table:
        """No samples."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none.astype(np.float64))

    @classmethod
    def joined(cls, tables: list[Table]) -> Table:
        """The samples of some tables, one table after the other."""
        names = [field.name for field in fields(cls)]
        return cls(**{n: np.concatenate([getattr(one, n) for one in tables]) for n in names})


def parse_samples(text: bytes, most: int, features: int, labels: int) -> Table | None:
    """Samples of a piece; None where anything is unusual or wrong.

    Parameters
    ----------
    text : bytes
        Whole lines, each ended by a newline.
    most : int
        Samples that may come.
    features, labels : int
        How many there are of each.
    """
    kind = _KIND[np.frombuffer(text, np.uint8)]
    if (kind == _ODD).any():
        return None
    places = np.flatnonzero(kind >= _COMMA)
    separators = kind[places]
    before = np.concatenate([[_END], separators[:-1]]).astype(np.uint8)
    lengths = np.diff(places, prepend=-1) - 1  # of the token that each separator ends
    ends = separators == _END
    # Nothing stands before the first blank of a sample without labels, and between two lines.
    empty = (lengths == 0) & (before == _END) & (separators >= _BLANK)
    if not _FOLLOWS[separators, before].all() or ((lengths == 0) & ~empty).any():
        return None
    if int(ends.sum()) > most:
        return None
    whole = before != _COLON  # tokens that are labels or features
    odd = np.searchsorted(places, np.flatnonzero(kind == _REAL))
    if whole[odd].any():
        return None
    numbers = _numbers(text)
    full = ~empty
    if numbers is None or len(numbers) != int(full.sum()):
        return None
    role, line = before[full], (np.cumsum(ends) - ends)[full]
    samples = int(ends.sum())
    labelled, featured = (role == _COMMA) | (role == _END), role == _BLANK
    table = Table(
        labelled=np.bincount(line[labelled], minlength=samples),
        labels=numbers[labelled].astype(np.int64),
        counts=np.bincount(line[featured], minlength=samples),
        features=numbers[featured].astype(np.int64),
        values=numbers[role == _COLON],
    )
    good = (table.labels < labels).all() and (table.features < features).all()
    return table if good and np.isfinite(table.values).all() else None


def _numbers(text: bytes) -> NDArray[np.float64] | None:
    """All numbers of a text, whatever separates them; None where something is not a number."""
    spaced = text.translate(bytes.maketrans(b",:\n", b"   "))
    try:
        # NumPy stops at what is no number, and only warns: then the last word is not reached.
        values = np.fromstring(spaced + _LAST_WORD, dtype=np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    return values[:-1] if len(values) and values[-1] == float(_LAST_WORD) else None
