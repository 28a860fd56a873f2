"""Recordings of busfare's own, told by their first bytes without what reads them."""

from __future__ import annotations

from pathlib import Path

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
