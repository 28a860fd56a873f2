"""The line of a TOML text on which a key stands, for messages; TOML readers keep no positions."""

from __future__ import annotations

import re

__all__ = ["line_of"]

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


def line_of(text: str, path: str) -> int:
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
