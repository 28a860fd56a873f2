"""The unit of work of a trace, and the parts of a trace that are read alone."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from busfare.errors import InputError
from busfare.trace import Trace, tables
from busfare.trace.units import operations_of, parts_of, shared_units, units_of
from busfare.trace.window import part_of
from tests.traces import call, copy, kernel, made, omitted, run, trace


def steps(count: int, period_us: float = 100.0, layers: int = 2, **more: Any) -> Trace:
    """A program of steps: a copy, and kernels of so many layers."""
    rows = []
    for step in range(count):
        at = step * period_us
        rows.append(made(copy(at + 5, at + 10, 4096), at, at + 1, "cudaMemcpyAsync"))
        for layer in range(layers):
            begin = at + 20 + 20 * layer
            rows.append(made(kernel(begin, begin + 10, "first"), begin - 10, begin - 9))
            rows.append(made(kernel(begin + 10, begin + 15, "second"), begin - 8, begin - 7))
        rows.append(made(kernel(at + 80, at + 90, "update"), at + 75, at + 76))
    return run(*rows, **more)


def named(whole: Trace, *spans: tuple[float, float, str]) -> Trace:
    """`whole` with these ranges."""
    rows = [
        {"start_ns": round(a * 1e3), "end_ns": round(b * 1e3), "process": 1, "thread": 1, "name": name}
        for a, b, name in spans
    ]
    return replace(whole, markers=tables.conform(pl.DataFrame(rows), tables.MARKERS))


def test_the_unit_is_the_whole_step_not_the_layer_within_it() -> None:
    (unit,) = units_of(steps(10))
    assert unit.name == "update" and len(unit.starts) == 10 and set(unit.periods) == {100_000}
    parts = parts_of(steps(10), unit)
    assert {name: set(part) for name, part in parts.items()} == {
        "kernels": {40_000}, "transfers": {5_000}, "GPU idle": {55_000},
    }  # fmt: skip


def test_a_unit_with_more_operations_than_most_is_no_measure() -> None:
    rows = [kernel(100 * n, 100 * n + 10, "step") for n in range(12)]
    tuning = [kernel(500 + 10 * n, 505 + 10 * n, f"tune{n}") for n in range(2, 8)]
    (unit,) = units_of(trace(*rows, *tuning))
    assert (len(unit.starts), unit.regular.sum()) == (12, 10)


def test_steps_of_a_profiler_come_before_ranges_and_these_before_operations() -> None:
    whole = steps(10)
    ranges = [(100.0 * n, 100.0 * n + 95, f"batch {n}") for n in range(10)]
    assert [unit.name for unit in units_of(named(whole, *ranges))] == ["batch"]
    profiled = [(100.0 * n, 100.0 * n + 90, f"ProfilerStep#{n + 7}") for n in range(10)]
    assert [unit.name for unit in units_of(named(whole, *ranges, *profiled))] == ["ProfilerStep"]


def test_ranges_of_operators_and_short_ranges_are_no_units() -> None:
    operators = [(100.0 * n, 100.0 * n + 95, f"aten::to, op_id = {n}") for n in range(10)]
    load = [(100.0 * n + 95, 100.0 * n + 99, "load") for n in range(10)]
    assert [unit.name for unit in units_of(named(steps(10), *operators, *load))] == ["update"]


def test_a_few_steps_are_the_unit_though_too_few_to_compare() -> None:
    few = [(400.0 * n, 400.0 * n + 400, f"ProfilerStep#{n}") for n in range(3)]
    whole = named(steps(12), *few)
    assert [unit.name for unit in units_of(whole)] == ["ProfilerStep"]
    assert [unit.name for unit, _ in shared_units(whole, whole)] == ["update"]


def test_every_gpu_has_its_unit() -> None:
    starts = [(100 * n + 40 * gpu, gpu) for n in range(8) for gpu in (0, 1)]
    rows = [kernel(start, start + 20, "step", device=gpu) for start, gpu in starts]
    assert [(unit.device, len(unit.starts)) for unit in units_of(trace(*rows))] == [(0, 8), (1, 8)]


def test_nothing_repeats_in_a_trace_of_unlike_operations() -> None:
    assert units_of(trace(*(kernel(10 * n, 10 * n + 5, f"k{n}") for n in range(9)))) == []
    assert units_of(trace()) == []


def test_two_traces_share_the_unit_that_they_have_in_common() -> None:
    before, after = steps(10), steps(8, period_us=120)
    renamed = pl.col("name").cast(pl.String).replace("update", "fused").cast(pl.Categorical)
    after = replace(after, operations=after.operations.with_columns(renamed))
    ((old, new),) = shared_units(before, after)
    assert old.name == new.name == "copy h2d 4096"
    assert (set(old.periods), set(new.periods)) == ({100_000}, {120_000})


def test_consecutive_windows_hold_everything_once() -> None:
    whole = steps(10)
    parts = [part_of(whole, (1e-4 * n, 1e-4 * (n + 2.5))) for n in (0, 2.5, 5, 7.5)]
    for table in ("operations", "calls"):
        assert sum(getattr(part, table).height for part in parts) == getattr(whole, table).height
        assert all(getattr(part, table)["start_ns"].min() >= 0 for part in parts)
    assert [part.origin_ns for part in parts] == [0, 250_000, 500_000, 750_000]
    left = 2 * whole.operations.height - parts[0].operations.height - parts[0].calls.height
    assert omitted(parts[0])["part"] == left


def test_what_straddles_the_edge_of_a_window_belongs_to_where_it_begins() -> None:
    whole = trace(kernel(0, 30, "long"), kernel(40, 50, "next"), calls=[call(0, 1, "cudaLaunchKernel")])
    first, second = part_of(whole, (0, 20e-6)), part_of(whole, (20e-6, 1))
    assert first.operations["end_ns"].to_list() == [30_000]
    assert second.operations["name"].to_list() == ["next"] and second.makespan_seconds == pytest.approx(10e-6)


def test_a_range_has_what_its_calls_launch_whenever_that_runs() -> None:
    rows = [made(kernel(100 + 10 * n, 105 + 10 * n, f"k{n}"), n, n + 0.5) for n in range(6)]
    whole = named(run(*rows), (0, 2, "a"), (2, 4, "b"), (4, 6, "a"))
    assert part_of(whole, range="a").operations["name"].to_list() == ["k0", "k1", "k4", "k5"]
    assert part_of(whole, range="a", iteration=2).operations["name"].to_list() == ["k4", "k5"]
    assert part_of(whole, range="a").markers["name"].to_list() == ["a", "a"]


def test_ranges_with_numbers_are_named_without_them() -> None:
    spans = [(100.0 * n, 100.0 * n + 95, f"step_{n}") for n in range(10)]
    assert part_of(named(steps(10), *spans), range="step", iteration=3).calls.height == 6
    assert part_of(named(steps(10), *spans), range="step_4").calls.height == 6


def test_an_iteration_is_a_unit_with_the_calls_that_launch_it() -> None:
    part = part_of(steps(10), iteration=3)
    assert part.operations.height == part.calls.height == 6
    assert part.operations["name"].drop_nulls().to_list()[0] == "update"
    assert "cut-window" not in omitted(part)
    assert part_of(steps(10), iteration=10).operations["name"].to_list() == ["update"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"window": (5, 6)}, r"`window` 5s\.\.6s: nothing begins there; the recording spans 0s\.\.\S+s$"),
        ({"window": (5, 1e9)}, r"`window` 5s\.\.: nothing begins there"),
        ({"window": (5, 2)}, r"`window` 5s\.\.2s: ends before it begins; the recording spans 0s\.\."),
        ({"window": (1, 1)}, r"`window` 1s\.\.1s: is empty; the recording spans 0s\.\."),
        ({"window": (-1, 1)}, r"`window` -1s\.\.1s: begins before the recording; the recording spans 0s\.\."),
        ({"range": "none"}, r"no range is called 'none' \(`range`\); it has 'a', …"),
        ({"range": "a", "iteration": 2}, "the trace has 1 ranges called 'a'; give 1 to 1"),
        ({"iteration": 11}, "the trace has 10 units of work; give 1 to 10"),
    ],
)
def test_a_part_that_is_not_there_is_an_error_in_a_line(part: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        part_of(named(steps(10), (0, 50, "a")), **part)


def test_no_unit_is_counted_where_nothing_repeats() -> None:
    with pytest.raises(InputError, match="nothing repeats; give `range` NAME or `window`"):
        part_of(trace(kernel(0, 1)), iteration=1)


def test_long_traces_are_followed_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("busfare.trace.units.LOOKED_AT", 40)
    (unit,) = units_of(steps(50))
    assert (unit.name, len(unit.starts), unit.regular.all()) == ("update", 50, True)


@pytest.mark.parametrize("steps", [5, 12])
def test_a_unit_is_the_step_that_accumulates_gradients_where_it_repeats(steps: int) -> None:
    """Four passes of thirty kernels, then a single kernel of the optimiser; five steps are too few to be judged."""
    names = [*[f"layer{number}" for number in range(30)] * 4, "adam"] * steps
    starts = [(10 * n, name) for n, name in enumerate(names)]
    (units,) = units_of(run(*(made(kernel(at + 2, at + 10, name), at, at + 1) for at, name in starts)))
    assert (units.name, len(units.starts)) == (("adam", 12) if steps == 12 else (units.name, 20))


#: A step of a loop that waits for nothing: kernels, of which GPUs take longer than the host takes to launch them.
LAYERS = 4


def ahead(count: int, host_us: float, gpu_us: float, prefetch: bool = False) -> Trace:
    """Steps of the profiler, in which the host launches a copy and LAYERS kernels in `host_us`, which take `gpu_us`. Copies
    wait for the kernels before, or `prefetch` in a stream of their own.
    """
    rows, spans, done = [], [], 0.0
    for step in range(count):
        at = step * host_us
        begin = at + 2 if prefetch else max(at + 2, done)
        done = max(at + 2, done) + gpu_us * (not prefetch) / (LAYERS + 1)
        moved = copy(begin, begin + gpu_us / (LAYERS + 1), 4096, stream=9 if prefetch else 7)
        rows.append(made(moved, at, at + 1, "cudaMemcpyAsync"))
        for layer in range(LAYERS):
            call_at = at + (layer + 1) * host_us / (LAYERS + 1)
            begin = max(call_at + 2, done)
            done = begin + gpu_us / (LAYERS + 1)
            rows.append(made(kernel(begin, done, f"layer{layer}", stream=7), call_at, call_at + 1))
        spans.append((at, at + host_us, f"ProfilerStep#{step}"))
    return named(run(*rows), *spans)


@pytest.mark.parametrize("host_us", [10.0, 60.0, 95.0])
@pytest.mark.parametrize("prefetch", [False, True])
def test_a_step_takes_what_the_gpu_takes_where_the_host_only_launches(host_us: float, prefetch: bool) -> None:
    whole = ahead(20, host_us, 125.0 if prefetch else 100.0, prefetch)
    (unit,) = units_of(whole)
    assert (unit.name, len(unit.starts), operations_of(whole, unit)) == ("ProfilerStep", 20, LAYERS + 1)
    assert unit.periods[1:] == pytest.approx(100_000)
    kernels = parts_of(whole, unit)["kernels"]
    assert kernels == pytest.approx(100_000 if prefetch else 80_000)


def test_a_step_takes_what_the_host_takes_where_the_gpu_waits_for_it() -> None:
    whole = ahead(20, 150.0, 100.0)
    (unit,) = units_of(whole)
    assert (unit.name, set(unit.periods)) == ("ProfilerStep", {150_000})


@pytest.mark.parametrize(
    ("part", "prefetch"),
    [
        ({"range": "ProfilerStep#11"}, False),
        *(
            (part, prefetch)
            for part in ({"iteration": 12}, {"window": (1.1e-3, 1.2e-3)})
            for prefetch in (False, True)
        ),
    ],
)
def test_a_part_lasts_as_long_as_its_gpu_work_where_the_host_ran_ahead(
    part: dict[str, Any], prefetch: bool
) -> None:
    """The host calls a step about half a millisecond before it runs, and takes 60 of its 100 µs."""
    whole = ahead(20, 60.0, 125.0 if prefetch else 100.0, prefetch)
    cut = part_of(whole, **part)
    assert cut.makespan_seconds == pytest.approx(100e-6, rel=0.3 if "window" in part else 0.03)
    launching = cut.calls["start_ns"].to_numpy()
    assert launching.max() - launching.min() == pytest.approx(48_000, abs=15_000)
    joined = cut.operations.join(cut.calls, "correlation", suffix="_call")
    assert joined.height >= LAYERS and (joined["start_ns_call"] <= joined["start_ns"]).all()


def test_a_wait_within_a_part_returns_when_it_did() -> None:
    """The host launches two kernels while an earlier one runs, and waits for them; then it launches another."""
    rows = [made(kernel(2, 100, "first"), 0, 1), made(kernel(100, 150, "a"), 10, 11)]
    rows += [made(kernel(150, 200, "b"), 20, 21), made(kernel(225, 250, "c"), 220, 221)]
    whole = run(*rows, call(30, 205, "cudaDeviceSynchronize", "device"))
    part = part_of(named(whole, (5, 230, "part")), range="part")
    assert part.origin_ns == 100_000 and part.makespan_seconds == pytest.approx(150e-6)
    times = part.calls.sort("start_ns").select("start_ns", "end_ns").rows()
    assert times == [(0, 1_000), (10_000, 11_000), (20_000, 105_000), (120_000, 121_000)]
