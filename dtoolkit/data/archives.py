"""What NumPy and SciPy raise on a file that is no whole .npz archive."""

from __future__ import annotations

import lzma
import zipfile
import zlib

__all__ = ["BROKEN"]

#: Cut short, changed, packed in a way that this Python lacks (``NotImplementedError``), of absurd
#: sizes, or holding what only a pickle could: nothing of it is a fault of the program.
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError),
    *(EOFError, IndexError, KeyError, MemoryError, OSError, OverflowError),
    *(RuntimeError, SyntaxError, TypeError, ValueError),
)
