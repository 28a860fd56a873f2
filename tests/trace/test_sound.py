"""Impossible rows are dropped or repaired, and said so."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from busfare.errors import InputError
from busfare.show.words import text
from busfare.trace import Trace, tables
from busfare.trace.model import name_process
from busfare.trace.omissions import Omissions, omission
from busfare.trace.sound import LARGEST, LATEST, make_sound
from busfare.trace.tables import CALLS, CALLS_RETURNED, EVENTS, MARKERS, OPERATIONS, conform
from tests.report.test_verdict import with_spans
from tests.traces import call, copy, kernel, made, omitted, run


def what(trace: Trace, id: str) -> str:
    return next(text(omission.what) for omission in trace.omissions if omission.id == id)


def returning(*results: int | None, name: str = "cudaLaunchKernel") -> pl.DataFrame:
    """Calls that returned these errors."""
    rows = [
        {
            "start_ns": 10 * n, "end_ns": 10 * n + 5, "name": name, "correlation": n, "waits_for": "stream",
            "result": result,
        }
        for n, result in enumerate(results)
    ]  # fmt: skip
    return conform(pl.DataFrame(rows), CALLS, CALLS_RETURNED)


def trace_of(
    operations: list[dict[str, object]], calls: list[dict[str, object]] | None = None,
    events: list[dict[str, object]] | None = None, markers: list[dict[str, object]] | None = None,
) -> Trace:  # fmt: skip
    def table(rows: list[dict[str, object]] | None, schema: tables.Schema) -> pl.DataFrame:
        return conform(pl.DataFrame(rows), schema) if rows else tables.empty(schema)

    trace = Trace(
        path=Path("trace"), format="nsys-sqlite", producer="", operations=table(operations, OPERATIONS),
        calls=table(calls, CALLS), events=table(events, EVENTS), markers=table(markers, MARKERS),
    )  # fmt: skip
    make_sound(trace)
    return trace


def operation(start: int | None, end: int | None, **more: object) -> dict[str, object]:
    return {"kind": "kernel", "start_ns": start, "end_ns": end} | more


def test_times_count_from_the_first_call_or_operation() -> None:
    epoch = 1_722_359_465_000_000_000
    trace = trace_of(
        [operation(epoch + 100, epoch + 200)],
        [{"start_ns": epoch + 50, "end_ns": epoch + 60}],
        [{"kind": "record", "start_ns": epoch + 70, "end_ns": None}],
        [{"start_ns": epoch + 40, "end_ns": epoch + 300}],
    )
    frames = (trace.operations, trace.calls, trace.events, trace.markers)
    expected = [(50, 150), (0, 10), (20, None), (-10, 250)]
    assert [frame.select("start_ns", "end_ns").row(0) for frame in frames] == expected


def test_markers_alone_count_from_the_first_of_them() -> None:
    trace = trace_of([], markers=[{"start_ns": 500, "end_ns": 700}, {"start_ns": 400, "end_ns": None}])
    assert trace.markers.select("start_ns", "end_ns").rows() == [(0, None), (100, 300)]


FAR = [(LATEST + 1, LATEST + 2), (5, LATEST + 1), (-(1 << 62), 5), ((1 << 63) - 1, 5)]


@pytest.mark.parametrize(("start", "end"), [(None, 5), (5, None), (None, None), *FAR])
def test_rows_without_usable_times_are_left_out_and_counted(start: int | None, end: int | None) -> None:
    bad = {"start_ns": start, "end_ns": end}
    trace = trace_of([operation(10, 20), operation(start, end)], [{"start_ns": 10, "end_ns": 12}, bad])
    assert trace.operations.select("start_ns", "end_ns").rows() == [(0, 10)]
    assert trace.calls.select("start_ns", "end_ns").rows() == [(0, 2)]
    assert [(o.id, o.count) for o in trace.omissions][:2] == [("untimed", 1), ("untimed", 1)]


def test_the_widest_times_do_not_overflow() -> None:
    trace = trace_of([operation(-(1 << 60), 0), operation(LATEST - 9, LATEST), operation(LATEST - 5, LATEST)])
    assert trace.operations.select("start_ns", "end_ns").rows() == [(0, 9), (4, 9)]


def test_clocks_that_run_backwards_take_no_time() -> None:
    trace = trace_of([operation(0, 10), operation(30, 20)], [{"start_ns": 9, "end_ns": 3}])
    assert trace.operations.select("start_ns", "end_ns").rows() == [(0, 10), (30, 30)]
    assert trace.calls.select("start_ns", "end_ns").rows() == [(9, 9)]
    assert [o.count for o in trace.omissions if o.id == "clock-backwards"] == [1, 1]


@pytest.mark.parametrize("size", [-1, -(1 << 63), LARGEST + 1, (1 << 63) - 1])
def test_impossible_sizes_are_unknown_and_counted_once(size: int) -> None:
    copies = [operation(0, 10, bytes=64) | {"kind": "copy"}, operation(20, 30, bytes=size) | {"kind": "copy"}]
    trace = trace_of(copies)
    assert trace.operations["bytes"].to_list() == [64, None]
    assert omitted(trace)["impossible-sizes"] == 1
    assert "unknown-sizes" not in omitted(trace)


def test_unknown_sizes_are_counted_of_copies_and_migrations_only() -> None:
    kinds = ("copy", "migration", "set", "kernel")
    assert omitted(trace_of([operation(0, 1, kind=kind) for kind in kinds]))["unknown-sizes"] == 2


def test_sums_of_the_largest_sizes_stay_positive() -> None:
    trace = trace_of([operation(0, 10**9, bytes=LARGEST) | {"kind": "copy"}] * 1000)
    assert trace.operations["bytes"].sum() == 1000 * LARGEST


def test_rows_come_out_by_start_and_in_the_files_order_where_equal() -> None:
    trace = trace_of([operation(5, 9, stream=1), operation(0, 2, stream=2), operation(5, 6, stream=3)])
    assert trace.operations["stream"].to_list() == [2, 1, 3]


def test_markers_that_end_before_they_start_are_left_out() -> None:
    trace = trace_of([operation(0, 9)], markers=[{"start_ns": 5, "end_ns": end} for end in (3, None)])
    assert trace.markers.height == 1
    assert omitted(trace)["untimed"] == 1


def test_an_event_that_ends_before_it_starts_has_no_end() -> None:
    trace = trace_of([operation(0, 9)], events=[{"kind": "wait", "start_ns": 5, "end_ns": 3}])
    assert trace.events.select("start_ns", "end_ns").rows() == [(5, None)]


def test_events_without_times_are_counted() -> None:
    events: list[dict[str, object]] = [{"kind": "record"}, {"kind": "wait", "start_ns": 1, "end_ns": 2}]
    trace = trace_of([operation(0, 9)], events=events)
    assert trace.events["kind"].to_list() == ["wait"]
    assert omitted(trace)["records-without-call"] == 1


@pytest.mark.parametrize(
    ("memory", "direction", "before", "after"),
    [
        ("pageable", "d2h", "none", "operation"),
        ("pageable", "d2h", "stream", "stream"),
        ("pinned", "d2h", "none", "none"),
        (None, "d2h", "none", "none"),
        ("device", "h2d", "none", "none"),
    ],
)
def test_copies_to_pageable_memory_block(memory: str | None, direction: str, before: str, after: str) -> None:
    what = {"direction": direction, "destination_memory": memory, "process": 1, "correlation": 7}
    call = {"start_ns": 0, "end_ns": 30, "process": 1, "correlation": 7, "waits_for": before}
    of_peer = call | {"process": 2, "waits_for": "none"}  # the same number of another process
    trace = trace_of([operation(10, 20, kind="copy", bytes=1, **what)], [call, of_peer])
    assert trace.calls["waits_for"].to_list() == [after, "none"]


def test_operations_without_a_call_are_counted_where_there_are_calls() -> None:
    call = {"start_ns": 0, "end_ns": 1, "process": 1, "correlation": 7}
    operations = [
        operation(2, 3, process=1, correlation=7),
        operation(4, 5, process=2, correlation=7),
        operation(6, 7, process=1) | {"kind": "migration"},
    ]
    assert omitted(trace_of(operations, [call])) == {"cut-window": 1, "unknown-sizes": 1}
    assert omitted(trace_of(operations)) == {"no-calls": 0, "unknown-sizes": 1}


def test_nothing_at_all() -> None:
    assert list(omitted(trace_of([]))) == ["no-gpu-records"]


def test_a_file_that_names_thousands_of_gpus_is_refused() -> None:
    def of_gpus(count: int) -> Trace:
        return trace_of([operation(n, n + 1, device=7 * n) for n in range(count)])

    assert of_gpus(1024).operations.height == 1024
    with pytest.raises(InputError, match="operations of 1,025 GPUs"):
        of_gpus(1025)


def test_copies_that_calls_made_and_the_profiler_left_out_are_named() -> None:
    calls = [{"start_ns": n, "end_ns": n + 1, "name": "hipMemcpy"} for n in range(3)]
    calls += [{"start_ns": 9, "end_ns": 10, "name": "hipLaunchKernel"}]
    assert omitted(trace_of([operation(5, 6)], calls)) == {"copies-not-recorded": 3}
    copied = operation(5, 6, kind="copy", direction="h2d", bytes=8)
    assert omitted(trace_of([copied, operation(7, 8)], calls)).keys().isdisjoint({"copies-not-recorded"})
    assert omitted(trace_of([copied], calls))["kernels-not-recorded"] == 1


def test_launches_without_a_record_are_counted_where_more_than_a_hundredth_lack_it() -> None:
    def noted(recorded: int, *more: str, first: int = 0) -> dict[str, int]:
        names = ["cudaLaunchKernel"] * 100 + [*more]
        calls = [{"start_ns": n, "end_ns": n + 1, "name": of, "correlation": n} for n, of in enumerate(names)]
        return omitted(trace_of([operation(n, n + 1, correlation=first + n) for n in range(recorded)], calls))

    assert noted(70)["launches-not-recorded"] == 30
    assert noted(98)["launches-not-recorded"] == 2
    assert "launches-not-recorded" not in noted(99)
    assert "launches-not-recorded" not in noted(70, "cudaStreamBeginCapture"), "captured ones run nothing"
    assert "launches-not-recorded" not in noted(100, first=500), "kernels that name calls by other numbers"


def with_calls(calls: pl.DataFrame, *operations: dict[str, object]) -> Trace:
    table = conform(pl.DataFrame(operations), OPERATIONS) if operations else tables.empty(OPERATIONS)
    trace = Trace(Path("trace"), "nsys-sqlite", "", table, calls=calls)
    make_sound(trace)
    return trace


def test_launches_that_failed_are_no_launches_that_were_not_recorded() -> None:
    copied = operation(5, 6, kind="copy", direction="h2d", bytes=8)
    trace = with_calls(returning(222, 222, 222), copied)
    assert {"failed-calls": 3, "launches-failed": 3}.items() <= omitted(trace).items()
    assert "kernels-not-recorded" not in omitted(trace)
    assert what(trace, "launches-failed").startswith("launches failed: cudaErrorUnsupportedPtxVersion (222)")
    # What failed waits for nothing: no advice is about it.
    assert trace.calls["waits_for"].to_list() == ["none"] * 3


def test_a_failed_program_says_how_many_calls_failed_and_which_first() -> None:
    trace = with_calls(returning(0, 700, 700, name="cudaStreamSynchronize"))
    assert omitted(trace) == {"failed-calls": 2, "no-gpu-records": 0}
    assert "first cudaStreamSynchronize with cudaErrorIllegalAddress (700)" in what(trace, "failed-calls")
    assert "record with" not in what(trace, "no-gpu-records")
    assert trace.calls["waits_for"].to_list() == ["stream", "none", "none"]
    assert "with CUDA's error 12345" in what(with_calls(returning(12345)), "failed-calls")


@pytest.mark.parametrize(("result", "name"), [
    (600, "cudaEventQuery"), (700, "cudaGetLastError"), (704, "hipDeviceEnablePeerAccess"), (98, "cudaFuncGetAttributes"),
])  # fmt: skip
def test_asking_for_work_or_for_the_last_error_is_no_failure(result: int, name: str) -> None:
    trace = with_calls(returning(result, 0, None, name=name), operation(5, 6))
    assert "failed-calls" not in omitted(trace)
    assert "result" not in trace.calls.columns


def test_calls_without_any_gpu_record_say_just_that_with_likely_causes() -> None:
    trace = with_calls(returning(0, 0))
    assert omitted(trace) == {"no-gpu-records": 2}
    assert "Likely causes: a driver newer than the profiler" in what(trace, "no-gpu-records")
    assert "--trace" not in what(trace, "no-gpu-records")


def test_launches_whose_records_were_skipped_are_not_blamed_on_the_profiler() -> None:
    trace = run(made(kernel(10, ENDLESS_US), 0, 5))
    make_sound(trace)
    assert omitted(trace) == {"far-away": 1, "kernels-untimed": 1, "no-gpu-records": 1}
    assert what(trace, "no-gpu-records").startswith("GPU operations skipped for their timestamps")


def test_kernels_by_which_a_runtime_copies_are_named_and_their_calls_are_not_missed() -> None:
    calls = [{"start_ns": n, "end_ns": n + 1, "name": "hipMemcpyDtoDAsync", "correlation": n} for n in (1, 2)]
    copying = operation(5, 6, name="__amd_rocclr_copyBuffer.kd", correlation=1)
    expected = {"copying-kernels": 1, "copies-not-recorded": 1, "cut-window": 1}
    assert omitted(trace_of([copying, operation(7, 8, name="gemm")], calls)) == expected


@pytest.mark.parametrize(
    ("of_calls", "expected"), [([71, 71], 71), ([71, None], 71), ([71, 72], None), ([None, None], None)]
)
def test_the_process_of_the_calls(of_calls: list[int | None], expected: int | None) -> None:
    trace = Trace(Path("x"), "nvprof", "", conform(pl.DataFrame({"kind": ["kernel"]}), OPERATIONS))
    trace.calls = conform(pl.DataFrame({"process": of_calls}, schema={"process": pl.Int32}), CALLS)
    name_process(trace)
    assert trace.operations["process"].to_list() == [expected]
    assert trace.operations.schema["process"] == pl.Int32()


def test_the_same_omission_noted_again_adds_to_its_count() -> None:
    omissions = Omissions()
    omissions.add("untimed", 2, what="calls")
    omissions.add("truncated")
    omissions.count("untimed", 3, what="calls")
    omissions.count("untimed", 0, what="markers")
    omissions.add("untimed/recorded", 1)
    expected = [omission("untimed", 5, what="calls"), omission("truncated"), omission("untimed/recorded", 1)]
    assert omissions.list() == expected
    assert [(noted.id, text(noted.what)) for noted in omissions.list()] == [
        ("untimed", "calls without usable timestamps: skipped"),
        ("truncated", "the file is truncated or damaged: data beyond that point is missing"),
        ("untimed", "operations without timestamps from the GPU: counted, but without times"),
    ]


FAR_NS = 31 * 86_400 * 10**9


@pytest.mark.parametrize(
    ("start", "end"), [(FAR_NS, FAR_NS + 5), (-FAR_NS, 5), (4, FAR_NS), (1_700_000_000 * 10**9, None)]
)
def test_a_kernel_that_is_a_month_away_makes_no_run_of_a_month(start: int, end: int | None) -> None:
    rows = [operation(10 * n, 10 * n + 5) for n in range(4)]
    far = operation(start, start + 7 if end is None else end)
    trace = trace_of([*rows, far], [{"start_ns": 0, "end_ns": 40, "name": "cuInit"}])
    assert trace.makespan_seconds == pytest.approx(40e-6, abs=40e-6)
    assert omitted(trace)["far-away"] == 1 and trace.operations.height == 4


@pytest.mark.parametrize(("begins", "kept"), [(0, 5), (10**12, 4)])
def test_a_time_below_zero_is_skipped_where_the_clock_began_long_before(begins: int, kept: int) -> None:
    rows = [operation(begins + 10 * n, begins + 10 * n + 5) for n in range(4)]
    trace = trace_of([operation(-8, -2), *rows])
    assert trace.operations.height == kept
    assert omitted(trace).get("untimed", 0) == 5 - kept


def test_a_kernel_that_is_listed_twice_counts_once() -> None:
    launched = [operation(10 * n, 10 * n + 5) | {"correlation": n} for n in range(4)]
    trace = trace_of([*launched, launched[2], launched[3] | {"stream": 9}])
    assert trace.operations.height == 5
    assert omitted(trace)["listed-twice"] == 1 and "kernels-untimed" not in omitted(trace)


def test_a_run_of_weeks_stays_whole() -> None:
    trace = trace_of([operation(0, 5), operation(20 * 86_400 * 10**9, 21 * 86_400 * 10**9)])
    assert trace.operations.height == 2 and "far-away" not in omitted(trace)


def copied(
    start: int, lasting: int, bytes_: int, correlation: int | None = 1, direction: str = "d2d"
) -> dict[str, object]:
    """A copy on stream 7, in ns."""
    columns = {
        "kind": "copy", "direction": direction, "bytes": bytes_, "correlation": correlation, "stream": 7,
    }  # fmt: skip
    return operation(start, start + lasting, **columns)


ENDLESS_US = 1e12


@pytest.mark.parametrize(
    "row",
    [
        made(kernel(500, ENDLESS_US), 495, 499),
        made(copy(500, ENDLESS_US, 4096), 495, 499, "cudaMemcpyAsync"),
        call(500, ENDLESS_US, "cudaMalloc"),
        call(-ENDLESS_US, 500, "cudaMalloc"),
        made(kernel(-ENDLESS_US, 500), 495, 499),
        (0, ENDLESS_US, "range", "all"),
        (0, ENDLESS_US, "function", "main"),
    ],
    ids=["kernel", "copy", "call", "early call", "early kernel", "range", "function"],
)
def test_a_row_far_longer_than_all_else_is_left_out(row: Any) -> None:
    kernels = [made(kernel(at + 10, at + 90), at, at + 5) for at in range(0, 2000, 100)]
    is_span = row[-1] in ("all", "main") if isinstance(row, tuple) else False
    trace = with_spans(run(*kernels), row) if is_span else run(*kernels, row)
    make_sound(trace)
    assert omitted(trace)["far-away"] == 1
    assert trace.makespan_seconds == 1.99e-3 and trace.markers.is_empty() and trace.activity.is_empty()


WAITED_FOR = (made(kernel(10, 1e10), 0, 5), call(6, 1e10 + 5, "cudaDeviceSynchronize", "device"))


@pytest.mark.parametrize("rows", [WAITED_FOR, (kernel(0, 1e10),)])
def test_a_kernel_of_hours_stays_if_a_call_waits_for_it_or_it_is_all(rows: Any) -> None:
    trace = run(*rows)
    make_sound(trace)
    assert "far-away" not in omitted(trace) and trace.makespan_seconds == pytest.approx(1e4)


def test_a_copy_that_a_graph_lists_a_second_time_is_left_out() -> None:
    size = 1 << 29  # read and written: 7.2 TB/s, and 230 TB/s the second time
    copies = copied(0, 149_000, size), copied(150_000, 4600, size), copied(200_000, 300_000, size, 2)
    trace = trace_of([*copies])
    assert trace.operations["bytes"].to_list() == [size, size]
    assert (trace.operations["end_ns"] - trace.operations["start_ns"]).to_list() == [149_000, 300_000]
    assert omitted(trace)["listed-twice"] == 1 and "impossible-rates" not in omitted(trace)


def node_of(row: dict[str, object], node: int | None, **more: object) -> dict[str, object]:
    return row | {"graph_node": node} | more


SIZE = 100 << 20


@pytest.mark.parametrize(
    "rows",
    [
        # Half of what the memory carries: by the node, wherever and in which order the rows stand.
        [node_of(copied(0, 90_000, SIZE), 5), node_of(copied(95_000, 30_000, SIZE), 5)],
        [node_of(copied(0, 30_000, SIZE), 5), node_of(copied(31_000, 90_000, SIZE), 5, stream=8)],
        # Half of the link: two at once in one stream, of a graph without numbers, of a call, and of no call.
        [node_of(copied(0, 90_000, SIZE, 1, "h2d"), -1), node_of(copied(10_000, 70_000, SIZE, 1, "h2d"), -2)],
        [copied(0, 90_000, SIZE, 1, "h2d"), copied(0, 90_000, SIZE, 1, "h2d")],
        [copied(0, 90_000, SIZE, None, "h2d"), copied(0, 90_000, SIZE, None, "h2d")],
    ],
)
def test_a_copy_listed_twice_at_a_possible_rate_is_left_out(rows: list[dict[str, object]]) -> None:
    kernels = [operation(200_000, 300_000, correlation=1, graph_node=9, stream=7)]
    trace = trace_of([*rows, *kernels])
    kept = trace.operations.filter(kind="copy")
    assert (kept["end_ns"] - kept["start_ns"]).to_list() == [90_000]
    assert omitted(trace)["listed-twice"] == 1


@pytest.mark.parametrize(
    "rows",
    [
        # Two nodes of a graph; two launches of it; pieces of a copy; two streams; time stamps that are rounded.
        [node_of(copied(0, 90_000, SIZE), 5), node_of(copied(10_000, 90_000, SIZE), 6)],
        [node_of(copied(0, 90_000, SIZE), 5), node_of(copied(95_000, 90_000, SIZE, 2), 5)],
        [copied(0, 90_000, SIZE), copied(90_000, 90_000, SIZE)],
        [copied(0, 90_000, SIZE), copied(0, 90_000, SIZE) | {"stream": 8}],
        [copied(0, 90_000, SIZE), copied(89_000, 90_000, SIZE)],
        # A loop runs the kernels of its nodes again, too.
        [
            *[node_of(copied(at, 90_000, SIZE), 5) for at in (0, 200_000)],
            *[operation(at, at + 4_000, correlation=1, graph_node=6) for at in (95_000, 295_000)],
        ],
    ],
)
def test_copies_that_are_alike_stay_where_they_can_be_two(rows: list[dict[str, object]]) -> None:
    trace = trace_of(rows)
    assert trace.operations.height == len(rows) and "listed-twice" not in omitted(trace)


def test_a_copy_that_is_faster_than_any_memory_has_no_size() -> None:
    copies = copied(0, 4600, 1 << 29), copied(5000, 30_000, 1 << 29, 2, "h2d"), copied(9000, 0, 64, 3)
    trace = trace_of([*copies])
    assert trace.operations["bytes"].to_list() == [None, 1 << 29, 64]
    assert omitted(trace)["impossible-rates"] == 1
    assert not {"listed-twice", "unknown-sizes"} & {*omitted(trace)}
