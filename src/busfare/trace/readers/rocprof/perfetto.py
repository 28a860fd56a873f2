"""Perfetto files of rocprofv3 (`--output-format pftrace`): slices whose annotations hold what the records held.

[rocprofiler-sdk: generatePerfetto.cpp, ROCm 6.2 to 7]. Files of several processes behind one another are one, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from google.protobuf.message import DecodeError

from busfare.errors import InputError
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers.compressed import pieces
from busfare.trace.readers.rocprof.agents import placed, seen
from busfare.trace.readers.rocprof.perfetto_schema import packet_class
from busfare.trace.readers.rocprof.records import COPIES, KERNELS, REGIONS, Records
from busfare.trace.readers.tables import ints, texts
from busfare.trace.tables import Schema, conform

#: A field of the file's only message: a packet.
PACKET = 0x0A
BEGIN = 1
STATE_CLEARED = 1
#: Tracks lie within one another so deep at most: thread, process, and what a program nests.
MOST_NESTED = 8
#: Our columns, by the annotations that versions have called them.
COLUMNS = {
    "begin_ns": "start_ns", "end_ns": "end_ns", "corr_id": "correlation", "ancestor_id": "ancestor",
    "tid": "thread", "agent": "agent", "queue": "queue", "stream_ID": "stream", "stream_id": "stream",
    "VGPR_Count": "vgprs",
    "Accum_VGPR_Count": "accumulating", "LDS_Block_Size": "shared_bytes", "group_segment_size": "shared_bytes",
    "copy_bytes": "size", "src_agent": "source_agent", "dst_agent": "destination_agent",
}  # fmt: skip
OF_SLICES: Schema = ints(
    "process start_ns end_ns correlation ancestor thread queue stream vgprs accumulating shared_bytes size"
) | texts("name category agent source_agent destination_agent")
CALLS = ("hip_api", "hsa_api", "rccl_api", "marker_api")
#: Other programs name their slices' times alike, and these differently: Omnitrace, ROCm Systems Profiler.
CATEGORIES = ("kernel_dispatch", "memory_copy", *CALLS)


@dataclass(slots=True)
class _Sequence:
    """Texts that packets of one writer name by number, until it begins anew."""

    categories: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    annotations: dict[int, str] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    track: int = 0


def read(path: Path, launches: bool = False) -> Trace:
    """Reads the file; one that is cut gives what it holds up to there. Raises InputError if rocprofv3 did not write it."""
    omissions = Omissions()
    category = pl.col("category")
    slices = _slices(path, omissions).filter(category.is_in(CATEGORIES))
    if slices.is_empty():
        raise InputError(
            f"{path}: a Perfetto trace without anything of rocprofv3; busfare reads no other program's: record with "
            "`rocprofv3 --runtime-trace --output-format rocpd`"
        )
    kernels = slices.filter(category == "kernel_dispatch").with_columns(stream=pl.coalesce("stream", "queue"))
    copies = slices.filter(category == "memory_copy")
    kernels, copies = placed(kernels, copies, agents := seen(kernels, copies, omissions))
    marked = pl.when(category == "marker_api").then(pl.lit("MARKER")).otherwise(category)
    regions = slices.filter(category.is_in(CALLS)).with_columns(category=marked)
    found = Records(
        conform(kernels, KERNELS), conform(copies, COPIES), conform(regions, REGIONS), devices=agents
    )
    return found.trace(path, "rocprofv3-perfetto", "rocprofv3 (Perfetto)", omissions, launches)


def _slices(path: Path, omissions: Omissions) -> pl.DataFrame:
    """Columns of `OF_SLICES`, a row a slice that has its times in annotations, as all of rocprofv3's have."""
    rows: list[dict[str, Any]] = []
    sequences: dict[int, _Sequence] = {}
    parents: dict[int, int] = {}
    pids: dict[int, int] = {}
    tracks: list[int] = []
    for packet in _packets(path, omissions):
        known = sequences.setdefault(packet.sequence, _Sequence())
        if packet.flags & STATE_CLEARED:
            known = sequences[packet.sequence] = _Sequence()
        if packet.HasField("defaults"):
            known.track = packet.defaults.event.track_uuid
        if packet.HasField("interned"):
            for ours in ("categories", "names", "annotations", "strings"):
                texts = getattr(packet.interned, ours)
                getattr(known, ours).update({one.iid: one.text.decode("utf-8", "replace") for one in texts})
        if packet.HasField("track"):
            track = packet.track
            parents[track.uuid] = track.parent_uuid
            if pid := track.process.pid or track.thread.pid:
                pids[track.uuid] = pid
        if packet.HasField("stats"):
            dropped = sum(each.overwritten + each.discarded + each.lost for each in packet.stats.buffers)
            omissions.add_if(
                dropped,
                "missing",
                "pieces for which Perfetto had no room: what they held is missing; record with a larger "
                "`--perfetto-buffer-size`, or with `--output-format rocpd`",
            )
        row = _slice(packet.event, known) if packet.event.type == BEGIN else None
        if row is not None:
            rows.append(row)
            tracks.append(packet.event.track_uuid or known.track)
    columns = {name: [row.get(name) for row in rows] for name in OF_SLICES}
    columns["process"] = [_process(track, parents, pids) for track in tracks]
    made = [pl.Series(name, columns[name], dtype=kind, strict=False) for name, kind in OF_SLICES.items()]
    return pl.DataFrame(made).with_columns(pl.col("correlation").replace(0, None))


def _slice(event: Any, known: _Sequence) -> dict[str, Any] | None:
    """The columns of a slice; None if it is none of rocprofv3's."""
    row: dict[str, Any] = {}
    for annotation in event.annotations:
        name = annotation.name or known.annotations.get(annotation.name_iid, "")
        if column := COLUMNS.get(name):
            row[column] = _value(annotation, known, as_text=OF_SLICES[column] == pl.String())
    if row.get("start_ns") is None or row.get("end_ns") is None:
        return None
    categories = [known.categories.get(iid) for iid in event.category_iids] or [*event.categories]
    row["category"] = next((category for category in categories if category), None)
    row["name"] = event.name or known.names.get(event.name_iid)
    return row


def _value(annotation: Any, known: _Sequence, as_text: bool) -> int | str | None:
    for kind in ("uint", "int", "pointer"):
        if annotation.HasField(kind):
            number: int = getattr(annotation, kind)
            return str(number) if as_text else number
    text = annotation.string or known.strings.get(annotation.string_iid)
    return text if as_text else None


def _process(track: int, parents: dict[int, int], pids: dict[int, int]) -> int | None:
    """The process that a track is of, by the tracks around it."""
    for _ in range(MOST_NESTED):
        if track in pids:
            return pids[track]
        track = parents.get(track, 0)
    return None


def _packets(path: Path, omissions: Omissions) -> Iterator[Any]:
    """The packets up to where the file is cut or damaged."""
    decode = packet_class().FromString
    text = b"".join(pieces(path, omissions))
    at = 0
    while at < len(text):
        begin, length = _length(text, at)
        if text[at] != PACKET or length is None or begin + length > len(text):
            cut = text[at] == PACKET
            what = "ends in the middle" if cut else "is damaged"
            omissions.add(
                "truncated" if cut else "damaged", f"the file {what} at byte {at}: what follows is left out"
            )
            return
        try:
            yield decode(text[begin : begin + length])
        except DecodeError:
            omissions.add("damaged", "packets that cannot be decoded: left out", 1)
        at = begin + length


def _length(text: bytes, at: int) -> tuple[int, int | None]:
    """Where the packet at `at` begins behind its length, and that, None if the file ends in it."""
    length = 0
    for place in range(at + 1, min(at + 11, len(text))):
        length |= (text[place] & 0x7F) << 7 * (place - at - 1)
        if text[place] < 0x80:
            return place + 1, length
    return at, None
