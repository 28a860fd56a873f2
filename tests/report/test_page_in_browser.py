"""The page as headless Chromium shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from busfare.node import load_node
from busfare.project import project
from busfare.report.page import report_page
from busfare.report.plan_page import plan_page
from busfare.report.plans import answer_plan
from busfare.report.projections import projection_result
from busfare.report.summary import summarise
from busfare.report.what_if_page import what_if_page
from busfare.report.what_ifs import answer_what_if, predicted_trace
from busfare.timeline.changes import Setting
from busfare.timeline.changes.elsewhere import Kernels
from busfare.timeline.changes.pin import Pin
from busfare.timeline.changes.streams import Streams
from busfare.trace import Trace, read
from tests.traces import EXAMPLES, copy, kernel, trace

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=document.title='broken-in'></script><script>document.title='broken-in'</script>"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
]


def shown(recorded: Trace, tmp_path: Path, *more: str) -> tuple[str, list[str]]:
    """The document after its scripts have run, and what they wrote to the console."""
    node = load_node("h100-sxm")
    projections = projection_result([project(recorded, node, load_node("gh200"), "calibrated")])
    return opened(report_page(summarise(recorded, node), recorded, projections), tmp_path, *more)


def opened(text: str, tmp_path: Path, *more: str) -> tuple[str, list[str]]:
    """The document of a page after its scripts have run, and what they wrote to the console."""
    page = tmp_path / "page.html"
    page.write_text(text, encoding="utf-8")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "Chromium is missing: apt-get install chromium"
    command = [
        chromium,
        *FLAGS,
        *more,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr)


@pytest.mark.parametrize("theme", [[], ["--force-dark-mode"]], ids=["light", "dark"])
def test_a_real_traces_page_draws_its_plots_without_a_complaint(tmp_path: Path, theme: list[str]) -> None:
    document, console = shown(read(EXAMPLES / "train-images-h100.json.gz"), tmp_path, *theme)
    assert console == []
    assert 'data-drawn="yes"' in document
    for plot in ("timeline", "projection", "histogram"):
        drawn = re.search(rf'<div id="{plot}" class="plot[^>]*>(.{{200}})', document, re.DOTALL)
        assert drawn, plot
        assert "svg" in drawn[1], plot


def test_a_plans_page_draws_its_plots_without_a_complaint(tmp_path: Path) -> None:
    asked = {"h2d": "336MB", "d2h": "504MB", "kernel": "12ms", "flops": "12G", "node": "h100-sxm"}
    result = answer_plan(asked | {"vary": "link", "to": ["gh200"]}) | {"name": HOSTILE}
    document, console = opened(plan_page(result), tmp_path)
    assert console == []
    assert 'data-drawn="yes"' in document
    assert "<img" not in document
    for plot in ("ranking", "sweep", "roofline"):
        drawn = re.search(rf'<div id="{plot}" class="plot[^>]*>(.{{200}})', document, re.DOTALL)
        assert drawn, plot
        assert "svg" in drawn[1], plot


def test_a_what_ifs_page_draws_both_time_lines_without_a_complaint(tmp_path: Path) -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    setting = Setting(load_node("h100-probed"))
    changes = [Pin(), Streams(3), Kernels(0.5, HOSTILE)]
    result, found = answer_what_if(recorded, changes, setting, guessed=False)
    page = what_if_page(result | {"trace": HOSTILE}, recorded, predicted_trace(found.together.played))
    document, console = opened(page, tmp_path)
    assert console == []
    assert 'data-drawn="yes"' in document
    assert "<img" not in document
    for plot in ("gains", "recorded", "predicted"):
        drawn = re.search(rf'<div id="{plot}" class="plot[^>]*>(.{{200}})', document, re.DOTALL)
        assert drawn, plot
        assert "svg" in drawn[1], plot


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    recorded = trace(kernel(0, 10, HOSTILE), copy(10, 20, 4096), kernel(20, 30, HOSTILE + "2"))
    document, console = shown(recorded, tmp_path)
    assert console == []
    assert 'data-drawn="yes"' in document
    assert re.search("<title>busfare: built-by-hand</title>", document)
    assert "<img" not in document
