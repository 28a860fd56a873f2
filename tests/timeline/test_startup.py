"""What a process pays once stays, whatever a change does to the calls that pay it."""

from typing import Any

import pytest

from busfare.answers.report import summarise
from busfare.nodes import load_node
from busfare.timeline import play, timeline
from busfare.timeline.changes import Change, Setting, apply_all
from busfare.timeline.changes.durations import host_times
from busfare.timeline.changes.fewer_copies import remove
from busfare.timeline.changes.overlap import pin, without_waiting
from busfare.trace import Trace
from tests.traces import call, copy, kernel, made, run

Row = dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]


def copies(at_us: float, count: int, memory: str | None = None, direction: str = "h2d") -> list[Row]:
    """Blocking copies of 20 µs, whose calls take 30."""
    starts = [at_us + 40 * number for number in range(count)]
    moved = [copy(at + 8, at + 28, 128, direction, memory) for at in starts]
    return [made(row, at, at + 30, "hipMemcpy", "operation") for row, at in zip(moved, starts, strict=True)]


def begins_with(first: Row, *rows: Row) -> Trace:
    """A process that begins to use the GPU with `first`, up to 300 ms, and goes on as others do."""
    return run(first, *copies(300_100, 12), *rows)


FIRST_COPY = made(copy(299_950, 300_000, 128, memory=None), 100, 300_010, "hipMemcpy", "operation")


def microseconds(trace: Trace) -> list[float]:
    return [float(ns) / 1000 for ns in timeline(trace).columns["call_startup"]]


def test_a_first_copy_that_initialises_is_startup_but_for_its_transfer() -> None:
    first, *later = microseconds(begins_with(FIRST_COPY))
    # 299,850 µs before the copy begins, less the 50 that the copy takes.
    assert first == pytest.approx(299_800)
    assert set(later) == {0.0}


@pytest.mark.parametrize(
    "change", [remove("copy"), without_waiting(), pin()], ids=["removed", "async", "pinned"]
)
def test_no_change_touches_startup(change: Change) -> None:
    memory = "pageable" if change.kind == "pin" else "pinned"
    first = made(copy(299_950, 300_000, 128, memory=memory), 100, 300_010, "hipMemcpy", "operation")
    recorded = timeline(run(first, *copies(300_100, 12, memory)))
    setting = Setting(load_node("pcie:3x16"))
    applied = apply_all(recorded, [change], setting)
    assert applied.count == 13
    before, after = play(recorded).makespan_ns, play(applied.timeline).makespan_ns
    assert before - 800_000 <= after <= before  # of 13 calls of 30 µs and what is between them
    assert applied.touched is not None and applied.touched.length() < 500_000
    halved = apply_all(recorded, [host_times(0.5)], setting).timeline
    assert play(halved).makespan_ns >= 299_800_000


def test_the_report_says_how_much_of_the_run_is_startup() -> None:
    report = summarise(begins_with(FIRST_COPY))
    assert report.verdict.startup_seconds == pytest.approx(0.2998)
    assert report.critical_path is not None and report.critical_path[0].part == "start-up"
    assert all(finding.predicted_gain_seconds < 0.001 for finding in report.findings)


def test_the_unchanged_run_replays_as_recorded() -> None:
    recorded = timeline(begins_with(FIRST_COPY))
    played = play(recorded)
    assert played.makespan_ns == recorded.recorded_ns
    assert played.call_end[0] == 300_010_000 - recorded.origin_ns


def launches(name: str, at_us: float, count: int, first_us: float = 5) -> list[Row]:
    """Launches that take 5 µs, the first one `first_us`, each of a kernel that begins 3 µs behind its call."""
    took = [first_us] + [5.0] * (count - 1)
    starts = [at_us + sum(took[:number]) + 20 * number for number in range(count)]
    return [
        made(kernel(at + long + 3, at + long + 10, name), at, at + long)
        for at, long in zip(starts, took, strict=True)
    ]


def test_the_first_launch_of_a_kernel_loads_it() -> None:
    rows = [*launches("a", 0, 8, first_us=4_000), *launches("b", 10_000, 8, first_us=900)]
    started = microseconds(run(*rows))
    assert [round(us) for us in started if us] == [3_995, 895]
    assert started[0] and started[8]


def test_a_call_that_waits_for_the_gpu_starts_nothing_up() -> None:
    waits = made(copy(50_020, 50_040, 128, "d2h"), 40, 50_045, "cudaMemcpy", "operation")
    before = *launches("a", 0, 1), made(kernel(30, 50_010, "a"), 20, 25)
    assert set(microseconds(run(*before, waits, *copies(51_000, 10, direction="d2h")))) == {0.0}


@pytest.mark.parametrize(
    ("name", "before_us", "behind_us"),
    [
        ("cudaMalloc", 899.0, 0.0),
        ("cudaStreamCreate", 899.0, 899.0),
        ("cudaFuncSetAttribute", 899.0, 899.0),
        ("cudaMallocHost", 0.0, 0.0),
        ("cudaFree", 899.0, 0.0),
        ("cuLibraryLoadData", 900.0, 900.0),
        ("MPI_Barrier", 0.0, 0.0),
    ],
)
def test_what_is_called_once(name: str, before_us: float, behind_us: float) -> None:
    """Among calls of 5 µs: it starts something up before the first kernel, unless it may pin much; loading always does."""
    for at_us, expected_us in ((0, before_us), (12_000, behind_us)):
        once = call(at_us, at_us + 900, name, "device" if name == "cudaFree" else "none")
        started = sum(microseconds(run(once, *launches("a", 1_000, 10))))
        assert started == pytest.approx(expected_us, abs=10), at_us


@pytest.mark.parametrize("allocates", ["", "cudaMalloc", "cuMemCreate"])
def test_a_free_frees_nothing_before_the_first_allocation(allocates: str) -> None:
    rows = [call(0, 5, "cudaSetDevice"), *([call(10, 15, allocates)] if allocates else [])]
    started = sum(microseconds(run(*rows, call(20, 920, "cudaFree", "device"), *launches("a", 1_000, 10))))
    assert started == pytest.approx(0 if allocates else 895, abs=10)


def test_a_single_allocation_among_copies_is_startup_before_they_ran() -> None:
    for at_us, expected_us in ((0, 4_970), (90_000, 0)):
        alone = call(at_us, at_us + 5_000, "cudaMalloc")
        assert sum(microseconds(run(alone, *copies(6_000, 12)))) == pytest.approx(expected_us, abs=30)


def test_calls_that_wait_for_the_first_call_pay_for_it_too() -> None:
    """Two threads begin at once: what creates the context holds the other up."""
    second = call(150, 290_000, "cudaMalloc") | {"thread": 2}
    later = [call(300_000 + at, 300_005 + at, "cudaMalloc") for at in range(0, 200, 20)]
    started = microseconds(run(call(100, 290_000, "cudaMalloc"), second, *later, *launches("a", 301_000, 2)))
    assert started[:2] == pytest.approx([289_895, 289_845])


def to_symbols(*called: tuple[float, float]) -> list[Row]:
    """Copies to symbols of 2 µs at the end of their calls, each from and to so many µs."""
    rows = [(copy(end - 4, end - 2, 72, memory=None), start, end) for start, end in called]
    return [made(row, start, end, "cudaMemcpyToSymbol", "operation") for row, start, end in rows]


def test_copies_that_load_modules_before_the_first_kernel_are_startup() -> None:
    setup = to_symbols((0, 150_000), (150_100, 180_100), (180_200, 210_200))
    recorded = run(*setup, *launches("work", 210_300, 12), *copies(210_600, 12), *copies(220_000, 1))
    assert [
        us > 0.99 * took for us, took in zip(microseconds(recorded), (150_000, 30_000, 30_000), strict=False)
    ] == [True] * 3
    # Ordinary copies before the first kernel stay copies.
    ordinary = microseconds(run(*copies(0, 12), *launches("work", 1_000, 12), *copies(2_000, 12)))
    assert set(ordinary) == {0.0}


def test_a_new_context_behind_a_reset_starts_up_again() -> None:
    rows: list[Row] = []
    for at in (0, 300_000, 600_000):
        rows += [
            *to_symbols((at, at + 120_000)),
            *launches("work", at + 120_100, 12),
            *copies(at + 121_000, 12),
        ]
        rows.append(call(at + 130_000, at + 150_000, "cudaDeviceReset", "device"))
    rows.append(call(800_000, 800_005, "cudaGetDevice") | {"process": 2})
    started = [us for us in microseconds(run(*rows)) if us > 1_000]
    assert started == pytest.approx([120_000] * 3, rel=0.01)
    assert max(microseconds(run(*(row for row in rows if isinstance(row, tuple))))[26:]) == 0


def test_without_calls_nothing_is_startup() -> None:
    assert summarise(run(kernel(0, 10), kernel(20, 30))).verdict.startup_seconds in (0.0, None)
