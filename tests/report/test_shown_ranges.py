"""Every predicted time that a command prints stands in a range, on a rung; or the result says why not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from busfare.advise.search import guess_node
from busfare.answers.plan import answer_plan
from busfare.answers.project import project, projected
from busfare.answers.report import examine, summarise
from busfare.answers.what_if import answer_what_if
from busfare.cost.ranges import UNCHANGED, figures_of, range_of
from busfare.nodes import load_node
from busfare.questions import Plan
from busfare.show.page import page
from busfare.show.plans import plan_document
from busfare.show.predictions import projection_document
from busfare.show.terminal import show
from busfare.timeline.changes import Change, Setting
from busfare.timeline.changes.durations import copy_speed, kernel_times, on_node
from busfare.timeline.changes.overlap import pin, without_waiting
from busfare.trace import read
from busfare.trace.omissions import omission
from tests.conftest import Ask
from tests.job.build_job import write_job
from tests.traces import EXAMPLES, as_json, call, copy, kernel, made, run, trace

HERE, THERE = (str(EXAMPLES / f"smooth-out-of-core-{gpu}.json.gz") for gpu in ("h100", "h200"))
TRAIN = str(EXAMPLES / "train-images-h100.json.gz")
KERNEL = ("--h2d", "336MB", "--d2h", "504MB", "--kernel", "12ms")
RUNGS = {"datasheet", "typical", "probed", "calibrated", "class", "counters"}
#: Limits, which are no predictions of what will be: what a link takes at its full rate, what a benchmark cannot beat.
LIMITS = {"forward", "back", "limit"}


def predictions(result: Any, where: str = "") -> Iterator[tuple[str, float | None, dict[str, Any]]]:
    """Every object of a result that holds a predicted time, with its place and that time."""
    if isinstance(result, list):
        for number, element in enumerate(result):
            yield from predictions(element, f"{where}[{number}]")
    if isinstance(result, dict):
        for key, value in result.items():
            if key not in LIMITS:
                yield from predictions(value, f"{where}.{key}")
            price = key == "seconds" and "model" in result
            named = key in ("predicted_seconds", "predicted_gain_seconds") or price
            if named and not isinstance(value, dict):
                yield f"{where}.{key}", value, result


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        (("price", "--node", "h200-probed", "--bytes", "64MB", "--memory", "pageable"), 4),
        (("price", "--node", "dgx-a100", "--bytes", "64MB", "--memory", "device", "--direction", "p2p"), 4),
        (("report", TRAIN), 1),
        (("report", HERE), 2),
        (("project", TRAIN, "--to", "h200-probed", "--to", "pcie:3x16"), 8),
        (("project", HERE, "--to", "h200-sxm", "--model", "loggp", "--from", "h100-probed"), 4),
        (("compare", HERE, THERE), 4),
        (("what-if", TRAIN, "--pin", "--async", "--node", "h200-sxm"), 4),
        (("what-if", HERE, "--streams", "3"), 2),
        (("plan", *KERNEL, "--node", "h100-probed", "--to", "k20"), 12),
        (("bench", "strategies", "--virtual", "rtx-4090", "--node", "rtx-4090", "--quick"), 10),
        (("bench", "methods", "--virtual", "rtx-4090", "--node", "rtx-4090", "--quick"), 10),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else None,
)
def test_every_predicted_time_stands_in_a_range(ask: Ask, arguments: tuple[str, ...], least: int) -> None:
    rows = list(predictions(ask(*arguments)))
    assert len(rows) >= least
    check(rows)


def test_every_gain_of_a_job_stands_in_a_range(ask: Ask, tmp_path: Path) -> None:
    folder = write_job(tmp_path / "job", 3)
    (folder / "train.json.gz").write_bytes(Path(TRAIN).read_bytes())
    rows = list(predictions(ask("report", str(folder), "--node", "h100-sxm")))
    assert rows
    check(rows)


def check(rows: list[tuple[str, float | None, dict[str, Any]]]) -> None:
    for where, seconds, row in rows:
        assert {"low_seconds", "high_seconds", "rung"} <= set(row), where
        if row["low_seconds"] is None:
            assert row["high_seconds"] is None and row["reason"], where
        else:
            assert seconds is not None and row["rung"] in RUNGS and "reason" not in row, where
            slack = 1e-9 + 1e-9 * abs(seconds)
            assert row["low_seconds"] - slack <= seconds <= row["high_seconds"] + slack, where


def test_the_copies_of_a_path_are_off_together() -> None:
    old, new = load_node("pcie:3x16"), load_node("pcie:4x16")
    single = trace(copy(0, 5500, 64 << 20), kernel(5500, 6000))
    many = trace(*(copy(at * 5500, (at + 1) * 5500, 64 << 20) for at in range(8)), kernel(44000, 44500))
    alone, eight = (project(run, old, new, "calibrated").transfers for run in (single, many))
    assert eight.low_seconds == pytest.approx(8 * alone.low_seconds)
    assert eight.high_seconds == pytest.approx(8 * alone.high_seconds)


def test_a_run_of_slower_copies_is_longer_by_what_they_expose() -> None:
    old, new = load_node("pcie:3x16"), load_node("pcie:4x16")
    exposed = trace(*(copy(at * 5500, (at + 1) * 5500, 64 << 20, memory="pageable") for at in range(4)))
    projected = project(exposed, old, new, "calibrated")
    high = projected.transfers.high_seconds
    assert high is not None and high > 2 * projected.transfers.predicted_seconds
    assert projected.makespan.high_seconds == pytest.approx(high, rel=1e-3)


@pytest.mark.parametrize(
    "changes", [[pin()], [without_waiting()], [pin(), without_waiting()], [on_node(load_node("k20")), pin()]]
)
def test_what_a_change_leaves_alone_is_as_sure_as_an_unchanged_run(changes: list[Change]) -> None:
    setting = Setting(load_node("h100-sxm"))
    result, _ = answer_what_if(read(Path(TRAIN)), changes, setting, guessed=False)
    check(list(predictions(as_json(result))))
    for row in result.changes:
        width = row.high_seconds - row.low_seconds
        least = 2 * UNCHANGED * result.baseline.replayed_seconds
        assert width > 0.99 * least


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_a_change_without_effect_is_as_unsure_as_units_of_the_run_differ(spread: float) -> None:
    """Fifty units, of which the last ten take longer by `spread`."""
    at, rows = 0.0, []
    for number in range(50):
        rows.append(made(kernel(at + 2, at + 90), at, at + 1))
        at += 100 * (1 + spread * (number >= 40))
    result, _ = answer_what_if(run(*rows), [pin()], Setting(load_node("h100-sxm")), guessed=False)
    assert result.touched == 0 and result.low_seconds and result.high_seconds and result.predicted_seconds
    width = (result.high_seconds - result.low_seconds) / result.predicted_seconds
    assert width == pytest.approx(2 * max(UNCHANGED, spread / 2), rel=0.02)


@pytest.mark.parametrize(
    "changes", [[kernel_times(2.0)], [kernel_times(0.5)], [copy_speed(0.5)], [copy_speed(2.0)]]
)
def test_changed_durations_gain_no_more_than_they_save(changes: list[Change]) -> None:
    recorded = read(Path(TRAIN))
    took = recorded.operations.select("kind", ns=pl.col("end_ns") - pl.col("start_ns"))
    result, _ = answer_what_if(recorded, changes, Setting(load_node("h100-sxm")), guessed=False)
    (low, high), before = result.gain_range_seconds or (), result.baseline.replayed_seconds
    assert low <= (result.gain_seconds or 0.0) <= high
    assert result.low_seconds == pytest.approx(before - high)
    kinds = ["kernel", "set"] if changes[0].kind == "kernels" else ["copy"]
    touched = took.filter(pl.col("kind").is_in(kinds))["ns"].sum() * 1e-9
    slower = (result.gain_seconds or 0.0) < 0
    assert high <= 0 if slower else high <= touched / 2 * 1.001


@pytest.mark.parametrize("changes", [[pin()], [pin(), without_waiting()]])
def test_a_finding_and_its_command_have_the_same_gain_and_range(changes: list[Change]) -> None:
    result, _ = answer_what_if(read(Path(TRAIN)), changes, Setting(guess_node(read(TRAIN))), guessed=True)
    (finding,) = summarise(read(Path(TRAIN))).findings
    of_finding = finding.predicted_gain_seconds, [finding.low_seconds, finding.high_seconds]
    of_change = result.gain_seconds, result.gain_range_seconds
    assert (of_finding == of_change) is (len(changes) == 2)  # --pin --async is the finding's command


def test_a_range_reaches_as_far_as_what_the_change_touches() -> None:
    """A copy of 16 ms in a run of 416: whatever pinning makes of it, the rest differs as unchanged runs do."""
    recorded = run(
        made(copy(10, 16_010, 64 << 20, memory="pageable"), 0, 16_015, "cudaMemcpy", "operation"),
        made(kernel(16_030, 416_030), 16_020, 16_025),
        call(16_030, 416_040, "cudaDeviceSynchronize", "device"),
    )
    node = load_node("h100-sxm")
    result, _ = answer_what_if(recorded, [pin()], Setting(node), guessed=False)
    row = range_of("change", "--pin", figures_of(node))
    reach = 0.016015 + UNCHANGED * result.baseline.replayed_seconds
    after, low, high = result.predicted_seconds, result.low_seconds, result.high_seconds
    assert row is not None and low is not None and high is not None and after < 0.41
    unchanged = UNCHANGED * result.baseline.replayed_seconds
    # And no further than the run as it was, or without the call.
    gain = result.gain_seconds or 0.0
    shorter, longer = min(reach * (1 - row.low), 0.016015 - gain), min(reach * (row.high - 1), gain)
    assert after - low == pytest.approx(max(shorter, unchanged))
    assert high - after == pytest.approx(max(longer, unchanged), rel=1e-3)
    # A gain is at most the whole of the call.
    (finding,) = examine(recorded, node)[0].findings
    assert finding.high_seconds == pytest.approx(0.016015, rel=1e-3)


def test_compare_counts_the_truths_inside(ask: Ask) -> None:
    result = ask("compare", HERE, HERE, "--from", "h100-sxm", "--to", "h100-sxm")
    same = next(m for m in result["models"] if m["model"] == "calibrated")
    assert same["wmape_percent"] == pytest.approx(0.0, abs=1e-6)
    assert same["inside_percent"] == 100.0
    assert all(0 <= m["inside_percent"] <= 100 for m in result["models"] if m["inside_percent"] is not None)


def test_ranges_are_shown_behind_times_and_as_whiskers(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = read(Path(TRAIN))
    nodes = load_node("h100-sxm"), load_node("h200-sxm")
    result = projected([project(recorded, *nodes, "calibrated")])
    document = projection_document(result, TRAIN)
    show(document)
    shown = capsys.readouterr().out
    assert " ms (" in shown and "80 % prediction intervals" in shown
    planned = answer_plan(Plan.of(h2d="336MB", d2h="504MB", kernel="12ms", node="h100-sxm"))
    for text in (page(document), page(plan_document(planned))):
        assert text.count('class="whisker"') >= 2


def test_a_run_without_gpu_records_has_no_prediction_but_a_reason() -> None:
    launches = [call(10 * number, 10 * number + 3, "cudaLaunchKernel") for number in range(8)]
    missing = omission("no-gpu-records", 8)
    recorded = replace(run(*launches), omissions=(missing,))
    result, _ = answer_what_if(recorded, [pin()], Setting(load_node("h100-sxm")), guessed=False)
    unknown = [result.predicted_seconds, result.gain_seconds, result.gain_range_seconds, result.low_seconds]
    assert unknown == [None] * 4 and result.reason == missing.what
