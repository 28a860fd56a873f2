"""Gzip files as text in pieces of bounded size; it is undone by a second thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zlib_ng import zlib_ng

from busfare.trace.model import Omissions

GZIP_MAGIC = b"\x1f\x8b"
PIECE = 1 << 20
PIECES_AHEAD = 4


def pieces(path: Path, omissions: Omissions) -> Iterator[bytes]:
    """The file's text in pieces; those ahead are decompressed by a second thread."""
    with path.open("rb") as file:
        if file.read(2) != GZIP_MAGIC:
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
    """The decompressed text of a gzip file of any number of members, in pieces of bounded size."""
    with path.open("rb") as file:
        inflate = zlib_ng.decompressobj(31)
        waiting = b""
        while waiting := waiting or file.read(PIECE // 4):
            if inflate.eof:  # another member, or padding
                waiting += file.read(1) if len(waiting) == 1 else b""
                if not waiting.startswith(GZIP_MAGIC):
                    if waiting.strip(b"\0") or file.read(PIECE).strip(b"\0"):
                        omissions.add("not-gzip", "the compressed file has something after its end: left out")
                    return
                inflate = zlib_ng.decompressobj(31)
            try:
                piece = inflate.decompress(waiting, PIECE)
            except zlib_ng.error:  # type: ignore[misc]  # its stubs do not say that it is an exception
                omissions.add(
                    "damaged-gzip",
                    f"the compressed data is damaged near byte {file.tell()}: what follows is left out",
                )
                return
            if piece:
                yield piece
            waiting = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        if not inflate.eof:
            omissions.add("truncated-gzip", "the compressed file ends in the middle")
