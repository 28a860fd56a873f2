"""The pages of `bench ft` and `bench mg`, from results recorded on an H200."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from busfare.measure.nas.commands import again
from busfare.measure.nas.problem import Benchmark
from busfare.report.nas_page import nas_page

RECORDED = Path(__file__).parents[3] / "results" / "hybrid" / "h200-four-gpu-machine.json"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
]


@pytest.mark.browser
@pytest.mark.parametrize("benchmark", ["ft", "mg"])
def test_the_page_draws_a_plot_a_class_without_a_complaint(benchmark: Benchmark, tmp_path: Path) -> None:
    result = again(RECORDED, benchmark)
    page = tmp_path / "page.html"
    page.write_text(nas_page(result), encoding="utf-8")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "Chromium is missing: apt-get install chromium"
    command = [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert re.findall(r"CONSOLE.*", done.stderr) == []
    classes = {run["class"] for run in result["runs"]}
    assert len(re.findall(r'<div id="parts[A-Z]" class="plot[^"]*"', done.stdout)) == len(classes)
    shown = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    assert "https://" not in shown
    assert "limit, predicted" in shown and "median iteration, measured" in shown


def test_every_run_has_a_bar_of_its_own_and_predictions_are_no_bars() -> None:
    from busfare.report.nas_page import _stacked

    runs = [run for run in again(RECORDED, "ft")["runs"] if run["class"] == "C"]
    plot = _stacked(runs)
    bars = [trace for trace in plot["data"] if trace["type"] == "bar"]
    assert all(trace["name"].endswith(", measured") for trace in bars)
    assert len(set(bars[0]["x"])) == len(runs)
    limits = next(trace for trace in plot["data"] if trace["name"] == "limit, predicted")
    assert limits["type"] == "scatter" and len(limits["y"]) == len(runs)


def test_text_of_a_result_is_shown_as_text() -> None:
    result = again(RECORDED, "mg")
    bad = "<img src=x onerror=alert(1)>"
    result["runs"][0]["mode"] = result["gpu"] = bad
    result["left_out"] = [{"case": bad, "why": bad}]
    page = nas_page(result)
    assert bad not in page
