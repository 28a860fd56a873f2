"""Text of unknown origin, fit for one line of a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """`text` with line ends, control characters and the like spelt as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
