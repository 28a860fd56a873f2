"""What changed between two recorded runs; and a report against an earlier one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import busfare
from busfare.answers.diff import diff, read_report
from busfare.answers.limits import check, parse_limit
from busfare.errors import InputError, LimitPassed
from busfare.show.words import text
from tests.traces import EXAMPLES

IMAGES, PINNED = EXAMPLES / "train-images-h100.json.gz", EXAMPLES / "train-images-pinned-h100.json.gz"


def test_a_change_is_told_with_its_parts_and_its_copies() -> None:
    """The same program recorded with pageable and with pinned batches."""
    result = busfare.diff(IMAGES, PINNED)
    run = result.makespan
    assert run.change_seconds == pytest.approx(0.139574091 - 0.165617239)
    # The parts of a critical path add up to the run, and so do their changes.
    assert sum(part.change_seconds for part in result.critical_path) == pytest.approx(
        run.change_seconds, abs=1e-6
    )
    assert result.critical_path[0].what == "copies" and "26 ms shorter (-15.7%)" in text(result.why[0])
    assert "Changed: 12 copies of 231 MB, h2d pageable → device, now h2d pinned → device." in map(
        text, result.why
    )
    kernels = {row.what: row for row in result.by_kernel}
    assert sum(row.before_count or 0 for row in kernels.values()) == 2310
    calls = {row.what: row for row in result.by_call}
    assert (calls["cudaStreamSynchronize"].before_count, calls["cudaStreamSynchronize"].after_count) == (
        18,
        6,
    )
    (finding,) = result.findings
    assert finding.id == "pageable-copies" and finding.after_gain_seconds is None
    assert "now h2d pinned" in repr(result)


def test_a_run_beside_itself_has_not_changed() -> None:
    result = busfare.diff(IMAGES, IMAGES)
    rows = [*result.critical_path, *result.work, *result.by_path, *result.by_kernel, *result.by_call]
    assert rows and {row.change_seconds for row in rows} == {0.0}
    assert [*map(text, result.why)] == ["The run still takes 166 ms."]


def test_copies_that_are_new_or_gone_are_told() -> None:
    before, after = busfare.report(busfare.read(IMAGES)), busfare.report(busfare.read(PINNED))
    before.by_path = []
    assert "New: 12 copies of 231 MB, h2d pinned → device." in map(text, diff(before, after).why)
    assert "Gone: 12 copies of 231 MB, h2d pinned → device." in map(text, diff(after, before).why)


def test_a_trace_that_ends_in_the_middle_is_said_to_before_what_differs(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(IMAGES.read_bytes()[:60_000])
    first, *_ = busfare.diff(IMAGES, cut).why
    assert first.startswith(f"{cut}: the compressed file is truncated. Differences may come")
    assert "cut.json.gz" not in busfare.diff(IMAGES, PINNED).why[0]


def test_a_report_tells_what_changed_since_an_earlier_one_and_limits_growth(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    busfare.report(busfare.read(IMAGES)).save(old)
    words = [str(PINNED), "--baseline", str(old), "--fail-if", "makespan > +5%", "--json"]
    done = subprocess.run([sys.executable, "-m", "busfare", "report", *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["baseline"]["makespan"]["before_seconds"] == pytest.approx(0.165617239)
    busfare.report(busfare.read(PINNED)).save(old)
    words[0] = str(IMAGES)
    done = subprocess.run(
        [sys.executable, "-m", "busfare", "report", *words[:-1]], capture_output=True, text=True
    )
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
def test_what_is_no_report_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "old.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"old\.json: not a report of one run"):
        read_report(tmp_path / "old.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_report(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fail-if", "makespan > +5%"), "--baseline FILE"),
        (("--fail-if", "makespan > +x%", "--baseline", "x"), "not a percentage"),
        (("--fail-if", "makespan > +5", "--baseline", "x"), "not a time"),
    ],
)
def test_options_that_do_not_go_together_are_named(words: tuple[str, ...], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "busfare", "report", str(IMAGES), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert message in done.stderr
