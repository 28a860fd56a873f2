"""The page of `probe` as headless Chromium shows it, from raw samples of a real GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from busfare.measure.probe import again, result
from busfare.report.probe_page import probe_page
from validation.stored import probe_raw

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
]


@pytest.mark.browser
def test_the_page_draws_its_plots_without_a_complaint(tmp_path: Path) -> None:
    found = result(again(probe_raw("h200-run1")))
    found["left_out"].append({"case": "<script>document.title='broken-in'</script>", "why": "a test"})
    page = tmp_path / "page.html"
    page.write_text(probe_page(found), encoding="utf-8")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "Chromium is missing: apt-get install chromium"
    command = [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert re.findall(r"CONSOLE.*", done.stderr) == []
    assert done.stdout.count('class="main-svg"') >= 3
    assert "<title>busfare probe: nvidia-h200</title>" in done.stdout
    assert "https://" not in re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
