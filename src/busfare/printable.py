"""What is written: foreign text that a terminal or page neither obeys nor turns around, JSON of a command, and notes."""

import sys
import unicodedata

#: Control and format characters (of bidirectional text among them), halves of pairs, and ends of lines [Unicode 15.1, 4.5],
#: as a class of characters of Rust's `regex`, and as categories.
HARMFUL = r"[\p{C}\p{Zl}\p{Zp}]"
_HARMFUL = ("C", "Zl", "Zp")
#: Where a command's context keeps that --wide was given.
WIDE, DETAILS = "busfare.wide", "busfare.details"


def printable(text: str, but: str = "") -> str:
    """`text` with each such character spelt as an escape, but for those of `but`."""
    if text.isprintable():
        return text
    harmful = (c not in but and unicodedata.category(c).startswith(_HARMFUL) for c in text)
    return "".join(
        c.encode("unicode_escape").decode() if bad else c for c, bad in zip(text, harmful, strict=True)
    )


def print_json(result: object) -> None:
    """One line on standard output."""
    import json

    import msgspec

    try:
        text = msgspec.json.encode(result).decode()
    except UnicodeEncodeError:  # a path that is not UTF-8, which Python spells by halves of pairs
        text = json.dumps(msgspec.to_builtins(result))
    if not text.isprintable():  # the same to whoever decodes it, and nothing that a terminal would obey
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """A line on standard error about an input that is probably not what the user meant."""
    print(f"busfare: {printable(text)}", file=sys.stderr)


def note(text: str) -> None:
    """What is done, on standard error where that is a terminal: a script hears of what is wrong alone."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
