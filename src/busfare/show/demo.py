"""The demonstration: a program recorded before and after the change that its report advises, and on other nodes."""

from importlib import resources
from pathlib import Path

from busfare.advise.amounts import ratio, time
from busfare.answers.project import project, projected
from busfare.answers.report import examine
from busfare.answers.what_if import Outcome, answer_what_if
from busfare.files import write_file
from busfare.nodes import load_node
from busfare.questions import WhatIf
from busfare.show.blocks import bar
from busfare.show.document import Block, Table, numbers, words
from busfare.show.page import page
from busfare.show.predictions import projection_blocks, runs_figure
from busfare.show.report import report_document
from busfare.show.terminal import show
from busfare.show.time_line_rows import time_line
from busfare.timeline.changes import Setting, changes_of
from busfare.trace import Trace, read

#: One stream and pageable memory; then three streams and pinned memory.
BEFORE, AFTER = "smooth-out-of-core-h100.json.gz", "smooth-out-of-core-streams-h100.json.gz"
CHANGE = WhatIf(pin="", streams=3)
RECORDED_ON = "h100-sxm"
ELSEWHERE = ("gh200", "dgx-a100", "pcie:3x16")
CHANGED = "pinned, 3 streams"


def run_demo(folder: Path) -> Path:
    """Prints the results, writes the page into `folder` and returns its path. Raises InputError if it cannot."""
    before, after = _example(BEFORE), _example(AFTER)
    node = load_node(RECORDED_ON)
    what_if, _ = answer_what_if(before, changes_of(CHANGE, node), Setting(node), False)
    nodes = [load_node(name) for name in ELSEWHERE]
    old, new = (
        projected([project(run, node, target, "calibrated") for target in nodes]) for run in (before, after)
    )
    baseline = what_if.baseline.recorded_seconds
    runs: list[tuple[str, float | Outcome]] = [
        ("as it is (recorded)", baseline),
        ("pinned (predicted)", what_if.changes[0]),
        (f"{CHANGED} (predicted)", what_if),
        (f"{CHANGED} (recorded)", new.makespan.recorded_seconds),
    ]
    shown = [(name, bar(run)) for name, run in runs]
    rows = [(name, run.label, ratio(baseline / (run.value or baseline), 1)) for name, run in shown]
    recorded = (f"{RECORDED_ON} (recorded)", *(time(p.makespan.recorded_seconds) for p in (old, new)))
    elsewhere = [
        (f"{pair[0].to} (predicted)", *(str(p.makespan) for p in pair))
        for pair in zip(old.projections, new.projections, strict=True)
    ]
    advised = "The advised changes with 3 streams, predicted and recorded"
    faster = "On other nodes, without and with these changes"
    tables: list[Block] = [
        Table(words("run") + numbers("whole run", "speedup"), rows, advised),
        runs_figure("runs", runs),
        Table(words("whole run on") + numbers("as it is", CHANGED), [recorded, *elsewhere], faster),
        *projection_blocks(new, f"The changed program ({CHANGED}) on other nodes", face="page"),
    ]
    report, run, findings = examine(before, node)
    document = report_document(report, time_line(before, run, findings), more=tables)
    show(document)
    file = folder / "report.html"
    write_file(file, page(document))
    return file


def _example(name: str) -> Trace:
    with resources.as_file(resources.files("busfare.examples").joinpath(name)) as path:
        return read(path)
