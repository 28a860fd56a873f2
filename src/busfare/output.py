"""What the commands share in what they write: one JSON object, notes, and the options that ask for pages and files."""

from __future__ import annotations

import sys

#: Where a command's context keeps that --wide was given.
WIDE = "busfare.wide"


def print_json(result: object) -> None:
    """One line on standard output."""
    import json

    import msgspec

    text = msgspec.json.encode(result).decode()
    if not text.isprintable():  # the same to whoever decodes it, and nothing that a terminal would obey
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """What is done, on standard error where that is a terminal: a script hears of what is wrong alone."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
