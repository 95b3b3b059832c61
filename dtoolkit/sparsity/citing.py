"""Where an algorithm comes from."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Cited"]


class Cited:
    """Something that may have a source.

    Attributes
    ----------
    citation : str
        Authors, title, where and when; empty where there is nothing to cite.
    """

    citation: ClassVar[str] = ""

    def cite(self) -> str:
        """What to cite."""
        return self.citation
