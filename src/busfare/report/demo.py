"""The demonstration: a program recorded before and after the change that its report advises, and on other nodes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from busfare.advise import amounts
from busfare.node import load_node
from busfare.output import write_file
from busfare.project import project
from busfare.report.document import table as page_table
from busfare.report.page import report_page
from busfare.report.plots import runs_plot
from busfare.report.projections import projection_result
from busfare.report.ranges import whiskers, with_range
from busfare.report.summary import summarise
from busfare.report.tables import console, table
from busfare.report.terminal import show_report
from busfare.report.what_ifs import answer_what_if
from busfare.timeline.changes import Setting, Value, changes_of
from busfare.trace import Trace, read

__all__ = ["run_demo"]

#: One stream and pageable memory; then three streams and pinned memory.
BEFORE, AFTER = "smooth-out-of-core-h100.json.gz", "smooth-out-of-core-streams-h100.json.gz"
CHANGE: dict[str, Value] = {"pin": "", "streams": 3}
RECORDED_ON = "h100-sxm"
ELSEWHERE = ("gh200", "dgx-a100", "pcie:3x16")
CHANGED = "pinned, 3 streams"


def run_demo(folder: Path) -> Path:
    """Prints the results, writes the page into `folder` and returns its path. Raises InputError if it cannot."""
    before, after = _example(BEFORE), _example(AFTER)
    node = load_node(RECORDED_ON)
    result = summarise(before, node)
    what_if, _ = answer_what_if(before, changes_of(CHANGE, node), Setting(node), False)
    nodes = [load_node(name) for name in ELSEWHERE]
    old, new = (
        projection_result([project(run, node, other, "calibrated") for other in nodes])
        for run in (before, after)
    )
    show_report(result)
    out = console()
    runs = _runs(what_if, new["makespan"]["recorded_seconds"])
    shown = table(
        "run ", "whole run", "speed-up", title="The change advised, and the same program recorded after it"
    )
    rows = [
        (name, with_range(row) if row else amounts.time(seconds), f"{runs[0][1] / seconds:.1f} ×")
        for name, seconds, row in runs
    ]
    for cells in rows:
        shown.add_row(*cells)
    out.print()
    out.print(shown)
    shown = table(
        "whole run on ",
        "as it is",
        CHANGED,
        title="On other nodes: a faster link helps once copies are pinned",
    )
    shown.add_row(
        f"{RECORDED_ON} (recorded)", *(amounts.time(p["makespan"]["recorded_seconds"]) for p in (old, new))
    )
    for pair in zip(old["projections"], new["projections"], strict=True):
        times = (with_range(p["makespan"]) for p in pair)
        shown.add_row(f"{pair[0]['to']} (predicted)", *times)
    out.print()
    out.print(shown)
    plot = runs_plot(
        [name for name, *_ in runs], [seconds for _, seconds, _ in runs], whiskers([row for *_, row in runs])
    )
    more = (
        "The change advised, and the program recorded after it",
        plot,
        page_table(("run", "whole run", "speed-up"), rows),
    )
    page = folder / "report.html"
    write_file(
        page, report_page(result, before, new, f"The changed program ({CHANGED}) on other nodes", [more])
    )
    return page


def _example(name: str) -> Trace:
    with resources.as_file(resources.files("busfare.examples").joinpath(name)) as path:
        return read(path)


def _runs(what_if: dict[str, Any], after_seconds: float) -> list[tuple[str, float, dict[str, Any] | None]]:
    """Each run with its seconds; predicted ones with the row of the result that has their range."""
    return [
        ("as it is (recorded)", what_if["baseline"]["recorded_seconds"], None),
        ("pinned (predicted)", what_if["changes"][0]["predicted_seconds"], what_if["changes"][0]),
        (f"{CHANGED} (predicted)", what_if["predicted_seconds"], what_if),
        (f"{CHANGED} (recorded)", after_seconds, None),
    ]
