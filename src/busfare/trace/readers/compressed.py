"""Compressed files as text in pieces of bounded size, or whole in a place of their own; so are databases in transactions."""

import bz2
import lzma
import os
import shutil
import sqlite3
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from zlib_ng import zlib_ng

from busfare.errors import InputError
from busfare.trace.omissions import Omissions

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

PIECE = 1 << 20
PIECES_AHEAD = 4
#: A tar or SQLite file is known by its first bytes, a program's JSON by what stands in these.
HEAD = 1 << 16


class _Gzip:
    """zlib-ng, which is faster than the standard library's, with the interface of bz2, lzma and zstd."""

    def __init__(self) -> None:
        self._inflate = zlib_ng.decompressobj(31)

    eof = property(lambda self: self._inflate.eof)
    unused_data = property(lambda self: self._inflate.unused_data)
    needs_input = property(lambda self: not self._inflate.unconsumed_tail)

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        text: bytes = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        return text


#: Its name, its first bytes, and what undoes it.
COMPRESSIONS: dict[str, tuple[bytes, Callable[[], Any]]] = {
    "gzip": (b"\x1f\x8b", _Gzip),
    "zstd": (b"\x28\xb5\x2f\xfd", ZstdDecompressor),
    "bzip2": (b"BZh", bz2.BZ2Decompressor),
    "xz": (b"\xfd7zXZ\0", lzma.LZMADecompressor),
}
#: What the libraries raise where data is damaged; the stubs of zlib-ng do not say that its error is an exception.
DAMAGES: tuple[Any, ...] = (zlib_ng.error, lzma.LZMAError, ZstdError, OSError, EOFError, ValueError)
#: Traces shrink to a tenth, at most to a fiftieth: a file that grows more than so many times, and beyond this size, is none.
MOST_GROWTH, ANY_SIZE = 200, 1 << 30
#: The variable of the environment that raises MOST_GROWTH.
GROWTH_VARIABLE = "BUSFARE_MOST_GROWTH"
SQLITE_MAGIC = b"SQLite format 3\0"
#: What compressed files are called.
SUFFIXES = (".gz", ".zst", ".bz2", ".xz")


def compression(head: bytes) -> str | None:
    """The name of what the file that begins so was compressed by, or None."""
    return next((name for name, (magic, _) in COMPRESSIONS.items() if head.startswith(magic)), None)


def head_of(path: Path) -> tuple[bytes, str | None]:
    """What the file holds at its beginning, unpacked, and the name of its compression. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    name = compression(head)
    if name is None:
        return head, None
    return next(decompressed(path, Omissions()), b"")[:HEAD], name


def pieces(path: Path, omissions: Omissions) -> Iterator[bytes]:
    """The file's text in pieces; those of a compressed file are decompressed ahead, by a second thread."""
    with path.open("rb") as file:
        if compression(file.read(8)) is None:
            file.seek(0)
            while piece := file.read(8 * PIECE):
                yield piece
            return
    unpacked = decompressed(path, omissions)
    with ThreadPoolExecutor(1) as thread:
        ahead = deque(thread.submit(next, unpacked, b"") for _ in range(PIECES_AHEAD))
        while piece := ahead.popleft().result():
            ahead.append(thread.submit(next, unpacked, b""))
            yield piece


def decompressed(path: Path, omissions: Omissions) -> Iterator[bytes]:
    """The text of a compressed file's members in bounded pieces. Raises InputError where it grows more than a trace."""
    growth = os.environ.get(GROWTH_VARIABLE, "")
    times = int(growth) if growth.isdecimal() else MOST_GROWTH
    room = max(path.stat().st_size * times, ANY_SIZE)
    with path.open("rb") as file:
        waiting = file.read(PIECE // 4)
        name = compression(waiting)
        assert name is not None
        magic, begin = COMPRESSIONS[name]
        member = begin()
        while waiting or not (member.needs_input or member.eof):
            if member.eof:  # another member, or padding
                waiting += file.read(PIECE // 4) if len(waiting) < len(magic) else b""
                if not waiting.startswith(magic):
                    if waiting.strip(b"\0") or file.read(PIECE).strip(b"\0"):
                        omissions.add("after-compressed")
                    return
                member = begin()
            try:
                piece = member.decompress(waiting, PIECE)
            except DAMAGES:
                omissions.add("damaged-compression", at=file.tell())
                return
            if piece:
                yield piece
                room -= len(piece)
            if room < 0:
                raise InputError(
                    f"{path}: unpacks to more than {times} times its size, as no trace does; unpack it yourself, or set "
                    f"{GROWTH_VARIABLE} to a larger number"
                )
            if member.eof:
                waiting = member.unused_data or file.read(PIECE // 4)
            else:
                waiting = file.read(PIECE // 4) if member.needs_input else b""
        if not member.eof:
            omissions.add("truncated-compression")


@contextmanager
def whole(path: Path, packed: bool) -> Iterator[Path]:
    """The file at `path`; if `packed`, a temporary file of its content. Raises InputError if damaged or without room."""
    if not packed:
        yield path
        return
    with copied(path, lambda place: unpack(path, place)) as place:
        try:
            yield place
        except InputError as error:  # of the file that its reader saw
            raise InputError(str(error).replace(str(place), str(path))) from None


def unpack(path: Path, place: Path) -> None:
    """Writes what the compressed file at `path` holds to `place`. Raises InputError where it is damaged, and OSError."""
    lost, room = Omissions(), None
    with place.open("wb") as file:
        for piece in decompressed(path, lost):
            room = room or database_bytes(piece)
            file.write(piece[: room - file.tell()] if room else piece)
            if file.tell() == room:  # what follows is of no page
                return
    for omission in lost.list():
        if omission.id != "after-compressed":
            what = "truncated" if omission.id == "truncated-compression" else "damaged"
            raise InputError(f"{path}: the compressed file is {what}; copy or compress it again")


def database_bytes(head: bytes) -> int | None:
    """The size of an SQLite file by its header; None where it is none, or does not say [SQLite: Database File Format]."""
    if not head.startswith(SQLITE_MAGIC) or len(head) < 100:
        return None
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    sound = head[24:28] == head[92:96]  # else a version before 3.7 wrote it last
    return (1 << 16 if page == 1 else page) * pages or None if sound else None


@contextmanager
def copied(path: Path, copy: Callable[[Path], None]) -> Iterator[Path]:
    """Where `copy` has put a copy of `path`, which goes afterwards. Raises InputError where there is no room for it."""
    with tempfile.TemporaryDirectory(prefix="busfare-") as folder:
        place = Path(folder, "trace")
        try:
            copy(place)
        except OSError as error:
            raise InputError(
                f"{path}: cannot be copied to {folder} for reading ({error.strerror or error}); make room, or name "
                "another folder with TMPDIR"
            ) from None
        yield place


def journals(path: Path) -> list[tuple[Path, str]]:
    """The files, with their suffix, in which a transaction of someone's on the SQLite file at `path` may be."""
    real = Path(os.path.realpath(path))  # SQLite looks there, too
    files = [(real.with_name(real.name + suffix), suffix) for suffix in ("-journal", "-wal")]
    return [(file, suffix) for file, suffix in files if file.is_file() and file.stat().st_size]


@contextmanager
def at_rest(path: Path) -> Iterator[Path]:
    """The SQLite file at `path`, or a temporary copy of it if a transaction is unfinished: to read one, SQLite would write
    beside the file. Raises InputError where the copy cannot be made.
    """
    waiting = journals(path)
    if not waiting:
        yield path
        return

    def copy(place: Path) -> None:
        shutil.copyfile(path, place)
        for file, suffix in waiting:
            shutil.copyfile(file, f"{place}{suffix}")

    with copied(path, copy) as place:
        # Whoever reads a damaged one is told.
        with suppress(sqlite3.Error), closing(sqlite3.connect(place)) as database:
            database.execute("PRAGMA journal_mode=DELETE").fetchall()
        yield place
