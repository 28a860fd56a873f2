"""The pages of the benchmarks as headless Chromium shows them, from virtual nodes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busfare.measure.bench.commands import methods, strategies
from busfare.report.methods_page import methods_page
from busfare.report.strategies_page import strategies_page

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
]


def silent(line: str) -> None: ...


def played_methods() -> dict[str, Any]:
    return methods("gtx-titan", True, "16777216", "gtx-titan", None, silent)


def played_strategies() -> dict[str, Any]:
    return strategies("gtx-titan", True, None, "gtx-titan", None, silent)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("played", "made", "plots"), [(played_methods, methods_page, 4), (played_strategies, strategies_page, 8)]
)
def test_the_pages_draw_their_plots_without_a_complaint(
    played: Callable[[], dict[str, Any]], made: Callable[[dict[str, Any]], str], plots: int, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(made(played()), encoding="utf-8")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "Chromium is missing: apt-get install chromium"
    command = [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert re.findall(r"CONSOLE.*", done.stderr) == []
    assert len(re.findall(r'<div id="[a-z]+\d*" class="plot[^"]*"', done.stdout)) == plots
    assert done.stdout.count('class="main-svg"') >= plots
    shown = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    assert "https://" not in shown
    assert "played" in shown and "VIRTUAL" in shown
