"""Text of unknown origin, made fit for one line."""

from __future__ import annotations

import pytest

from busfare.trace.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 中, 🚀", "plain, é, 中, 🚀"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\0", "\\x00"),
        ("\u202e", "\\u202e"),
        ("\udcff", "\\udcff"),
        ("", ""),
    ],
)
def test_what_would_not_stay_on_its_line_is_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown
