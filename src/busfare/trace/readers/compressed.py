"""Compressed files as text in pieces of bounded size, or whole in a place of their own."""

from __future__ import annotations

import bz2
import lzma
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
    each = decompressed(path, omissions)
    with ThreadPoolExecutor(1) as thread:
        ahead = deque(thread.submit(next, each, b"") for _ in range(PIECES_AHEAD))
        while piece := ahead.popleft().result():
            ahead.append(thread.submit(next, each, b""))
            yield piece


def decompressed(path: Path, omissions: Omissions) -> Iterator[bytes]:
    """The text of a compressed file of any number of members, in pieces of bounded size."""
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
            if member.eof:
                waiting = member.unused_data or file.read(PIECE // 4)
            else:
                waiting = file.read(PIECE // 4) if member.needs_input else b""
        if not member.eof:
            omissions.add("truncated-compression")


@contextmanager
def whole(path: Path, packed: bool) -> Iterator[Path]:
    """The file at `path` itself, or where it is `packed`, what it holds, in a file that goes afterwards.

    Raises InputError where it is damaged, or there is no room.
    """
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
    lost = Omissions()
    with place.open("wb") as file:
        for piece in decompressed(path, lost):
            file.write(piece)
    for omission in lost.list():
        if omission.id != "after-compressed":
            raise InputError(f"{path}: {omission.what}; copy or compress it again")


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
