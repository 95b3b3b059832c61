"""Text files of numbers, plain or compressed, read in pieces.

Two parsers read one language. :func:`parse_table` is quick and takes a piece of millions of lines
in one go, but only where everything in it is usual; it says None otherwise, and the caller goes
through the piece line by line with :func:`parse_index` and :func:`parse_real`, which define the
language and find the line at fault.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dtoolkit.errors import MatrixFormatError

__all__ = ["Piece", "TextFile", "parse_index", "parse_real", "parse_table", "shown"]

PIECE_BYTES = 1 << 23

_INDEX = re.compile(rb"[+-]?[0-9]{1,100}")
_REAL = re.compile(
    rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[ed][+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE
)
_BROKEN = (EOFError, zlib.error, lzma.LZMAError, OSError)

# What a byte is to the quick parser.
_DIGIT, _LETTER, _BLANK, _END, _ODD = range(5)
_KIND = np.full(256, _ODD, np.uint8)
_KIND[list(b"0123456789+-")] = _DIGIT
_KIND[list(b".eEinfatyINFATY")] = _LETTER
_KIND[list(b" \t")] = _BLANK
_KIND[ord("\n")] = _END
_EXACT = 2.0**53
_LAST_WORD = b"-4.9407e-209"


@dataclass(frozen=True)
class Piece:
    """Whole lines of a file.

    Attributes
    ----------
    line : int
        Number of the first line, counted from 1.
    text : bytes
        The lines, each ended by a newline.
    """

    line: int
    text: bytes

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line and its number, without its end and outer blanks."""
        for number, text in enumerate(self.text.split(b"\n")[:-1], self.line):
            yield number, text.strip()


class TextFile:
    """A text file, plain or compressed by gzip, bzip2 or xz (told by content), read forward.

    Parameters
    ----------
    path : path
        The file.

    Attributes
    ----------
    line : int
        Number of the last line read.
    size : int
        Bytes read, after decompression.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.line = 0
        self.size = 0
        self._raw = open(path, "rb")  # noqa: SIM115 (closed by __exit__)
        self._stream = _decompressed(self._raw)

    def __enter__(self) -> TextFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._raw.close()

    def fault(self, text: str, line: int | None = None) -> MatrixFormatError:
        """Make the error that names this file and a line, by default the last one read."""
        return MatrixFormatError(self.path, text, self.line if line is None else line)

    def next_line(self) -> bytes | None:
        """Next line without its end and outer blanks; None at the end of the file."""
        try:
            text = self._stream.readline(PIECE_BYTES)
        except _BROKEN as error:
            raise self.fault(f"the compressed file is broken after this line: {error}") from error
        if not text:
            return None
        self.line += 1
        self.size += len(text)
        if len(text) == PIECE_BYTES:
            raise self.fault("the line has no end: not a text file")
        return text.strip()

    def pieces(self) -> Iterator[Piece]:
        """Rest of the file, whole lines at a time."""
        rest = b""
        while True:
            try:
                text = self._stream.read(PIECE_BYTES)
            except _BROKEN as error:
                self.line += rest.count(b"\n")
                raise self.fault(
                    f"the compressed file is broken after this line: {error}"
                ) from error
            self.size += len(text)
            ends = not text
            text = rest + text
            cut = len(text) if ends else text.rfind(b"\n") + 1
            rest = text[cut:]
            if len(rest) > PIECE_BYTES:
                raise self.fault("the line has no end: not a text file", self.line + 1)
            if cut:
                whole = text[:cut].replace(b"\r\n", b"\n")
                whole += b"" if whole.endswith(b"\n") else b"\n"
                piece = Piece(self.line + 1, whole)
                yield piece
                self.line += whole.count(b"\n")
            if ends:
                return


def parse_table(text: bytes, *, integers: int, reals: int, comment: bytes) -> list[NDArray] | None:
    """Columns of a piece in which every line has the same number of numbers.

    Parameters
    ----------
    text : bytes
        Whole lines.
    integers, reals : int
        How many of each a line has, integers first.
    comment : bytes
        Characters that start a comment line.

    Returns
    -------
    list of array or None
        int64 columns, then float64 columns; None where anything is unusual or wrong.
    """
    if any(mark in text for mark in (bytes([c]) for c in comment)):
        text = re.sub(rb"(?m)^[ \t]*[" + comment + rb"].*$", b"", text)
    rows = _count_lines(text, integers, reals)
    if rows is None:
        return None
    values = _numbers(text)
    # Each token gives at least one number: as many as tokens means one from each.
    if values is None or len(values) != rows * (integers + reals):
        return None
    table = values.reshape(rows, integers + reals)
    index, data = table[:, :integers], table[:, integers:]
    if (np.abs(index) > _EXACT).any():
        return None
    # A number beyond float64 reads as infinity: only those that are written so are meant.
    infinite = int(np.isinf(data).sum())
    if infinite and infinite != text.lower().count(b"inf"):
        return None
    return [*index.T.astype(np.int64, order="C"), *np.ascontiguousarray(data.T)]


def parse_index(token: bytes) -> int | None:
    """Integer that a token states; None if it states none."""
    return int(token) if _INDEX.fullmatch(token) else None


def parse_real(token: bytes) -> float | None:
    """Real number that a token states, Fortran's D exponents too; None if float64 has it not."""
    if not _REAL.fullmatch(token):
        return None
    text = token.lower()
    word = text.lstrip(b"+-")[:1] in b"in"
    value = float(text if word else text.replace(b"d", b"e"))
    return None if np.isinf(value) and not word else value


def shown(token: bytes) -> str:
    """Text of a token for an error: printable, and short."""
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _decompressed(raw: BinaryIO) -> BinaryIO:
    start = raw.read(6)
    raw.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if start.startswith(b"BZh"):
        return io.BufferedReader(bz2.BZ2File(raw))
    if start == b"\xfd7zXZ\x00":
        return io.BufferedReader(lzma.LZMAFile(raw))
    return raw


def _count_lines(text: bytes, integers: int, reals: int) -> int | None:
    """Count the lines with numbers; None if one has too many, too few, or an odd byte."""
    tokens = integers + reals
    kind = _KIND[np.frombuffer(text, np.uint8)]
    if (kind == _ODD).any():
        return None
    inside = kind <= _LETTER
    starts = inside.copy()
    starts[1:] &= ~inside[:-1]
    seen = np.cumsum(starts, dtype=np.int32)
    at_end = seen[kind == _END]
    in_line = np.diff(at_end, prepend=np.int32(0))
    full = int((in_line == tokens).sum())
    if full * tokens != seen[-1]:
        return None
    if integers and ((seen[kind == _LETTER] - 1) % tokens < integers).any():
        return None
    return full


def _numbers(text: bytes) -> NDArray[np.float64] | None:
    """All numbers of a text, correctly rounded; None where something is not a number."""
    try:
        # NumPy stops at what is no number, and only warns: then the last word is not reached.
        values = np.fromstring(text + _LAST_WORD, dtype=np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    return values[:-1] if len(values) and values[-1] == float(_LAST_WORD) else None
