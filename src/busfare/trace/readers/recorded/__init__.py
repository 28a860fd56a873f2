"""Recordings of `busfare record`: a file of one process, or the directory of a job, as one `Trace`."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions, readable
from busfare.trace.readers import Format, Source
from busfare.trace.readers.recorded.file import MAGIC, Recording, is_recording, read_recording
from busfare.trace.readers.recorded.process import RecordedProcess, located, messages
from busfare.trace.readers.recorded.rows import calls, devices, events, markers, operations, streams
from busfare.trace.tables import DESCRIBED, empty

__all__ = ["FORMATS", "is_recording", "read", "recordings_in"]

#: Linux counts processes to 2**22; a second file of one (after exec, or of another host) differs in the bits above.
SAME_PROCESS_SHIFT = 24
HOST_FACTS = ("cpu", "driver", "cuda", "hostname")
#: What was lost, by the number that the file gives it.
LOSSES = (
    "unknown-loss", "dropped", "no-buffer", "calls-lost", "unknown-records", "stacks-lost", "retired-losses",
)  # fmt: skip


def read(path: Path, launches: bool = False) -> Trace:
    """Reads a recording, or all of a directory on one timeline. Raises InputError if there is none, or none can be read."""
    files = recordings_in(path) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: the directory has no recording; give the directory of `busfare record -o`")
    omissions = Omissions()
    recordings = [*readable(files, read_recording, omissions)]
    # The process id, with a count above it where several files share that.
    ids = [recording.process for recording in recordings]
    numbers = [process + (ids[:at].count(process) << SAME_PROCESS_SHIFT) for at, process in enumerate(ids)]
    parts = [*map(RecordedProcess, recordings, numbers)]
    firsts = [part.first_ns() for part in parts]
    first = min((time for time in firsts if time is not None), default=0)
    for part in parts:
        part.zero_ns = first
        _note(part.recording, omissions)
    ranges = [markers(part, omissions) for part in parts]
    described = [empty(DESCRIBED)]
    for part in parts:
        calls_of_ranks, details = messages(part)
        if calls_of_ranks.height:
            before = sum(frame.height for frame in described)
            ranges.append(calls_of_ranks.with_columns(pl.col("collective") + before))
            described.append(details)
    together = partial(pl.concat, how="diagonal")
    trace = Trace(
        path=path,
        format="recorded",
        producer=recordings[0].facts.get("producer", "busfare record"),
        operations=together(operations(part, omissions, launches) for part in parts),
        calls=together(located(calls(part), part) for part in parts),
        events=together(events(part) for part in parts),
        markers=together(ranges),
        described=pl.concat(described),
        devices=together(devices(part) for part in parts),
        streams=together(streams(part) for part in parts),
        host={key: recordings[0].facts.get(key, "") for key in HOST_FACTS} | _rank(parts),
        origin_ns=first,
    )
    hosts = {recording.facts.get("hostname", "") for recording in recordings}
    if len(hosts) > 1:
        omissions.add("several-clocks", hosts=len(hosts))
    trace.omissions = omissions.list()
    return trace


def _rank(parts: list[RecordedProcess]) -> dict[str, str]:
    """`rank` that all recordings are of, if they say one and the same; else `ranks`, PROCESS=RANK of those that say one."""
    rank_of = {str(part.process): part.recording.facts.get("rank", "") for part in parts}
    ranks = set(rank_of.values())
    if len(ranks) == 1:
        return {"rank": ranks.pop()} if "" not in ranks else {}
    return {"ranks": " ".join(f"{process}={rank}" for process, rank in rank_of.items() if rank.isdecimal())}


def _note(recording: Recording, omissions: Omissions) -> None:
    name = recording.path.name
    if not recording.complete:
        omissions.add("cut", file=name)
    damaged, missing = recording.damaged_chunks, recording.missing_chunks
    omissions.count("torn", recording.torn_bytes, file=name)
    omissions.count("damaged", damaged, file=name)
    omissions.count("missing", missing if missing > damaged else 0, file=name)
    omissions.count("damaged-header", int(recording.header_damaged), file=name)
    omissions.count("unknown-tables", recording.unknown_chunks, file=name)
    tables = ", ".join(sorted(recording.retired_rows))
    omissions.count("retired-tables", sum(recording.retired_rows.values()), tables=tables)
    losses = recording.table("losses")
    for loss, count in zip(losses["loss"].tolist(), losses["count"].tolist(), strict=True):
        omissions.add(LOSSES[loss if loss < len(LOSSES) else 0], count, file=name)
    capture = [recording.facts[key] for key in ("capture", "delay", "duration") if key in recording.facts]
    if capture:
        omissions.add("window", file=name, limits=", ".join(capture))
        # On and off take turns.
        turns = np.sort(recording.table("windows")["time"]).astype(np.int64)
        on = turns[2::2]
        off = turns[1::2][: len(on)]
        if len(on):
            paused, whole = float((on - off).sum()) * 1e-9, float(np.ptp(turns)) * 1e-9
            omissions.add("pauses", len(on), file=name, paused=paused, whole=whole)


def recordings_in(folder: Path) -> list[Path]:
    """The recordings that a folder holds itself, by name."""
    return sorted(file for file in folder.iterdir() if file.is_file() and is_recording(file))


def _read(source: Source) -> Trace:
    with source.unpacked() as place:
        trace = read(place, source.launches)
    trace.path = source.path
    return trace


#: Sentences of omissions that only this reader notes, by key.
SENTENCES = {
    "calls-lost": "{file}: calls that arrived faster than they could be recorded: these calls, or the addresses of their "
    "copies, are missing",
    "cut": "{file}: the program ended without closing its recording; everything after the last flush is missing",
    "damaged": "{file}: chunks with a wrong checksum: skipped",
    "damaged-header": "{file}: the header is damaged: process and clock may be wrong",
    "dropped": "{file}: records that CUPTI dropped because it ran out of buffers: operations are missing",
    "missing": "{file}: chunks are missing in the middle of the file",
    "no-buffer": "{file}: failed buffer requests from CUPTI: operations are missing",
    "pauses": "{file}: pauses of the recording, {paused:.3g} of {whole:.3g} s: unrecorded activity in them counts as host "
    "time",
    "retired-losses": "{file}: lost rows of tables that busfare no longer reads",
    "retired-tables": "rows of tables from an earlier version that busfare no longer reads ({tables})",
    "several-clocks": "the recordings come from {hosts} hosts, and their clocks may differ",
    "stacks-lost": "{file}: calls from too many different places: the call sites of the rest are unknown",
    "torn": "{file}: the last chunk is incomplete: skipped",
    "unknown-loss": "{file}: losses of a kind that this version of busfare does not know",
    "unknown-records": "{file}: records of a kind that the recorder does not know",
    "unknown-tables": "{file}: tables that only a later version of busfare can read",
    "untimed/recorded": "operations without timestamps from the GPU: counted, but without times",
    "window": "{file}: only part of the program was recorded ({limits})",
}
FORMATS = (
    Format(
        name="recorded",
        title="busfare's own recordings",
        read=_read,
        sentences=SENTENCES,
        begins=re.compile(re.escape(MAGIC)),
        directory=lambda path: bool(recordings_in(path)),
        suffixes=(".bf",),
    ),
)
