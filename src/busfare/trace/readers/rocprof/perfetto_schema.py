"""Perfetto's messages, as far as busfare reads them, made at run time [perfetto.dev: reference of TracePacket].

A field that is not listed is skipped, whatever a newer Perfetto writes there.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "busfare.perfetto"
#: Message → its fields: name, number and type; `*` is a list, a name of this table a message.
MESSAGES: dict[str, str] = {
    "TracePacket": "timestamp 8 uint64, sequence 10 uint32, event 11 TrackEvent, interned 12 InternedData, "
    "flags 13 uint32, stats 35 TraceStats, defaults 59 Defaults, track 60 TrackDescriptor",
    "TrackEvent": "category_iids 3 *uint64, annotations 4 *DebugAnnotation, type 9 uint32, name_iid 10 uint64, "
    "track_uuid 11 uint64, categories 22 *string, name 23 string",
    "DebugAnnotation": "name_iid 1 uint64, bool 2 bool, uint 3 uint64, int 4 int64, string 6 string, "
    "pointer 7 uint64, name 10 string, string_iid 17 uint64",
    "InternedData": "categories 1 *Interned, names 2 *Interned, annotations 3 *Interned, strings 29 *Interned",
    "Interned": "iid 1 uint64, text 2 bytes",
    "Defaults": "event 11 TrackEvent",
    "TrackDescriptor": "uuid 1 uint64, process 3 Process, thread 4 Process, parent_uuid 5 uint64",
    "Process": "pid 1 int32",
    "TraceStats": "buffers 1 *BufferStats",
    "BufferStats": "overwritten 3 uint64, discarded 18 uint64, lost 19 uint64",
}


@cache
def packet_class() -> Any:
    """The class of TracePacket."""
    file = descriptor_pb2.FileDescriptorProto(name="busfare/perfetto.proto", package=PACKAGE, syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            own, number, kind = field.split()
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            made = message.field.add(name=own, number=int(number), label=label)
            kind = kind.removeprefix("*")
            if kind in MESSAGES:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                made.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.TracePacket"))
