"""Paths as users name them, which may be globs; and the one trace that they name, if it is one."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from busfare.errors import InputError
from busfare.printable import printable
from busfare.trace import is_trace_directory

__all__ = ["expanded", "one_trace", "shown"]

GLOB = set("*?[")


def shown(path: str | Path) -> str:
    """A path as text that can be written anywhere: bytes that are no UTF-8 stand as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def one_trace(paths: list[Path]) -> Path | None:
    """The path of the only trace that `paths` name, or None where they name a job.

    The content decides: a directory is one trace if it holds recordings or the tables of an export itself.
    """
    found = [one for path in paths for one in expanded(path)]
    if len(found) != 1:
        return None
    only = found[0]
    return None if only.is_dir() and not is_trace_directory(only) else only


def expanded(path: Path) -> Iterator[Path]:
    """`path`, or the paths that it matches as a glob where nothing has that very name."""
    text = str(path)
    if "\0" in text:
        raise InputError(f"{printable(shown(path))}: not a usable path (it holds a NUL)")
    if os.path.realpath(text) == "/":
        raise InputError("/: the root of all files; name the folder that holds the traces")
    if not GLOB.intersection(text) or os.path.lexists(text):
        yield path
        return
    matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207  Path.glob refuses absolute patterns
    if not matches:
        raise InputError(
            f"{printable(shown(path))}: nothing matches; check the pattern (** goes through folders), and quote it"
        )
    yield from map(Path, matches)
