"""Perfetto's messages, as far as busfare reads them, made at run time [perfetto.dev: reference of TracePacket].

A field that is not listed is skipped, whatever a newer Perfetto writes there.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from busfare.trace.protobuf import message_classes

MESSAGES = {
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
    return message_classes("busfare.perfetto", MESSAGES)["TracePacket"]
