"""Text of unknown origin, fit for a terminal and a page: nothing in it is obeyed or turns the text around."""

from __future__ import annotations

import unicodedata

#: Control and format characters (of bidirectional text among them), halves of pairs, and ends of lines [Unicode 15.1, 4.5],
#: as a class of characters of Rust's `regex`, and as categories.
HARMFUL = r"[\p{C}\p{Zl}\p{Zp}]"
_HARMFUL = ("C", "Zl", "Zp")


def printable(text: str, but: str = "") -> str:
    """`text` with each such character spelt as an escape, but for those of `but`."""
    if text.isprintable():
        return text
    return "".join(_spelt(c) if c not in but and not c.isprintable() else c for c in text)


def _spelt(c: str) -> str:
    return c.encode("unicode_escape").decode() if unicodedata.category(c).startswith(_HARMFUL) else c
