"""The XSpace protobuf of XLA's profiler: its planes, decoded by Google's protobuf library.

The fields are those of the published schema [OpenXLA: tsl/profiler/protobuf/xplane.proto] that busfare has use for. Texts
are read as bytes, which no wrong UTF-8 makes unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from busfare.trace.model import Omissions
from busfare.trace.protobuf import message_classes

#: [OpenXLA: tsl/profiler/protobuf/xplane.proto].
MESSAGES = {
    "Stat": "metadata_id 1 int64, double_value 2 |double, uint64_value 3 |uint64, int64_value 4 |int64, "
    "str_value 5 |bytes, ref_value 7 |uint64",
    "Event": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 *Stat",
    "Line": "id 1 int64, name 2 bytes, timestamp_ns 3 int64, events 4 *Event",
    "Metadata": "id 1 int64, name 2 bytes",
    "Entry": "key 1 int64, value 2 Metadata",
    "Plane": "name 2 bytes, lines 3 *Line, event_metadata 4 *Entry, stat_metadata 5 *Entry, stats 6 *Stat",
}
#: Fields of XSpace.
PLANES, ERRORS, WARNINGS, HOSTNAMES = 1, 2, 3, 4
LENGTH_DELIMITED = 2


@cache
def _plane_class() -> Any:
    return message_classes("busfare.xla", MESSAGES)["Plane"]


def contents(data: bytes, omissions: Omissions) -> Iterator[tuple[int, Any]]:
    """The fields of an XSpace: number and value, which is a decoded plane or a text.

    A file that ends in the middle gives what stands before its last plane; a plane that is damaged is left out.
    """
    at, whole = 0, memoryview(data)
    while at < len(data):
        tag, at = _number(data, at)
        if tag & 7 != LENGTH_DELIMITED:
            omissions.add("damaged", f"damaged protobuf near byte {at}: what follows is left out")
            return
        length, at = _number(data, at)
        if length < 0 or at + length > len(data):
            omissions.add(
                "truncated", "the file ends in the middle of a plane: it and what followed are missing"
            )
            return
        if tag >> 3 == PLANES:
            plane = _plane_class()()
            try:
                plane.ParseFromString(whole[at : at + length])
            except DecodeError:
                omissions.add("damaged", f"a damaged plane at byte {at} is left out", 1)
            else:
                yield PLANES, plane
        else:
            yield tag >> 3, text(bytes(whole[at : at + length]))
        at += length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The varint at `at`, and where the next field begins; -1 where the file ends within it or it has no end."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return -1, at


def names(entries: Any) -> dict[int, str]:
    """The texts of a plane's metadata by their numbers."""
    return {entry.key: text(entry.value.name) for entry in entries}


def value(stat: Any, texts: dict[int, str]) -> int | float | str | None:
    """What a stat says. Texts may be those that the plane's metadata number."""
    kind = stat.WhichOneof("value")
    if kind is None:
        return None
    said = getattr(stat, kind)
    if kind == "str_value":
        return text(said)
    if kind == "ref_value":
        return texts.get(said)
    found: int | float = said
    return found


def values(stats: Any, texts: dict[int, str]) -> dict[str, int | float | str | None]:
    """What stats say, by their names."""
    return {texts.get(stat.metadata_id, ""): value(stat, texts) for stat in stats}


def text(said: bytes) -> str:
    """A text of the file, whatever its bytes."""
    return said.decode("utf-8", "replace")
