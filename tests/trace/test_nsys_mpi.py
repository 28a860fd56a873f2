"""MPI's calls in Nsight Systems exports: as ranges, with what they send, receive and do with other ranks."""

from pathlib import Path

import polars as pl
import pytest

from busfare.timeline import play, timeline
from busfare.trace import Trace, read
from tests.trace.build_nsys import (
    COMMUNICATORS,
    MPI_CALLS,
    RANKS,
    NsysExport,
    Value,
    global_pid,
    small_export,
)
from tests.traces import omitted

WORLD, ROWS = 0x7F0000001000, 0x7F0000002000
COLUMNS = ["collective_kind", "communicator", "bytes", "peer", "tag", "sequence", "place", "group_size"]


def export_of(rank: int = 1, generation: str = "2025.1") -> NsysExport:
    """An export of one rank that began MPI."""
    export = small_export(generation)
    export.rank(rank)
    export.mpi("MPI_Init", 1000, 2000)
    return export


def written(export: NsysExport, folder: Path) -> Trace:
    return read(export.write(folder / "rank.sqlite"))


def rows(trace: Trace) -> list[tuple[object, ...]]:
    return trace.collectives.with_columns(pl.col("collective_kind").cast(pl.String)).select(COLUMNS).rows()


def ranges(trace: Trace) -> list[str]:
    names = trace.markers["name"].cast(pl.String)
    return names.filter(names.str.starts_with("MPI_")).to_list()


@pytest.mark.parametrize("generation", ["2022.4", "2025.1", "2026.2"])
def test_calls_say_partners_bytes_and_communicators(generation: str, tmp_path: Path) -> None:
    export = export_of(generation=generation)
    made = {"parentHandle": WORLD, "localRank": 0, "groupRoot": 1, "groupRootUid": 3, "members": "1,3"}
    export.communicator(1, ROWS, 2, timestamp=2100, **made)
    export.mpi("MPI_Send", 3000, 3100, commHandle=WORLD, tag=7, remoteRank=2, size=400)
    export.mpi("MPI_Recv", 3200, 3300, commHandle=WORLD, tag=8, remoteRank=0, size=800)
    export.mpi("MPI_Allreduce", 3400, 3500, commHandle=ROWS, size=16, recvSize=16)
    export.mpi("MPI_Alltoall", 3600, 3700, commHandle=WORLD, size=32, recvSize=32)
    export.mpi("MPI_Barrier", 3800, 3900, commHandle=WORLD, size=None, recvSize=None)
    export.mpi("MPI_Finalize", 5000, 6000)
    trace = written(export, tmp_path)
    world = "MPI_COMM_WORLD"
    assert rows(trace) == [
        ("send", world, 400, 2, 7, 0, 1, None),
        ("receive", world, None, 0, 8, 0, 1, None),  # what there was room for is not what came
        ("all_reduce", "MPI_COMM[2] 1.3", 16, None, None, 0, 0, 2),
        # whether to one rank or to all is not documented
        ("all_to_all", world, None, None, None, 0, 1, None),
        ("barrier", world, 0, None, None, 1, 1, None),
    ]
    assert ranges(trace) == [
        "MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Allreduce", "MPI_Alltoall", "MPI_Barrier", "MPI_Finalize",
    ]  # fmt: skip
    assert trace.host["rank"] == "1"
    assert not omitted(trace).keys() & {"unknown-communicators", "open-ranges"}


def test_requests_are_joined_to_what_ends_them(tmp_path: Path) -> None:
    """A Waitall has a row a request, and handles come back; a Waitany names those that go on, too."""
    export = export_of()
    message: dict[str, Value] = {"commHandle": WORLD, "tag": 1, "size": 8}
    export.mpi("MPI_Irecv", 3000, 3010, remoteRank=0, requestHandle=51, **message)
    export.mpi("MPI_Isend", 3020, 3030, remoteRank=2, requestHandle=52, **message)
    export.mpi("MPI_Waitany", 3040, 3050, requestHandle=51)
    for request in (51, 52):
        export.mpi("MPI_Waitall", 3100, 3200, requestHandle=request)
    export.mpi("MPI_Irecv", 3300, 3310, remoteRank=2, requestHandle=51, **message)
    export.mpi("MPI_Wait", 3400, 3500, requestHandle=51)
    export.mpi("MPI_Send_init", 3600, 3610, remoteRank=0, requestHandle=60, **message)
    for start in (3700, 3800):
        export.mpi("MPI_Start", start, start + 10, requestHandle=60)
        export.mpi("MPI_Wait", start + 20, start + 30, requestHandle=60)
    trace = written(export, tmp_path)
    kind = pl.col("collective_kind").cast(pl.String)
    collectives = trace.collectives.select(pl.col("start_ns") + 100, kind, "peer", "sequence", "ended").rows()
    assert collectives == [
        (3020, "send", 2, 0, False),
        (3100, "receive", 0, 0, False),
        (3100, "send", 2, 0, True),
        (3400, "receive", 2, 0, False),
        (3700, "send", 0, 0, False),
        (3720, "send", 0, 0, True),
        (3800, "send", 0, 1, False),
        (3820, "send", 0, 1, True),
    ]


def test_a_handle_comes_back_for_another_communicator(tmp_path: Path) -> None:
    export = export_of()
    for time, root in ((2100, 0), (4000, 1)):
        export.communicator(1, ROWS, 2, timestamp=time, localRank=1, groupRoot=root, groupRootUid=4)
    for start in (2050, 3000, 4100):  # the first before anything was noted of it
        export.mpi("MPI_Barrier", start, start + 10, commHandle=ROWS)
    messages = rows(written(export, tmp_path))
    assert [row[1] for row in messages] == ["MPI_COMM[2] 0.4", "MPI_COMM[2] 0.4", "MPI_COMM[2] 1.4"]
    assert [row[5] for row in messages] == [0, 1, 0]


def test_newer_exports_number_communicators_over_all_ranks(tmp_path: Path) -> None:
    export = export_of(generation="2026.2")
    export.communicator(1, ROWS, 2, localRank=1, commUid=77)
    export.mpi("MPI_Barrier", 3000, 3010, commHandle=ROWS)
    assert [row[1] for row in rows(written(export, tmp_path))] == ["MPI_COMM[2] 77"]


def test_unknown_handles_are_of_no_communicator(tmp_path: Path) -> None:
    export = export_of()
    export.communicator(1, ROWS, 2, parentHandle=WORLD, localRank=1, groupRoot=0, groupRootUid=1)
    export.communicator(1, 9, 2, parentHandle=ROWS, localRank=1)  # that nothing identifies
    for number, handle in enumerate((WORLD, ROWS, 99, 9, None)):
        export.mpi("MPI_Barrier", 3000 + 20 * number, 3010 + 20 * number, commHandle=handle)
    trace = written(export, tmp_path)
    kinds = [row[:2] for row in rows(trace)]
    assert kinds == [("barrier", "MPI_COMM_WORLD"), ("barrier", "MPI_COMM[2] 0.1"), *[("barrier", None)] * 3]
    assert trace.collectives["communicator"].null_count() == 3
    assert omitted(trace)["unknown-communicators"] == 3


@pytest.mark.parametrize("missing", [COMMUNICATORS, RANKS, f"{COMMUNICATORS} {RANKS}"])
def test_without_tables_of_ranks_or_communicators(missing: str, tmp_path: Path) -> None:
    """Two handles that nothing describes could be anything."""
    export = export_of()
    export.communicator(1, ROWS, 2, localRank=1, groupRoot=0, groupRootUid=1)
    export.mpi("MPI_Barrier", 3000, 3010, commHandle=WORLD)
    export.mpi("MPI_Barrier", 3020, 3030, commHandle=ROWS)
    for table in missing.split():
        export.without(table, None)
    trace = written(export, tmp_path)
    assert [row[1] for row in rows(trace)] == [None, None]
    assert ("rank" in trace.host) == (RANKS not in missing)


@pytest.mark.parametrize("table", MPI_CALLS)
def test_any_table_and_any_column_may_be_missing(table: str, tmp_path: Path) -> None:
    for column in (None, *NsysExport().columns[table]):
        export = export_of()
        export.mpi("MPI_Isend", 3000, 3010, commHandle=WORLD, tag=1, remoteRank=0, size=8, requestHandle=5)
        export.mpi("MPI_Wait", 3020, 3030, requestHandle=5)
        export.mpi("MPI_Bcast", 3040, 3050, commHandle=WORLD, size=8)
        export.without(table, column)
        trace = written(export, tmp_path)
        assert trace.operations.height == 4
        if column == "globalTid":  # nothing is known to be of this process
            continue
        if column is None:
            assert len(ranges(trace)) == 3


def test_values_that_cannot_be(tmp_path: Path) -> None:
    export = export_of()
    export.rank(-1, process=72)
    export.rank(None, process=73)
    export.mpi("MPI_Bcast", 3000, 3010, commHandle=WORLD, size=None)
    export.mpi("MPI_Bcast", 3020, 3030, commHandle=WORLD, size=-5)
    export.mpi("MPI_Bcast", 3040, 3050, commHandle=WORLD, size="eight")
    export.mpi("MPI_Bcast", 3060, None, commHandle=WORLD, size=8)  # goes on when the recording ends
    export.mpi("MPI_Send", 3070, 3075, commHandle=WORLD, tag=1 << 40, remoteRank=1 << 40, size=8)
    export.communicator("one", "two", None)
    trace = written(export, tmp_path)
    expected = [*[("broadcast", "MPI_COMM_WORLD", None)] * 3, ("send", "MPI_COMM_WORLD", 8)]
    assert [row[:3] for row in rows(trace)] == expected
    assert rows(trace)[-1][3:5] == (None, None)
    assert omitted(trace)["open-ranges"] == 1
    assert trace.host["rank"] == "1"


def test_messages_to_nobody_and_from_anybody(tmp_path: Path) -> None:
    """At an edge a rank sends to MPI_PROC_NULL, which is negative, as is MPI_ANY_SOURCE, in each MPI another way."""
    export = export_of()
    export.mpi("MPI_Send", 3000, 3010, commHandle=WORLD, tag=1, remoteRank=-2, size=8)
    export.mpi("MPI_Recv", 3020, 3030, commHandle=WORLD, tag=1, remoteRank=-2, size=8)
    export.mpi("MPI_Recv", 3040, 3050, commHandle=WORLD, tag=1, remoteRank=-1, size=8)
    export.mpi("MPI_Recv", 3060, 3070, commHandle=WORLD, tag=1, remoteRank=0, size=8)
    export.mpi("MPI_Bcast", 3080, 3090, commHandle=WORLD, size=8)
    trace = written(export, tmp_path)
    # Which of two receives has the first message of rank 0 is not known: they have no number.
    expected = [("receive", None, None), ("receive", 0, None), ("broadcast", None, 0)]
    assert [(row[0], row[3], row[5]) for row in rows(trace)] == expected
    assert len(ranges(trace)) == 6


def test_sendrecv_has_two_rows(tmp_path: Path) -> None:
    export = export_of()
    for peer in (2, 0):
        export.mpi("MPI_Sendrecv", 3000, 3010, commHandle=WORLD, tag=1, remoteRank=peer, size=8)
    trace = written(export, tmp_path)
    assert [(row[0], row[3], row[5]) for row in rows(trace)] == [("send", 2, 0), ("receive", 0, 0)]
    assert ranges(trace) == ["MPI_Init", "MPI_Sendrecv"]


def test_a_recording_that_begins_later_does_not_number(tmp_path: Path) -> None:
    export = small_export()
    export.rank(0)
    export.mpi("MPI_Bcast", 3000, 3010, commHandle=WORLD, size=8)
    assert [row[5] for row in rows(written(export, tmp_path))] == [None]


def test_threads_of_a_rank_and_ranks_of_a_file(tmp_path: Path) -> None:
    """Request handles are a process's own."""
    export = export_of(0)
    export.rank(0, thread=6)
    export.rank(1, process=72)
    export.mpi("MPI_Init_thread", 1000, 2000, process=72)
    message: dict[str, Value] = {"commHandle": WORLD, "tag": 1, "size": 8, "requestHandle": 5}
    export.mpi("MPI_Isend", 3000, 3010, thread=6, **message, remoteRank=1)
    export.mpi("MPI_Irecv", 3000, 3010, process=72, **message, remoteRank=0)
    export.mpi("MPI_Wait", 3020, 3100, process=72, requestHandle=5)
    export.mpi("MPI_Wait", 3200, 3300, requestHandle=5)
    trace = read(export.write(tmp_path / "job.sqlite"))
    assert trace.host["ranks"] == "71=0 72=1"
    collectives = trace.collectives.select(
        "process", pl.col("collective_kind").cast(pl.String), "peer", "place", "ended"
    )
    expected = [(71, "send", 1, 0, False), (71, "send", 1, 0, True), (72, "receive", 0, 1, False)]
    assert sorted(collectives.rows()) == expected


def test_files_and_local_reductions_are_ranges_alone(tmp_path: Path) -> None:
    export = export_of()
    export.mpi("MPI_File_write_all", 3000, 3010, commHandle=WORLD, size=8)
    export.mpi("MPI_Reduce_local", 3020, 3030, commHandle=WORLD, size=8)
    trace = written(export, tmp_path)
    assert trace.collectives.is_empty()
    assert ranges(trace) == ["MPI_Init", "MPI_File_write_all", "MPI_Reduce_local"]


def older_export(domain: str = "MPI") -> NsysExport:
    """An export in which MPI's calls are ranges of NVTX."""
    export = small_export("2022")
    thread: dict[str, Value] = {"globalTid": global_pid() + 5, "domainId": 1}
    export.add("NVTX_EVENTS", start=50, eventType=75, text=domain, **thread)
    for number, name in enumerate(("MPI_Init", "MPI_Send", "MPI_Allreduce")):
        times: dict[str, Value] = {"start": 100 + 20 * number, "end": 110 + 20 * number}
        export.add("NVTX_EVENTS", **times, eventType=59, textId=export.text(name), **thread)
    return export


def test_older_exports_show_calls_that_match_nothing(tmp_path: Path) -> None:
    trace = read(older_export().write(tmp_path / "rank.sqlite"))
    assert ranges(trace) == ["MPI_Init", "MPI_Send", "MPI_Allreduce"]
    assert trace.collectives.is_empty()
    assert omitted(trace)["mpi-without-partners"] == 3


def test_ranges_of_further_domains_count_as_before(tmp_path: Path) -> None:
    trace = read(older_export("wrappers").write(tmp_path / "rank.sqlite"))
    assert trace.collectives["collective_kind"].to_list() == ["send", "all_reduce"]
    assert "mpi-without-partners" not in omitted(trace)


def named_range(export: NsysExport, name: str, start: int, end: int, process: int = 71) -> None:
    """A range that the program itself names."""
    tid = global_pid(process) + 5
    export.add("NVTX_EVENTS", start=start, end=end, eventType=59, text=name, globalTid=tid, domainId=0)


def test_ranges_named_like_mpi_calls_are_ignored_where_calls_were_recorded(tmp_path: Path) -> None:
    export = export_of()
    export.mpi("MPI_Allreduce", 3000, 3100, commHandle=WORLD, size=8)
    named_range(export, "MPI_Allreduce", 2900, 3200)
    named_range(export, "MPI_Barrier", 2900, 3200, process=72)  # nobody recorded this process's calls
    trace = written(export, tmp_path)
    calls = trace.collectives.sort("start_ns", "process").select("process", "communicator", "bytes").rows()
    assert sorted(calls, key=str) == [(71, "MPI_COMM_WORLD", 8), (72, None, None)]


def test_a_range_named_like_an_mpi_call_in_an_older_export(tmp_path: Path) -> None:
    export = older_export()
    named_range(export, "MPI_Allreduce", 3000, 3100)
    trace = written(export, tmp_path)
    assert trace.collectives.is_empty()
    assert omitted(trace)["mpi-without-partners"] == 3


def test_calls_without_a_thread_are_counted_as_left_out(tmp_path: Path) -> None:
    export = export_of()
    name = export.text("MPI_Barrier")
    export.add("MPI_COLLECTIVES_EVENTS", start=3000, end=3100, globalTid=None, textId=name, commHandle=WORLD)
    trace = written(export, tmp_path)
    assert trace.collectives.is_empty()
    assert omitted(trace)["mpi-without-process"] == 1


def test_asking_whether_mpi_began_does_not_begin_it(tmp_path: Path) -> None:
    export = small_export()
    export.rank(1)
    export.mpi("MPI_Initialized", 1000, 1010)
    export.mpi("MPI_Barrier", 3000, 3010, commHandle=WORLD)
    assert [row[5] for row in rows(written(export, tmp_path))] == [None]


def test_a_run_lasts_to_its_last_call_of_mpi(tmp_path: Path) -> None:
    export = export_of()
    before = read(export.write(tmp_path / "before.sqlite"))
    export.mpi("MPI_Gather", 50_000, 80_000, commHandle=WORLD, size=8)
    trace = written(export, tmp_path)
    begin = int(trace.operations["start_ns"].min())  # type: ignore[arg-type]
    assert before.makespan_seconds < 2e-6
    assert trace.makespan_seconds == pytest.approx((80_000 - trace.origin_ns - begin) * 1e-9, abs=1e-6)
    run = timeline(trace)
    assert run.recorded_ns == round(trace.makespan_seconds * 1e9)
    assert play(run).makespan_ns == run.recorded_ns
    changed = run.with_columns(operation_duration=run.columns["operation_duration"] * 0)
    assert run.recorded_ns - 1000 < play(changed).makespan_ns <= run.recorded_ns  # the gather keeps its time
