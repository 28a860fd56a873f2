"""Recordings of `busfare record`: files, and the directories of jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from busfare.trace.readers.format import Format, Source

if TYPE_CHECKING:
    from busfare.trace.model import Trace

MAGIC = b"\x89BFREC\r\n"


def is_recording(path: Path) -> bool:
    """Whether the file at `path` begins as recordings do."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def holds_recording(path: Path) -> bool:
    """Whether `path` is a recording, or a directory that holds some."""
    if path.is_dir():
        return any(is_recording(file) for file in path.iterdir() if file.is_file())
    return is_recording(path)


def _read(source: Source) -> Trace:
    from busfare.trace.readers.recorded import read

    with source.unpacked() as place:
        trace = read.read(place, source.launches)
    trace.path = source.path
    return trace


FORMATS = (
    Format(
        name="recorded",
        title="busfare's own recordings",
        read=_read,
        begins=re.compile(re.escape(MAGIC)),
        directory=holds_recording,
        suffixes=(".bf",),
    ),
)
