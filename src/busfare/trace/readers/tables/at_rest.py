"""SQLite files that cannot be read where they lie: compressed ones, and those with a transaction in a file beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from busfare.errors import InputError
from busfare.trace.readers.tables.sqlite_pages import beside

__all__ = ["at_rest"]


@contextmanager
def at_rest(path: Path, packed: bool) -> Iterator[Path]:
    """The SQLite file at `path` with nothing beside it: itself, or a whole copy elsewhere, which goes afterwards.

    SQLite would write beside the file to read such a transaction. `packed`: it is gzip. Raises InputError where the copy
    cannot be made.
    """
    waiting = beside(path)
    if not packed and not waiting:
        yield path
        return
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="busfare-") as folder:
        place = Path(folder, "trace.sqlite")
        try:
            _unpack(path, place) if packed else shutil.copyfile(path, place)
            for file, suffix in [] if packed else waiting:
                shutil.copyfile(file, f"{place}{suffix}")
        except OSError as error:
            raise InputError(
                f"{path}: cannot be copied to {folder}, to be read there ({error.strerror or error}); make room, or name "
                "another folder with TMPDIR"
            ) from None
        # Whoever reads a damaged one is told.
        with suppress(sqlite3.Error), closing(sqlite3.connect(place)) as database:
            database.execute("PRAGMA journal_mode=DELETE").fetchall()
        yield place


def _unpack(path: Path, place: Path) -> None:
    from busfare.trace.omissions import Omissions
    from busfare.trace.readers.kineto.text import decompressed

    lost = Omissions()
    with place.open("wb") as file:
        for piece in decompressed(path, lost):
            file.write(piece)
    for omission in lost.list():
        if omission.id != "not-gzip":
            raise InputError(f"{path}: {omission.what}; copy or compress it again")
