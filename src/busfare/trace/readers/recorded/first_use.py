"""When the host first touched what copies from the GPU of a recorded process had brought."""

from __future__ import annotations

import polars as pl

from busfare.trace.model import Omissions
from busfare.trace.readers.recorded.process import RecordedProcess
from busfare.trace.readers.tables import meant
from busfare.trace.tables import FIRST_USES, WATCHED_UNTIL, conform

#: By the recording's number; a later one, and 7, is of a watch that says nothing.
UNTIL = dict(enumerate(WATCHED_UNTIL, start=1))
#: What the fact says where all that can be seen is.
ALL = "program and system calls"
SAMPLED = (
    "copies from the GPU whose destination was watched, one at a time and in at most 32 bytes: that the host touched other "
    "bytes, or other copies', earlier is not known"
)
LOST = (
    "watches over a copy's destination that say nothing: a thread was started meanwhile, a system call or a call of MPI may "
    "have taken the bytes unseen, other memory may have come in their place, the host touched them before the copy's end, "
    "or the copy is not in the recording"
)
PROGRAM_ONLY = (
    "accesses by system calls (files, sockets) are not seen; for that run as root, or with the sysctl "
    "kernel.perf_event_paranoid at 1 or less"
)


def first_uses(process: RecordedProcess, operations: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Rows of `FIRST_USES`. `operations` are those of the process."""
    recording, name = process.recording, process.recording.path.name
    seen = recording.facts.get("first_use", "")
    if seen == ALL.partition(" ")[0]:
        omissions.add("first-uses-of-program", f"{name}: {PROGRAM_ONLY}")
    elif seen not in ("", ALL):
        omissions.add("no-first-uses", f"{name}: first uses could not be seen ({seen})")
    table = recording.table("first_uses")
    watches = process.frame(table, "correlation", "end", "thread", "watched_bytes")
    copies = operations.filter((pl.col("kind") == "copy") & pl.col("graph_node").is_null())
    copies = copies.select("correlation", copied_ns="end_ns").unique("correlation", keep="none")
    watches = watches.join(copies, on="correlation", how="left", maintain_order="left")
    watches = watches.with_columns(until=meant("end", UNTIL, WATCHED_UNTIL)).with_columns(
        pl.when(pl.col("until") == "touched").then("thread")
    )
    sound = pl.col("until").is_not_null() & (pl.col("copied_ns") <= pl.col("end_ns")).fill_null(False)
    # Network cards and other processes take what is sent, and no watchpoint sees it.
    sent = _calls_of_mpi(process)
    before, by_end = (sent.search_sorted(watches[name]) for name in ("copied_ns", "end_ns"))
    kept = conform(watches.filter(sound & pl.Series(before == by_end)), FIRST_USES)
    omissions.add_if(kept.height, "first-uses", f"{name}: {SAMPLED}")
    omissions.add_if(len(table) - kept.height, "first-uses-lost", f"{name}: {LOST}")
    return kept


def _calls_of_mpi(process: RecordedProcess) -> pl.Series:
    """When MPI was called, ascending."""
    table = process.recording.table("messages")
    calls = process.frame(table, wall=True).with_columns(name=process.names(table["name"]).cast(pl.String))
    return calls.filter(pl.col("name").str.starts_with("MPI_"))["start_ns"].drop_nulls().sort()
