"""The text of a Kineto trace in pieces of bounded size; gzip is undone by a second thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars as pl
from zlib_ng import zlib_ng

from busfare.trace.model import Omissions
from busfare.trace.tables import DEVICES, conform, empty

__all__ = ["decompressed", "devices", "host", "pieces", "producer"]

GZIP_MAGIC = b"\x1f\x8b"
PIECE = 1 << 20
PIECES_AHEAD = 4


def pieces(path: Path, omissions: Omissions) -> Iterator[bytes]:
    """The file's text in pieces; gzip is undone by a second thread."""
    with path.open("rb") as file:
        if file.read(2) != GZIP_MAGIC:
            file.seek(0)
            while piece := file.read(8 * PIECE):
                yield piece
            return
    ready: queue.Queue[bytes | Exception | None] = queue.Queue(PIECES_AHEAD)
    stop = threading.Event()

    def put(item: bytes | Exception | None) -> bool:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def decompress() -> None:
        try:
            for piece in decompressed(path, omissions):
                if not put(piece):
                    return
            put(None)
        except Exception as error:  # carried over to the thread that reads
            put(error)

    worker = threading.Thread(target=decompress, daemon=True)
    worker.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        stop.set()
        worker.join()


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


class _Device(msgspec.Struct):
    """An entry of `deviceProperties`."""

    id: int | None = None
    name: str | None = None
    totalGlobalMem: int | None = None  # noqa: N815  the file's own spelling
    computeMajor: int | None = None  # noqa: N815
    computeMinor: int | None = None  # noqa: N815
    numSms: int | None = None  # noqa: N815


class _Job(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None


def _decoded(text: bytes | None, kind: type[object] | object) -> object:
    """`text` as `kind`, or None where the file says something else."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def devices(header: dict[str, bytes]) -> pl.DataFrame:
    """Rows of `DEVICES`; none where the file lists no GPUs."""
    found = _decoded(header.get("deviceProperties"), list[_Device])
    if not isinstance(found, list):
        return empty(DEVICES)
    rows = [
        {
            "device": d.id,
            "name": d.name,
            "memory_bytes": d.totalGlobalMem,
            "multiprocessors": d.numSms,
            "compute_capability": f"{d.computeMajor}.{d.computeMinor}"
            if d.computeMajor is not None
            else None,
        }
        for d in found
        if d.id is not None and abs(d.id) < 1 << 31
    ]
    return conform(pl.DataFrame(rows, strict=False), DEVICES) if rows else empty(DEVICES)


def producer(header: dict[str, bytes]) -> str:
    """The profiler, and its CUPTI where the file tells."""
    version = _decoded(header.get("cupti_version"), int)
    return "PyTorch profiler (Kineto" + (f", CUPTI {version})" if version else ")")


def host(header: dict[str, bytes]) -> dict[str, str]:
    """`cuda`, `hostname` and `rank`, those that the file tells."""
    keys = {"cuda_driver_version": "cuda", "hostname": "hostname"}
    values = {new: _decoded(header.get(old), str | int) for old, new in keys.items()}
    job = _decoded(header.get("distributedInfo"), _Job)
    if isinstance(job, _Job) and job.rank is not None:
        values["rank"] = str(job.rank)
    return {key: str(value) for key, value in values.items() if value}
