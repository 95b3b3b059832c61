"""Plain content: tensors, numbers, text, lists and dicts, as one canonical stream of bytes.

A digest of it is the same on any machine and in any process, whatever the order in which a dict
was filled, so that states can be compared without being moved.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["digest_of", "plain"]


def plain(value: Any, where: str, *, copy: bool = True) -> Any:
    """The same on the host, made of plain content alone; a copy, which nobody else can change.

    Parameters
    ----------
    value : object
        Tensors, NumPy arrays and numbers, Python numbers, text, None, lists, tuples and mappings.
    where : str
        What it is, for the error.
    copy : bool
        False: tensors that lie on the host are not copied, for who only looks at them.

    Raises
    ------
    TypeError
        Something in it is of another kind; the text says where it stands.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=copy).contiguous()
    if isinstance(value, np.generic):
        value = value.item()  # float64 is a float too, but none that a file takes
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, int | float):  # of a kind of its own: an enumeration's, say
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, Mapping):
        return {
            _name(name, where): plain(one, f"{where}.{name}", copy=copy)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        made = [plain(one, f"{where}[{i}]", copy=copy) for i, one in enumerate(value)]
        return made if isinstance(value, list) else tuple(made)
    raise TypeError(
        f"{where} is {type(value).__name__}: only tensors, numbers, text, None, lists and dicts "
        "can be part of a state"
    )


def digest_of(value: Any) -> str:
    """Digest of plain content: 32 hexadecimal digits.

    Lists and tuples are alike, and so are integers of any kind; 1, 1.0 and True are not, nor are
    tensors that differ in dtype or shape alone.
    """
    hashed = hashlib.blake2b(digest_size=16)
    _feed(hashed, value)
    return hashed.hexdigest()


def _name(name: Any, where: str) -> str | int:
    if isinstance(name, str | int):
        made: str | int = plain(name, where)
        return made
    raise TypeError(f"{where} has the name {name!r}: names in a state are text or integers")


def _feed(hashed: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        _head(hashed, b"T", f"{value.dtype}{tuple(value.shape)}".encode())
        hashed.update(flat.view(torch.uint8).numpy().data)
    elif value is None:
        hashed.update(b"N")
    elif isinstance(value, bool):
        hashed.update(b"b1" if value else b"b0")
    elif isinstance(value, int):
        _head(hashed, b"i", str(value).encode())
    elif isinstance(value, float):
        hashed.update(b"f" + struct.pack("<d", value))
    elif isinstance(value, str):
        _head(hashed, b"s", value.encode())
    elif isinstance(value, list | tuple):
        _head(hashed, b"l", str(len(value)).encode())
        for one in value:
            _feed(hashed, one)
    else:
        _head(hashed, b"d", str(len(value)).encode())
        for name in sorted(value, key=lambda name: (isinstance(name, str), name)):
            _feed(hashed, name)
            _feed(hashed, value[name])


def _head(hashed: Any, kind: bytes, content: bytes) -> None:
    hashed.update(kind + struct.pack("<q", len(content)) + content)
