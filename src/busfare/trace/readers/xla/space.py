"""The XSpace protobuf of XLA's profiler: its planes, decoded by Google's protobuf library.

The fields are those of the published schema [OpenXLA: tsl/profiler/protobuf/xplane.proto] that busfare has use for. Texts
are read as bytes, which no wrong UTF-8 makes unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from busfare.trace.model import Omissions

PACKAGE = "busfare.xla"
DOUBLE, INT64, UINT64, MESSAGE, BYTES = 1, 3, 4, 11, 12  # FieldDescriptorProto.Type
#: Of each message its fields: number, type or message, and whether it is repeated.
MESSAGES: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    "Stat": {
        "metadata_id": (1, INT64, False),
        "double_value": (2, DOUBLE, False),
        "uint64_value": (3, UINT64, False),
        "int64_value": (4, INT64, False),
        "str_value": (5, BYTES, False),
        "ref_value": (7, UINT64, False),
    },
    "Event": {
        "metadata_id": (1, INT64, False),
        "offset_ps": (2, INT64, False),
        "duration_ps": (3, INT64, False),
        "stats": (4, "Stat", True),
    },
    "Line": {
        "id": (1, INT64, False),
        "name": (2, BYTES, False),
        "timestamp_ns": (3, INT64, False),
        "events": (4, "Event", True),
    },
    "Metadata": {"id": (1, INT64, False), "name": (2, BYTES, False)},
    "Entry": {"key": (1, INT64, False), "value": (2, "Metadata", False)},
    "Plane": {
        "name": (2, BYTES, False),
        "lines": (3, "Line", True),
        "event_metadata": (4, "Entry", True),
        "stat_metadata": (5, "Entry", True),
        "stats": (6, "Stat", True),
    },
}
#: Fields of XSpace.
PLANES, ERRORS, WARNINGS, HOSTNAMES = 1, 2, 3, 4
LENGTH_DELIMITED = 2


@cache
def _plane_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="busfare/xspace.proto", package=PACKAGE, syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            made = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                made.type, made.type_name = MESSAGE, f".{PACKAGE}.{kind}"
            else:
                made.type = kind
            if field.endswith("_value"):  # of which a stat has one
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Plane"))


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
