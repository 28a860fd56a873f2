"""Gains that are advised on the published traces: within their bounds, and no surer than they are."""

from functools import cache
from pathlib import Path

import pytest

from busfare.advise import Finding, findings, guess_node, ranged, rebuilt
from busfare.answers.report import summarise
from busfare.errors import InputError
from busfare.questions import WhatIf
from busfare.show.report import report_document
from busfare.show.terminal import render
from busfare.timeline import Timeline, play
from busfare.timeline.changes import Setting, apply_all, changes_of
from busfare.trace import Trace, read
from tests.published import DATA, SHARED, published

pytestmark = pytest.mark.conformance

#: What is no trace of a run, as nothing in it says when it happened.
WITHOUT_TIMES = "execution-trace"
CASES = SHARED / "cases"
#: Assumptions of changes that may cost what they gain, or that results in mapped memory forbid.
MAY_SAVE_NOTHING = {"assumes.pinning-counted", "assumes.unread-mapped"}


def paths() -> list[Path]:
    """Every published trace, and those of ranks and cases."""
    more = [path for folder in (DATA / "ranks", CASES) for path in sorted(folder.rglob("*"))]
    return [
        path
        for path in (*published(), *more)
        if path.suffix in (".gz", ".json", ".sqlite", ".db", ".rpd", ".nvvp")
        and WITHOUT_TIMES not in path.name
    ]


@cache
def advice(path: Path) -> tuple[Trace, Timeline | None, list[Finding]]:
    """None of what is refused."""
    recorded = read(path)
    node = guess_node(recorded)
    run = rebuilt(recorded, node)
    return recorded, run, findings(recorded, node, run)


def advised() -> list[Path]:
    """Those in which something is found."""
    some = []
    for path in paths():
        try:
            if advice(path)[2]:
                some.append(path)
        except InputError:  # of some nothing can be read
            continue
    return some


def test_gains_stay_within_what_they_touch() -> None:
    replayed = 0
    for path in advised():
        recorded, _, listed = advice(path)
        for shown in map(ranged, listed):
            low, gain, high = shown.low_seconds, shown.predicted_gain_seconds, shown.high_seconds
            assert low is not None and high is not None, (path, shown.id)
            assert 0 <= low <= gain <= high <= recorded.makespan_seconds * 1.001, (path, shown.id)
            if shown.by_replay:
                replayed += 1
                assert low > 0 or not MAY_SAVE_NOTHING.isdisjoint(word.id for word in shown.rests_on), (
                    path,
                    shown.id,
                )
                assert high <= shown.bound_seconds * 1.001, (path, shown.id)
                assert high <= 3 * gain, (path, shown.id)
    assert replayed > 15


def test_no_gain_of_copies_exceeds_the_run_without_them() -> None:
    copies = 0
    for path in advised():
        recorded, run, listed = advice(path)
        setting = Setting(guess_node(recorded))
        for finding in listed:
            if run is None or not finding.by_replay or finding.touches is None:
                continue
            copies += 1
            what = "migration" if finding.id == "managed-migrations" else "copy"
            gains = [
                play(run).makespan_seconds
                - play(apply_all(run, changes_of(question, None), setting).timeline).makespan_seconds
                for question in (WhatIf(remove=(what,)), finding.what_if or WhatIf(pin=""))
            ]
            assert finding.predicted_gain_seconds <= gains[0] * 1.001, (path, finding.id)
            # Its command shows it.
            assert finding.predicted_gain_seconds == pytest.approx(gains[1], rel=0.02), (path, finding.id)
    assert copies > 10


def test_a_gain_that_may_be_nothing_says_so() -> None:
    for path in advised():
        result = summarise(read(path))
        lines = "\n".join(line for line, _ in render(report_document(result), 1000))
        nothing = sum(not finding.low_seconds for finding in result.findings)
        assert lines.count("may save nothing") == nothing, path


def test_waits_for_results_and_autotuning_are_not_dropped() -> None:
    ids = {p.name: [finding.id for finding in advice(p)[2]] for p in advised() if p.parent == CASES}
    assert "synchronisations" not in ids.get("managed-prefetch-to-host.sqlite", [])
    assert ids.get("cudnn-autotune-waits.pt.trace.json.gz", ["autotuning"]) == ["autotuning"]


def test_streams_are_not_advised_around_frees() -> None:
    path = CASES / "streams-beside-frees.sqlite"
    if path.exists():
        assert "exposed-copies" not in [finding.id for finding in advice(path)[2]]
