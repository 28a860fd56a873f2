"""What changed between two recorded runs; and a report against an earlier one."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

import busfare
from busfare.answers.diff import diff, read_report
from busfare.answers.limits import check, parse_limit
from busfare.answers.report import summarise
from busfare.answers.units import batched
from busfare.errors import InputError, LimitPassed
from busfare.show.report import diff_document, report_document
from busfare.show.terminal import render
from busfare.show.words import text
from busfare.trace import Trace
from tests.conftest import run as run_busfare
from tests.published import published
from tests.traces import EXAMPLES, copy, kernel, made, run

IMAGES, PINNED = EXAMPLES / "train-images-h100.json.gz", EXAMPLES / "train-images-pinned-h100.json.gz"


def test_a_change_lists_its_parts_and_its_copies() -> None:
    """The same program recorded with pageable and with pinned batches."""
    result = busfare.diff(IMAGES, PINNED)
    run = result.makespan
    assert run.change_seconds == pytest.approx(0.139574091 - 0.165617239)
    # The parts of a critical path add up to the run, and so do their changes.
    assert sum(p.change_seconds for p in result.critical_path) == pytest.approx(run.change_seconds, abs=1e-6)
    assert result.critical_path[0].what == "copies" and "26 ms shorter (−15.7 %)" in text(result.why[0])
    changed = "Changed: 12 copies (231 MB), from h2d pageable → device to h2d pinned → device."
    assert changed in map(text, result.why)
    kernels = {row.what: row for row in result.by_kernel}
    assert sum(row.before_count or 0 for row in kernels.values()) == 2310
    (waits,) = (row for row in result.by_call if row.what == "cudaStreamSynchronize")
    assert (waits.before_count, waits.after_count) == (18, 6)
    (finding,) = result.findings
    assert finding.id == "pageable-copies" and finding.after_gain_seconds is None
    assert "to h2d pinned" in repr(result)


def test_a_run_against_itself_has_not_changed() -> None:
    result = busfare.diff(IMAGES, IMAGES)
    rows = [*result.critical_path, *result.work, *result.by_path, *result.by_kernel, *result.by_call]
    assert rows and {row.change_seconds for row in rows} == {0.0}
    as_long, fair, unit, limit = map(text, result.why)
    assert as_long == "The run still takes 166 ms."
    assert fair == "Both traces have 6 units of work."
    assert "median: 27.2 ms → 27.2 ms (0.0 %), within the variation of a trace." in unit
    assert unit.endswith("These recordings cannot show changes of the median below 18 %.")
    by_figure = "Changes of the unit, with the range due to variation within the traces: mean 0.0 % (−"
    assert limit.startswith(by_figure)
    assert result.unit.statistics.keys() == {"mean", "median", "low"}  # too few for a 90th percentile
    assert all(-100 <= row.low < row.change == 0 < row.high for row in result.unit.statistics.values())
    assert (result.comparable, result.unit.real, result.unit.parts) == ("runs", False, [])
    shown = "".join(line for line, _ in render(diff_document(result), 200, details=True))
    assert "−" not in re.sub(r"\(.*?\)", "", shown, flags=re.S)


def test_copies_that_are_new_or_gone_are_listed() -> None:
    before, after = busfare.report(busfare.read(IMAGES)), busfare.report(busfare.read(PINNED))
    before.by_path = []
    assert "Added: 12 copies (231 MB), h2d pinned → device." in map(text, diff(before, after).why)
    assert "Removed: 12 copies (231 MB), h2d pinned → device." in map(text, diff(after, before).why)


def test_a_truncated_trace_is_named_before_what_differs(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(IMAGES.read_bytes()[:60_000])
    first, *_ = busfare.diff(IMAGES, cut).why
    assert first.startswith(f"{cut}: the compressed file is truncated. Differences may come")
    assert "cut.json.gz" not in busfare.diff(IMAGES, PINNED).why[0]


def test_a_report_shows_changes_since_an_earlier_report_and_limits_growth(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    busfare.report(busfare.read(IMAGES)).save(old)
    words = [str(PINNED), "--baseline", str(old), "--fail-if", "makespan > +5%", "--json"]
    done = run_busfare("report", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["baseline"]["makespan"]["before_seconds"] == pytest.approx(0.165617239)
    busfare.report(busfare.read(PINNED)).save(old)
    words[0] = str(IMAGES)
    done = run_busfare("report", *words[:-1])
    assert done.returncode == 1 and "makespan > +5% (it is 18.66%)" in done.stderr
    assert re.search(r"^Since\s", done.stdout, re.M) and PINNED.name in done.stdout


def test_growth_from_nothing_passes_every_limit() -> None:
    before, after = busfare.report(busfare.read(PINNED)), busfare.report(busfare.read(IMAGES))
    before.transfers.bytes = 0
    with pytest.raises(LimitPassed, match=r"bytes > \+10% .it is inf%"):
        check(after, [parse_limit("bytes > +10%")], before)
    before.transfers.bytes = after.transfers.bytes
    check(after, [parse_limit("bytes > +0%")], before)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": "busfare.plan/1"}', '{"schema": "busfare.report/1"}', "\xff"]
)
def test_what_is_no_report_is_refused_in_a_single_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "old.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"old\.json: not a report of one run"):
        read_report(tmp_path / "old.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_report(tmp_path / "none.json")


def iterations(
    count: int,
    period_us: float,
    kernel_us: float = 20,
    every_fourth: float = 1,
    often: int = 4,
    slow_from: int = 999,
) -> Trace:
    """A run of so many units of a copy and a kernel, none quite as long as the one before; every fourth, or as `often`,
    takes so many times as long as the others; from `slow_from` on all take twice as long.
    """
    at, rows = 0.0, []
    for number in range(count):
        rows.append(made(copy(at + 2, at + 10, 4096), at, at + 1, "cudaMemcpyAsync"))
        rows.append(made(kernel(at + 12, at + 12 + kernel_us), at + 2, at + 3))
        at += period_us * (1 + 0.01 * (number % 5)) * (every_fourth if number % often == often - 1 else 1)
        at += period_us * (number >= slow_from)
    return run(*rows)


def test_windows_with_different_amounts_of_work_are_compared_by_the_unit() -> None:
    """As long, with fewer units: each takes longer."""
    result = busfare.diff(iterations(40, 100), iterations(34, 100 * 40 / 34))
    unit = result.unit
    assert (result.comparable, unit.count_before, unit.count_after, unit.real) == ("units", 40, 34, True)
    assert unit.change_percent == pytest.approx(100 * (40 / 34 - 1), abs=0.1) and result.units == [unit]
    assert [(part.what, part.change_seconds > 0) for part in unit.parts] == [("GPU idle", True)]
    fair, change, statistics, idle = map(text, result.why)
    assert "; median +17.6 % (+1" in statistics
    assert fair.startswith("The traces contain different amounts of work (40 before and 34 after)")
    assert "mean: 102 µs → 120 µs (+17.6 %), more than the variation within a trace." in change
    assert idle == "Changes per unit that exceed the variation: GPU idle 17.9 µs longer."


def test_a_longer_kernel_shows_in_a_unit_that_is_as_long() -> None:
    unit = busfare.diff(iterations(40, 100), iterations(40, 100, kernel_us=22)).unit
    assert unit.real is False
    parts = {part.what: part.change_seconds for part in unit.parts}
    assert parts == pytest.approx({"kernels": 2e-6, "GPU idle": -2e-6})


def test_a_few_units_are_not_judged() -> None:
    result = busfare.diff(iterations(5, 100), iterations(5, 150))
    assert result.unit.real is None
    assert "With fewer than 6 units in a trace, this may be variation" in text(result.why[-1])


def test_gpus_with_many_and_with_few_units_are_judged_apart() -> None:
    """GPU 0 has too few units, GPU 1 enough, which got longer."""
    runs = []
    for period in (100, 120):
        few, many = iterations(5, 800), iterations(40, period)
        second = many.operations.with_columns(device=pl.lit(1, pl.Int32))
        together = pl.concat([few.operations, second]).sort("start_ns")
        runs.append(dataclasses.replace(many, operations=together, calls=many.calls.clear()))
    result = busfare.diff(*runs)
    assert [(unit.device, unit.real) for unit in result.units] == [(0, None), (1, True)]
    assert result.unit == result.units[1]


@pytest.mark.parametrize(
    ("noise", "longer"), [(0.0, 1.0), (0.02, 1.03), (0.02, 1.3), (0.2, 1.03), (0.2, 1.3)]
)
@pytest.mark.parametrize("count", [8, 30, 90])
def test_significance_is_stated_once_by_the_statistics(noise: float, longer: float, count: int) -> None:
    report, random = summarise(iterations(count, 100)), np.random.default_rng(count)
    reports = []
    for factor in (1.0, longer):
        batches = batched(factor * (1 + noise * random.standard_normal(count)).clip(0.1))
        reports.append(replace(report, units=[replace(report.units[0], batches=batches)]))
    result = diff(*reports)
    made, every = result.unit, result.unit.statistics
    assert made.figure is not None and made.real is any(row.real for row in every.values())
    assert made.change_percent == pytest.approx(every[made.figure].change)
    (line,) = (line for line in map(text, result.why) if line.startswith("Unit of work"))
    assert ("more than the variation" in line) is made.real is not ("within the variation" in line)
    if not made.real:
        (limit,) = re.findall(r"cannot show .* below ([\d.]+) %", line)
        assert float(limit) >= 0.9 * abs(made.change_percent)


def test_two_programs_are_not_compared() -> None:
    result = busfare.diff(IMAGES, EXAMPLES / "generate-text-h100.json.gz")
    assert result.comparable == "programs"
    assert text(result.why[0]).startswith("These may be two different programs")


def test_without_a_shared_unit_the_reason_is_given() -> None:
    result = busfare.diff(run(made(kernel(1, 2), 0, 1)), run(made(kernel(1, 3), 0, 1)))
    assert (result.comparable, result.unit.name, result.units) == ("unknown", None, [])
    assert text(result.unit.reason).startswith("no range and no sequence of operations repeats")
    assert "only if both did the same work" in text(result.why[-1])


def gate(before: Trace, after: Trace, limit: str) -> None:
    """Checks a limit as `report --baseline` does."""
    old, new = busfare.report(before), busfare.report(after)
    new.baseline = diff(old, new)
    check(new, [parse_limit(limit)], old)


def test_a_gate_on_the_makespan_of_different_amounts_of_work_is_refused() -> None:
    windows = iterations(40, 100), iterations(34, 100 * 40 / 34)
    for limit in ("makespan > +5%", "kernels > +5%", "bytes > +0%"):
        with pytest.raises(
            InputError, match=r"holds 40 units of work and this trace 34; use 'iteration > \+5%'"
        ):
            gate(*windows, limit)
    with pytest.raises(LimitPassed, match=r"iteration > \+5% .it is 17.72%, 10th percentile"):
        gate(*windows, "iteration > +5%")
    gate(*windows, "iteration > +20%")
    gate(*windows[::-1], "iteration > +5%")


def test_a_gate_on_sums_is_refused_where_a_run_holds_no_unit_or_all_kernels_more_often() -> None:
    """A window of a single unit against one of many; and two units against one, of which neither repeats often enough."""
    for windows in ((1, 40), (40, 1)):
        with pytest.raises(InputError, match="share no unit of work and may hold different amounts"):
            gate(*(iterations(count, 100) for count in windows), "makespan > +5%")
    with pytest.raises(InputError, match="every kernel runs 2 times as often as in the baseline"):
        gate(iterations(1, 100), iterations(2, 100), "makespan > +500%")
    gate(iterations(1, 100), iterations(1, 100), "makespan > +5%")


def test_a_slowdown_of_every_fourth_iteration_passes_no_gate() -> None:
    fast, slow = iterations(80, 100), iterations(80, 100, every_fourth=1.6)
    with pytest.raises(LimitPassed, match=r"iteration > \+5% .it is [56]\d\.\d+%, 90th percentile"):
        gate(fast, slow, "iteration > +5%")
    unit = busfare.diff(fast, slow).unit
    assert (unit.figure, unit.real) == ("mean", True)
    gate(slow, fast, "iteration > +5%")


@pytest.mark.parametrize("often", [8, 9, 10, 12])
def test_a_slowdown_of_few_units_passes_no_gate(often: int) -> None:
    """Batches of 12 units hold different numbers of slower units."""
    slow = iterations(61, 100, every_fourth=1.8, often=often)
    with pytest.raises(LimitPassed, match=r"iteration > \+5% .it is \d+\.?\d*%, (mean|90th percentile)"):
        gate(iterations(61, 100), slow, "iteration > +5%")
    assert busfare.diff(iterations(61, 100), slow).unit.statistics["median"].real is False
    gate(slow, iterations(61, 100), "iteration > +5%")


def launched(count: int, names: str, times: int = 1, first: str = "") -> Trace:
    """A run of so many units of 20 µs kernels and an idle host, each kernel launched so many times in succession."""
    at, rows = 0.0, []
    for number in range(count):
        for letter in names:
            for _ in range(times):
                name = first + letter if letter == "a" else letter
                rows.append(made(kernel(at + 2, at + 22, name), at, at + 1))
                at += 23
        at += 30 + number % 3
    return run(*rows)


def test_a_unit_that_launches_every_kernel_twice_is_the_same_step_and_longer() -> None:
    once, twice = launched(40, "abc"), launched(40, "abc", times=2)
    result = busfare.diff(once, twice)
    unit = result.unit
    assert (unit.count_before, unit.count_after) == (40, 40)
    assert (unit.operations_before, unit.operations_after, unit.real) == (3, 6, True)
    assert unit.change_percent == pytest.approx(100 * 69 / 100, abs=1)
    assert "A unit has 3 operations before and 6 after" in text(result.why[-2])
    with pytest.raises(LimitPassed):
        gate(once, twice, "iteration > +5%")


def test_a_baseline_still_fits_where_the_first_kernel_has_another_name() -> None:
    before, after = launched(40, "abc"), launched(40, "abc", first="new_")
    assert busfare.report(after).units[0].name != busfare.report(before).units[0].name
    gate(before, after, "iteration > +5%")
    with pytest.raises(LimitPassed, match=r"it is \d+"):
        gate(before, launched(40, "abcd", first="new_"), "iteration > +5%")
    with pytest.raises(InputError, match="shares no unit of work with it"):
        gate(before, launched(40, "xyz"), "iteration > +5%")


def test_a_gate_on_iterations_passes_what_units_of_a_single_run_differ_by() -> None:
    first, second = (iterations(40, period) for period in (100, 100.2))
    assert busfare.diff(first, second).unit.change_percent == pytest.approx(0.2, abs=0.05)
    gate(first, second, "iteration > +0.1%")
    with pytest.raises(LimitPassed):
        gate(first, second, "iteration > 100us")


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ((5, 5), "too few units of work"),
        ((1, 1), "no unit of work repeats"),
        ((1, 40), "the baseline shares no unit of work with it; compare the two traces with busfare diff"),
    ],
)
def test_a_gate_on_iterations_that_are_not_there_is_refused(runs: tuple[int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gate(iterations(runs[0], 100), iterations(runs[1], 100), "iteration > +5%")


@pytest.mark.conformance
@pytest.mark.parametrize("before", published("nsys", "nsys-ai-2xh100-before.sqlite"))
def test_layers_of_two_windows_of_a_job_are_slower_on_every_gpu(before: Path) -> None:
    """300 ms each, of 17 and 15 layers with two attention kernels: 17 / 15 is 13 % more a layer. Layers of one window vary
    so much that a test of every change finds none; a test for a longer layer alone does, in the shortest ones of a GPU.
    """
    after = before.with_name(before.name.replace("before", "after"))
    result = busfare.diff(before, after)
    assert result.comparable == "units" and abs(result.makespan.change_seconds) < 1e-3
    assert [(u.device, u.count_before, u.count_after) for u in result.units] == [(0, 17, 15), (1, 17, 15)]
    assert all(9 < (unit.change_percent or 0) < 17 for unit in result.units)
    assert not any(unit.real for unit in result.units)
    traces = busfare.read(before).trace, busfare.read(after).trace
    with pytest.raises(LimitPassed, match=r"iteration > \+5% .it is 12\.4%, 10th percentile"):
        gate(*traces, "iteration > +5%")
    gate(*traces[::-1], "iteration > +5%")


def test_a_report_shows_its_unit_of_work_in_a_line() -> None:
    shown = [line for line, _ in render(report_document(summarise(iterations(40, 100))), 100)]
    (line,) = (line for line in shown if line.startswith("The unit of work"))
    assert line == "The unit of work (work) takes 102 µs (median of 40) and has 2 operations."
    alone = [line for line, _ in render(report_document(summarise(iterations(1, 100))), 100)]
    assert not any("unit of work" in line for line in alone)


def test_a_slowdown_of_half_of_a_run_does_not_pass_unseen() -> None:
    """Its own units differ as much as it differs from the baseline: no test tells, and the gate says so."""
    steady, half = iterations(60, 100), iterations(60, 100, slow_from=30)
    with pytest.raises(InputError, match=r"cannot be checked: the (mean|median) of a unit changed by \+\d+"):
        gate(steady, half, "iteration > +5%")
