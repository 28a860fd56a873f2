"""The parts of a job: the traces that paths, globs and folders name, each once, in order of their names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from busfare.errors import InputError
from busfare.job.named import expanded, shown
from busfare.printable import printable
from busfare.trace import is_trace_directory
from busfare.trace.readers.recorded.files import is_recording

__all__ = ["Part", "Parts", "find_parts"]

TABLES = (".parquet", ".arrow")


class Part(msgspec.Struct, frozen=True, order=True):
    """A file, or a directory of tables, to be read. `named`: the user gave it, so it must be a trace."""

    path: str
    named: bool


class Parts(msgspec.Struct):
    """What was found: `duplicates` are paths that lead to a file already among them; `unlisted`, to a closed folder."""

    parts: list[Part]
    duplicates: int = 0
    unlisted: dict[str, str] = {}


def find_parts(paths: list[Path]) -> Parts:
    """All parts that `paths` name. Folders are searched all the way down; links that lead in circles are seen through.

    Raises InputError where a path is not there or a glob matches nothing.
    """
    found = Parts([])
    seen: set[tuple[int, int]] = set()
    for given in paths:
        for path in expanded(given):
            try:
                folder = path.is_dir()
                there = folder or path.exists()
            except OSError as error:
                raise InputError(
                    f"{printable(shown(path))}: cannot be read ({error.strerror}); check the path"
                ) from None
            if not there:
                raise InputError(
                    f"{printable(shown(path))}: cannot be read (No such file or directory); check the path"
                )
            if folder:
                _search(path, found, seen)
            else:
                _take(Part(str(path), True), found, seen)
    found.parts.sort()
    return found


def _search(folder: Path, found: Parts, seen: set[tuple[int, int]]) -> None:
    """Adds what lies in `folder`: its files, or itself if it is a directory of tables."""

    def closed(error: OSError) -> None:
        name = shown(error.filename)
        found.unlisted[name] = f"cannot list the directory ({error.strerror}); check its permissions"

    entered: set[tuple[int, int]] = set()
    for here, folders, files in os.walk(folder, onerror=closed, followlinks=True):
        identity = _identity(here)
        if identity is None or identity in entered:  # gone meanwhile, or a link back up
            folders.clear()
            continue
        entered.add(identity)
        if _holds_tables(Path(here), files):
            _take(Part(here, False), found, seen)
            folders.clear()
            continue
        folders.sort()
        for name in sorted(files):
            _take(Part(str(Path(here, name)), False), found, seen)


def _holds_tables(folder: Path, files: Iterable[str]) -> bool:
    """Whether `folder` is an export of tables. One that holds recordings is not: each of those is a part."""
    tables = [name for name in files if name.endswith(TABLES)]
    return bool(tables) and is_trace_directory(folder) and not any(is_recording(folder / n) for n in files)


def _take(part: Part, found: Parts, seen: set[tuple[int, int]]) -> None:
    identity = _identity(part.path)
    if identity is not None and identity in seen:
        found.duplicates += 1
        return
    if identity is not None:
        seen.add(identity)
    found.parts.append(part)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  ten thousand of them: no object for each
    except OSError:
        return None
    return status.st_dev, status.st_ino
