"""An argument that is a name or an object: one place turns it into the object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["pick"]

Kind = TypeVar("Kind")


def pick(
    argument: str,
    value: Any,
    names: Mapping[str, Callable[[], Kind]],
    kind: Any,
    *,
    also: str = "",
) -> Kind:
    """Turn a name into an object, and pass an object through.

    Parameters
    ----------
    argument : str
        What the argument is called, for errors.
    value : str or object
        Case, spaces, and underscores for hyphens make no difference in a name.
    names : mapping of str to callable
        What makes the object of each name.
    kind : type
        Abstract class that an object must be an instance of.
    also : str
        What else may be passed, for errors.

    Raises
    ------
    ValueError
        No such name.
    TypeError
        Neither a name nor such an object.
    """
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        made = names.get(" ".join(value.lower().replace("_", " ").replace("-", " ").split()))
        if made is None:
            known = ", ".join(repr(name) for name in names)
            raise ValueError(f"{argument}={value!r}: wanted one of {known}{also}")
        return made()
    said = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
    raise TypeError(
        f"{argument}={said}: wanted a name or a {kind.__module__}.{kind.__qualname__}{also}"
    )
