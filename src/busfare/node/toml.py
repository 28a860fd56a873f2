"""TOML text → a checked value, or one line that says what is wrong, where, and the mend. Node files and plan files."""

from __future__ import annotations

import math
import re
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any, TypeVar

import msgspec

from busfare.errors import InputError
from busfare.printable import printable

__all__ = ["Explain", "WrongError", "decoded", "read_text", "unknown_key"]

File = TypeVar("File")
Built = TypeVar("Built")
#: A msgspec message and the raw table → (what and the mend, path), or None for the common explanation.
Explain = Callable[[str, str, dict[str, Any]], tuple[str, str] | None]
#: What stands in quotes, and comments; and what stands between keys.
_TEXTS = re.compile(
    r'''"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*'?|#[^\n]*''',
    re.DOTALL,
)
_BETWEEN_KEYS = re.compile(r"[^\w.\- \t]+")
MOST_PARTS = 64
#: msgspec looks at a type when it first meets it, which two threads must not do at once: the process would end.
_one_thread = threading.Lock()


class WrongError(Exception):
    """What is wrong, at which path of the file (as msgspec writes it: `$.link[2].lanes`)."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(what)
        self.path = path


def read_text(text: str, kind: str, most_bytes: int) -> str:
    """The file at path `text`, of at most `most_bytes` and one more. Raises InputError; `kind` names it ('node file')."""
    try:
        with FilePath(text).open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        see = ", or see `busfare nodes`" if kind == "node file" else ""
        raise InputError(f"{kind} {text!r}: not there; correct the path{see}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path cannot be used"
        raise InputError(f"{kind} {text[:200]!r}: {reason}; give a file that can be read") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{text}:{line}: not UTF-8 text; save the file as UTF-8") from None


def decoded(
    text: str,
    origin: str,
    file: type[File],
    build: Callable[[File], Built],
    explain: Explain,
    most_bytes: int,
    kind: str = "node file",
    renewed: Callable[[dict[str, Any]], None] | None = None,
) -> Built:
    """`build` of the `file` that TOML `text` holds, brought up to date by `renewed` where it is of an older form; `origin`
    names it in messages. Raises InputError, and nothing else.
    """
    if len(text) > most_bytes:
        raise InputError(
            f"{origin}: over {most_bytes} bytes; a node file is a page or two, so this is another file"
            if kind == "node file"
            else f"{origin}: over {most_bytes} bytes; split this {kind}"
        )
    try:
        _short_keys(text)
        raw = tomllib.loads(text)
    except WrongError as wrong:
        raise InputError(f"{origin}: {wrong}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{origin}{_place(str(error))}: not TOML: {error}; correct this line") from None
    except (ValueError, RecursionError):
        raise InputError(
            f"{origin}: not TOML that can be read: a number or nesting out of all bounds"
        ) from None
    try:
        _finite(raw, "$", 0)
        if renewed is not None:
            renewed(raw)
        with _one_thread:
            converted = msgspec.convert(raw, file, str_keys=True)
        return build(converted)
    except WrongError as wrong:
        raise InputError(f"{origin}:{_line_of(text, wrong.path)}: {_key(wrong.path)}{wrong}") from None
    except msgspec.ValidationError as error:
        what, path = _explained(str(error), raw, explain)
        raise InputError(f"{origin}:{_line_of(text, path)}: {_key(path)}{what}") from None
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{origin}: a value out of all bounds ({type(error).__name__}); see docs/nodes.md"
        ) from None


def unknown_key(key: str, known: list[str]) -> str:
    """The mend for a key that is none of `known`."""
    import difflib

    near = difflib.get_close_matches(key, known, 1)
    mend = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
    return f"unknown key; {mend}"


def _place(message: str) -> str:
    found = re.search(r"line (\d+)", message)
    return f":{found[1]}" if found else ""


def _key(path: str) -> str:
    return "" if path == "$" else f"{path.removeprefix('$.')}: "


def _short_keys(text: str) -> None:
    """Refuses keys of very many parts, whose time to parse grows with the square of their number."""
    for piece in _BETWEEN_KEYS.split(_TEXTS.sub("_", text)):
        if piece.count(".") > MOST_PARTS:
            raise WrongError(
                "$", f"a key of over {MOST_PARTS} parts; a node file has tables of values, no more"
            )


def _finite(value: Any, path: str, depth: int) -> None:
    """Refuses nan and infinity, which TOML allows and no machine has, text that a terminal would obey, and nesting that
    no file needs.
    """
    if depth > 8:
        raise WrongError(path, "nested too deep; a node file has tables of values, no more")
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongError(
            path, f"{value} is no figure of a machine; give a finite number or leave the key out"
        )
    if isinstance(value, str) and printable(value, but="\n\t") != value:
        raise WrongError(path, "holds a control character; write plain text")
    if isinstance(value, dict):
        for key, inner in value.items():
            _finite(inner, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            _finite(inner, f"{path}[{n}]", depth + 1)


def _explained(message: str, raw: dict[str, Any], explain: Explain) -> tuple[str, str]:
    """msgspec's message as (what and the mend, path)."""
    what, _, path = message.partition(" - at `")
    path = path.rstrip("`").removeprefix("key` in `") or "$"
    if special := explain(what, path, raw):
        return special
    missing = re.search(r"missing required field `(.*)`", what)
    if missing:
        return f"the key {missing[1]!r} is missing; add it", path
    return f"{what[:1].lower()}{what[1:]}", path


#: The steps of a path as msgspec writes it.
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


def _line_of(text: str, path: str) -> int:
    """The line, from 1, where `path` (as msgspec writes it: `$.link[2].lanes`) stands; 1 where it cannot be
    found.

    A key that is missing gives the line of the table that lacks it.
    """
    steps = [m[1] or int(m[2] or 0) for m in _STEP.finditer(path)]
    lines = text.splitlines()
    here = 0
    while steps:
        step = steps.pop(0)
        if isinstance(step, int):
            continue
        index = steps[0] if steps and isinstance(steps[0], int) else None
        found = _header(lines, step, index, here)
        if found is None:
            found = _assignment(lines, step, here)
        if found is None:
            return here + 1
        here = found
    return here + 1


def _header(lines: list[str], name: str, index: int | None, start: int) -> int | None:
    """The header of table `name`, or of its `index`-th array element, from line `start` on."""
    double = re.compile(rf"^\s*\[\[\s*(?:[\w.-]+\.)?[\"']?{re.escape(name)}[\"']?\s*\]\]")
    single = re.compile(rf"^\s*\[\s*(?:[\w.-]+\.)?[\"']?{re.escape(name)}[\"']?\s*[\].]")
    arrays = [n for n in range(start, len(lines)) if double.match(lines[n])]
    if arrays:
        wanted = index or 0
        return arrays[wanted] if wanted < len(arrays) else None
    return next((n for n in range(start, len(lines)) if single.match(lines[n])), None)


def _assignment(lines: list[str], name: str, start: int) -> int | None:
    """The line `name = …` of the table that begins on line `start`, before the next header."""
    key = re.compile(rf"(?:^|[\s{{,.])[\"']?{re.escape(name)}[\"']?\s*[=.]")
    for n in range(start, len(lines)):
        if n > start and lines[n].lstrip().startswith("["):
            return None
        if key.search(lines[n]):
            return n
    return None
