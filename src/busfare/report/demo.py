"""The demonstration: a real trace that comes with busfare, reported and projected."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from busfare.node import load_node
from busfare.output import write_file
from busfare.project import project
from busfare.report.page import report_page
from busfare.report.predictions import show_projection
from busfare.report.projections import projection_result
from busfare.report.summary import summarise
from busfare.report.terminal import show_report
from busfare.trace import read

__all__ = ["run_demo"]

TRACE = "train-images-h100.json.gz"
RECORDED_ON = "h100-sxm"
ELSEWHERE = ("gh200", "dgx-a100", "pcie:3x16")


def run_demo(folder: Path) -> Path:
    """Prints both results, writes the page into `folder` and returns its path. Raises InputError if it cannot."""
    with resources.as_file(resources.files("busfare.examples").joinpath(TRACE)) as path:
        trace = read(path)
    node = load_node(RECORDED_ON)
    result = summarise(trace, node)
    show_report(result)
    print()
    projections = projection_result(
        [project(trace, node, load_node(name), "calibrated") for name in ELSEWHERE]
    )
    show_projection(projections)
    page = folder / "report.html"
    write_file(page, report_page(result, trace, projections))
    return page
