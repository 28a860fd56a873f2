"""Records of NCCL Inspector, NVIDIA's profiler plugin for NCCL: a JSON object a collective or message.

Fields as it writes them [NVIDIA/nccl: ext-profiler/inspector, README.md, inspector.cc]. Only `NCCL_INSPECTOR_DUMP_VERBOSE=1`
writes when a collective ran; without it a record says how long it took, and when it was written to the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from busfare.errors import InputError
from busfare.trace.collectives import kind_of
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers.compressed import pieces
from busfare.trace.tables import DESCRIBED, OPERATIONS, OPERATIONS_OF_COLLECTIVES, conform

VERBOSE = "record with NCCL_INSPECTOR_DUMP_VERBOSE=1 and give the .log files"
#: A rate over the time gives the bytes that nccl-tests count: of these as many times the record's as there are ranks.
CLOSE = 0.02

Record = dict[str, Any]


def read(path: Path, launches: bool = False) -> Trace:
    """Reads the records of a process: each collective is a kernel that communicates, by the host's clock.

    Raises InputError if none says when it ran, or the process has several GPUs and several communicators.
    """
    omissions = Omissions()
    records, rows = _records(b"".join(pieces(path, omissions)), omissions), []
    untimed = 0
    for record in records:
        row = _row(record)
        if row is None:
            untimed += 1
        else:
            rows.append(row)
    if not rows:
        raise InputError(
            f"{path}: records of NCCL Inspector that do not say when a collective ran; {VERBOSE}"
        )
    omissions.add_if(untimed, "untimed", "records that do not say when they ran: left out")
    frame = pl.DataFrame(rows, infer_schema_length=None, strict=False)
    members = frame.select("communicator", "place").unique()
    shared = members["communicator"].is_duplicated().any()
    if shared and members["communicator"].n_unique() > 1:
        raise InputError(
            f"{path}: several GPUs of one process, in several communicators: which GPU is whose is not told; "
            "run a process a GPU"
        )
    place = pl.col("place").rank("dense").cast(pl.Int32) - 1
    one_kind = pl.col("collective_kind").n_unique().over("communicator") == 1
    frame = frame.with_columns(
        kind=pl.lit("kernel"),
        device=place if shared else pl.lit(0, pl.Int32),
        stream=pl.col("communicator").rank("dense").cast(pl.Int64),
        collective=pl.int_range(pl.len(), dtype=pl.UInt32),
        sequence=pl.when(one_kind).then("sequence"),  # which counts each kind by itself
    )
    largest = max(rows, key=lambda row: row["group_size"])
    host = {"hostname": largest["hostname"]} if largest["hostname"] else {}
    if not shared:
        host["rank"] = str(largest["place"])
    trace = Trace(
        path=path,
        format="nccl-inspector",
        producer="NCCL Inspector",
        operations=conform(frame.drop("bytes"), OPERATIONS, OPERATIONS_OF_COLLECTIVES),
        described=conform(frame, DESCRIBED),
        host=host,
    )
    omissions.add(
        "communication-only",
        "collectives and messages alone, by the host's clock in whole microseconds: kernels and copies are not recorded",
    )
    unsized = frame["bytes"].null_count()
    omissions.add_if(
        unsized, "unknown-bytes", "collectives whose rate and size do not agree: their bytes do not count"
    )
    trace.omissions = omissions.list()
    return trace


def _records(text: bytes, omissions: Omissions) -> list[Record]:
    """The objects of the lines; what is none is left out."""
    found, unusable = [], 0
    lines = text.splitlines()
    for number, line in enumerate(lines):
        try:
            record = msgspec.json.decode(line) if line.strip() else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if number == len(lines) - 1 and not text.endswith(b"\n"):
                omissions.add("truncated", "the file ends in the middle: what it held beyond is missing")
            else:
                unusable += 1
            continue
        if isinstance(record, dict) and isinstance(record.get("header"), dict):
            found.append(record)
    omissions.add_if(unusable, "unusable-records", "lines that are no JSON: left out")
    return found


def _row(record: Record) -> Record | None:
    """Columns of `OPERATIONS` and `DESCRIBED`; None where it does not say when it ran, or of which communicator."""
    header, about = record["header"], record.get("metadata")
    said, what = record.get("coll_perf"), "coll"
    if not isinstance(said, dict):
        said, what = record.get("p2p_perf"), "p2p"
    if not isinstance(said, dict) or not isinstance(said.get(what), str):
        return None
    times = _times(said)
    numbers = [header.get("rank"), header.get("n_ranks"), said.get(f"{what}_sn")]
    if times is None or not all(_is_count(number) for number in numbers):
        return None
    about = about if isinstance(about, dict) else {}
    kind = kind_of(said[what])
    host, process, peer = about.get("hostname"), about.get("pid"), said.get("p2p_peer")
    return {
        "name": f"ncclDevKernel_{said[what]}",
        "start_ns": times[0] * 1000,
        "end_ns": times[1] * 1000,
        "process": process if _is_count(process) else None,
        "hostname": host if isinstance(host, str) else None,
        "collective_kind": kind,
        "communicator": str(header.get("id")),
        "group_size": numbers[1],
        "place": numbers[0],
        "bytes": _bytes(said, what, kind, numbers[1]),
        "sequence": numbers[2],
        "peer": peer if _is_count(peer) else None,
    }


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 31


def _times(said: Record) -> tuple[int, int] | None:
    """When the kernel's first channel began and its last one ended; microseconds since 1970."""
    traced = said.get("event_trace_ts")
    channels = traced.get("kernel_events") if isinstance(traced, dict) else None
    events = said.get("events")  # of later versions
    if not isinstance(channels, list):
        channels = (
            [one.get("event_trace_ts") for one in events if isinstance(one, dict)]
            if isinstance(events, list)
            else []
        )
    said_of = [one for one in channels if isinstance(one, dict)]
    ends: list[tuple[Any, Any]] = [(one.get("kernel_start_ts"), one.get("kernel_stop_ts")) for one in said_of]
    spans = [(begun, ended) for begun, ended in ends if _is_time(begun) and _is_time(ended)]
    return (min(begun for begun, _ in spans), max(ended for _, ended in spans)) if spans else None


def _is_time(number: Any) -> bool:
    return isinstance(number, int) and 0 < number < 1 << 53


def _bytes(said: Record, what: str, kind: str | None, ranks: int) -> int | None:
    """Bytes as nccl-tests count them: the record's own, or as many times that as there are ranks, as the rate says."""
    size, seconds = said.get(f"{what}_msg_size_bytes"), said.get(f"{what}_exec_time_us")
    rate = said.get(f"{what}_algobw_gbs")
    if not (isinstance(size, int) and isinstance(seconds, int | float) and isinstance(rate, int | float)):
        return None
    if not 0 < size < 1 << 44 or seconds <= 0:
        return 0 if size == 0 else None
    times = rate * 1e9 * seconds * 1e-6 / size
    near = [factor for factor in (1, ranks) if abs(times / factor - 1) < CLOSE] if ranks else []
    return size * near[0] if near else None
