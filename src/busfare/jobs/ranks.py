"""The ranks of a job as their traces hold them, and what each of them communicates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from itertools import count
from typing import Any

import msgspec
import numpy as np
import polars as pl

from busfare.jobs.matching import MEMBERS
from busfare.trace import Trace
from busfare.trace.lanes import Union, is_communication, is_work
from busfare.trace.tables import conform

#: Of each communication kernel, how much computes beside it is known at so many moments, its start and end among them.
MOMENTS = 9
#: Columns of a rank's rows as its trace gives them: times by the clock of its file.
ROWS = {name: kind for name, kind in MEMBERS.items() if name not in ("rank", "clock")} | {
    "computing_ns": pl.Array(pl.Int64, MOMENTS)
}
PLACE = ["process", "device"]


class TraceRank(msgspec.Struct, frozen=True):
    """A rank as its trace has it: the work of one process on one GPU. Nanoseconds.

    `timed_by`: the host whose clock all of its recordings share; None where each has its own. `rank`: as a file of several
    processes says it.
    """

    process: int | None
    device: int | None
    makespan_ns: int
    kernels_ns: int
    communication_ns: int
    timed_by: str | None = None
    rank: int | None = None


class Rank(msgspec.Struct, frozen=True):
    """A rank of a job; `clock` numbers its file."""

    rank: int
    path: str
    host: str | None
    clock: int
    times: TraceRank


def ranks_of(trace: Trace) -> list[TraceRank]:
    """Each process and GPU of `trace` that computes or communicates, in order of GPU and process; the first where none
    does. Where nothing ran on a GPU, each process that communicates.
    """
    timed_by = trace.host.get("hostname") or None if trace.format == "recorded" else None
    said = {
        int(process): int(rank) for process, rank in re.findall(r"(\d+)=(\d+)", trace.host.get("ranks", ""))
    }
    if trace.operations.is_empty():  # ranks that use no GPU
        spans = trace.collectives.group_by("process").agg(pl.col("end_ns").max() - pl.col("start_ns").min())
        return [
            TraceRank(process, None, span, 0, 0, timed_by, said.get(process))
            for process, span in spans.sort("process").iter_rows()
        ]
    seconds = pl.col("seconds")
    of_lanes = trace.lanes.groups.group_by(PLACE).agg(
        kernels=seconds.filter(is_work()).sum(), communication=seconds.filter(is_communication()).sum()
    )
    calls = trace.calls.group_by("process").agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
    own = trace.operations.group_by(PLACE).agg(start=pl.col("start_ns").min(), end=pl.col("end_ns").max())
    own = own.join(calls, on="process", how="left", nulls_equal=True).join(
        of_lanes, on=PLACE, nulls_equal=True
    )
    own = own.with_columns(start=pl.min_horizontal("start", "first"), end=pl.max_horizontal("end", "last"))
    own = own.sort("device", "process", nulls_last=True)
    # A process that only copies to another's GPU is no rank there.
    working = own.filter(pl.col("kernels") + pl.col("communication") > 0)
    return [
        TraceRank(
            row["process"], row["device"], row["end"] - row["start"],
            round(row["kernels"] * 1e9), round(row["communication"] * 1e9), timed_by, said.get(row["process"]),
        )
        for row in (working if working.height else own.head(1)).iter_rows(named=True)
    ]  # fmt: skip


def rows_of(trace: Trace) -> pl.DataFrame:
    """Columns of ROWS: the communication of all ranks of `trace`."""
    rows = trace.collectives
    if rows.is_empty():
        return pl.DataFrame(schema=ROWS)
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    moments = starts[:, None] + ((ends - starts)[:, None] * np.arange(MOMENTS)) // (MOMENTS - 1)
    computing = np.zeros(moments.shape, np.int64)
    for (process, device), own in trace.operations[trace.lanes.rows(is_work())].group_by(PLACE):
        union = Union.of(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        its = (rows["process"].eq_missing(process) & rows["device"].eq_missing(device)).to_numpy()
        computing[its] = union.covered_before(moments[its].ravel()).reshape(-1, MOMENTS)
    computing -= computing[:, :1]
    return conform(
        rows.with_columns(pl.col("start_ns", "end_ns") + trace.origin_ns, computing_ns=computing), ROWS
    )


def packed(rows: pl.DataFrame) -> bytes:
    """`rows` as Arrow IPC, compressed; nothing of none."""
    if rows.is_empty():
        return b""
    file = BytesIO()
    rows.write_ipc(file, compression="zstd")
    return file.getvalue()


def unpacked(text: bytes) -> pl.DataFrame:
    """The rows that were `packed`."""
    return pl.read_ipc(BytesIO(text)) if text else pl.DataFrame(schema=ROWS)


class Unpacked(Sequence[pl.DataFrame]):
    """Rows that were `packed`, each unpacked when it is asked for."""

    def __init__(self, files: Sequence[bytes]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: Any) -> Any:
        return unpacked(self._files[number])


def numbered(traces: Sequence[tuple[str, int | None, str | None, list[TraceRank]]]) -> list[Rank]:
    """The ranks of `traces`: each a path, the rank and the host that it says it is of, and what it holds.

    A trace of one process has the rank that it says, and so has each process of a trace that says one for it; all others,
    and those that say the same, get the numbers that are left.
    """
    first: dict[int, tuple[int, int]] = {}
    for clock, (_, rank, _, held) in enumerate(traces):
        for place, times in enumerate(held):
            own = rank if times.rank is None and len(held) == 1 else times.rank
            if own is not None:
                first.setdefault(own, (clock, place))
    claimed = {place: rank for rank, place in first.items()}
    free = (number for number in count() if number not in first)
    return [
        Rank(claimed[at] if (at := (clock, place)) in claimed else next(free), path, host, clock, times)
        for clock, (path, _, host, held) in enumerate(traces)
        for place, times in enumerate(held)
    ]
