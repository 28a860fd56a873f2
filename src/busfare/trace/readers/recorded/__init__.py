"""Recordings of `busfare record`: a file of one process, or the directory of a job, as one `Trace`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers import Format, Source
from busfare.trace.readers.recorded.file import MAGIC, Recording, is_recording, read_recording
from busfare.trace.readers.recorded.process import RecordedProcess, located, messages
from busfare.trace.readers.recorded.rows import calls, devices, events, markers, operations, streams
from busfare.trace.tables import DESCRIBED, empty

__all__ = ["FORMATS", "holds_recording", "is_recording", "read"]

#: Linux counts processes to 2**22; a second file of one (after exec, or of another host) differs in the bits above.
SAME_PROCESS_SHIFT = 24
LOSS_OF = {
    1: ("dropped", "records that CUPTI dropped for want of buffers: operations are missing"),
    2: ("no-buffer", "times that CUPTI asked for a buffer and got none: operations are missing"),
    3: (
        "calls-lost",
        "calls that came faster than they could be noted: they, or the addresses of their copies, are missing",
    ),
    4: ("unknown-records", "records of a kind that the recorder does not know"),
    5: ("stacks-lost", "calls from too many different places: where these are made is not known"),
    6: ("retired-losses", "lost rows of tables that are no longer read"),
}


def read(path: Path, launches: bool = False) -> Trace:
    """Reads a recording, or all recordings of a directory on one time line, with their launches or not.

    Raises InputError when there is none, or none that can be read.
    """
    files = (
        sorted(file for file in path.iterdir() if file.is_file() and is_recording(file))
        if path.is_dir()
        else [path]
    )
    if not files:
        raise InputError(
            f"{path}: the directory holds no recording; give the one that `busfare record -o` named"
        )
    omissions = Omissions()
    recordings = [read_recording(file) for file in files]
    parts = [
        RecordedProcess(recording, process)
        for recording, process in zip(recordings, _processes(recordings), strict=True)
    ]
    firsts = [part.first_ns() for part in parts]
    first = min((time for time in firsts if time is not None), default=0)
    for part in parts:
        part.zero_ns = first
        _note(part.recording, omissions)
    ranges = [markers(part, omissions) for part in parts]
    described = [empty(DESCRIBED)]
    for part in parts:
        calls_of_ranks, said = messages(part)
        if calls_of_ranks.height:
            before = sum(frame.height for frame in described)
            ranges.append(calls_of_ranks.with_columns(pl.col("collective") + before))
            described.append(said)
    trace = Trace(
        path=path,
        format="recorded",
        producer=recordings[0].facts.get("producer", "busfare record"),
        operations=_together([operations(part, omissions, launches) for part in parts]),
        calls=_together([located(calls(part), part) for part in parts]),
        events=_together([events(part) for part in parts]),
        markers=_together(ranges),
        described=pl.concat(described),
        devices=_together([devices(part) for part in parts]),
        streams=_together([streams(part) for part in parts]),
        host={key: recordings[0].facts.get(key, "") for key in ("cpu", "driver", "cuda", "hostname")}
        | _rank(parts),
        origin_ns=first,
    )
    hosts = {recording.facts.get("hostname", "") for recording in recordings}
    if len(hosts) > 1:
        omissions.add(
            "several-clocks",
            f"the recordings come from {len(hosts)} hosts, whose clocks agree only as far as the hosts keep time",
        )
    trace.omissions = omissions.list()
    return trace


def _rank(parts: list[RecordedProcess]) -> dict[str, str]:
    """`rank` that all recordings are of, if they say one and the same; else `ranks`, PROCESS=RANK of those that say one."""
    said = {str(part.process): part.recording.facts.get("rank", "") for part in parts}
    ranks = set(said.values())
    if len(ranks) == 1:
        return {"rank": ranks.pop()} if "" not in ranks else {}
    return {"ranks": " ".join(f"{process}={rank}" for process, rank in said.items() if rank.isdecimal())}


def _processes(recordings: list[Recording]) -> list[int]:
    """A number for each file: its process id, told apart where two files share one."""
    seen: dict[int, int] = {}
    numbers = []
    for recording in recordings:
        again = seen.get(recording.process, 0)
        seen[recording.process] = again + 1
        numbers.append(recording.process + (again << SAME_PROCESS_SHIFT))
    return numbers


def _note(recording: Recording, omissions: Omissions) -> None:
    name = recording.path.name
    if not recording.complete:
        omissions.add(
            "cut",
            f"{name}: the program ended without closing its recording; what it did after the last flush is missing",
        )
    damaged, missing = recording.damaged_chunks, recording.missing_chunks
    for count, id, what in (
        (recording.torn_bytes, "torn", "its last bytes are no whole chunk and were left out"),
        (damaged, "damaged", "chunks fail their checksum and were left out"),
        (missing if missing > damaged else 0, "missing", "chunks are missing from its middle"),
        (recording.header_damaged, "damaged-header", "its header is damaged: process and clock may be wrong"),
        (recording.unknown_chunks, "unknown-tables", "holds tables that only a later version knows"),
    ):
        omissions.add_if(int(count), id, f"{name}: {what}")
    tables = ", ".join(sorted(recording.retired_rows))
    what = f"rows of an earlier version's tables that are no longer read ({tables})"
    omissions.add_if(sum(recording.retired_rows.values()), "retired-tables", what)
    losses = recording.table("losses")
    for loss, count in zip(losses["loss"].tolist(), losses["count"].tolist(), strict=True):
        id, what = LOSS_OF.get(loss, ("unknown-loss", "losses of a kind that this version does not know"))
        omissions.add(id, f"{name}: {what}", count)
    capture = [recording.facts[key] for key in ("capture", "delay", "duration") if key in recording.facts]
    if capture:
        omissions.add("window", f"{name}: only a part of the program was recorded ({', '.join(capture)})")
        _note_pauses(recording, omissions)


def _note_pauses(recording: Recording, omissions: Omissions) -> None:
    # On and off take turns.
    turns = np.sort(recording.table("windows")["time"]).astype(np.int64)
    on = turns[2::2]
    off = turns[1::2][: len(on)]
    if len(on):
        of = f"{(on - off).sum() * 1e-9:.3g} of {np.ptp(turns) * 1e-9:.3g} s"
        what = "what the program did then is not known, and counts as time of its host"
        omissions.add("pauses", f"{recording.path.name}: pauses of the recording, {of}: {what}", len(on))


def _together(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")


def holds_recording(path: Path) -> bool:
    """Whether `path` is a recording, or a directory that holds some."""
    if path.is_dir():
        return any(is_recording(file) for file in path.iterdir() if file.is_file())
    return is_recording(path)


def _read(source: Source) -> Trace:
    with source.unpacked() as place:
        trace = read(place, source.launches)
    trace.path = source.path
    return trace


FORMATS = (
    Format(
        name="recorded",
        title="busfare's own recordings",
        read=_read,
        begins=re.compile(re.escape(MAGIC)),
        directory=holds_recording,
        suffixes=(".bf",),
    ),
)
