"""A job's result on the terminal, on its page and in its JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busfare.job import How, run_job
from busfare.report.job_page import job_page
from busfare.report.job_result import job_result
from busfare.report.jobs import show_job
from tests.job.build_job import Noted, write_job, write_rank
from tests.report.test_page_in_browser import HOSTILE, opened


def result_of(folder: Path) -> dict[str, Any]:
    return job_result(run_job([folder], None, How(), Noted()))


def test_the_terminal_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_job(tmp_path, 12)
    (tmp_path / "bad.json").write_text("[")
    show_job(result_of(tmp_path))
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 100
    assert "12 traces of a job" in shown
    assert re.search(r"Slowest: rank 5 on node1, 15 ms", shown)
    assert re.search(r"GPU 0 of rank 2 on node0, h2d: 25 GB/s, 50% of the median", shown)
    assert re.search(r"PCIe 5 x16\s+cpu0 → gpu0\s+12", shown)
    assert "1 file could not be read" in shown
    assert "bad.json" in shown


def test_control_characters_of_names_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rank(tmp_path / "\x1b]0;owned\x07.json", None, "host\x1b[31m")
    (tmp_path / "\x1b[2J.json").write_text("{")
    show_job(result_of(tmp_path))
    assert "\x1b" not in capsys.readouterr().out


def test_ranks_and_hosts_that_are_not_known_are_not_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rank(tmp_path / "a.json", None, None)
    write_rank(tmp_path / "b.json", None, None)
    result = result_of(tmp_path)
    assert (result["slowest"]["rank"], result["slowest"]["host"]) == (None, None)
    assert result["ranks"] == {"count": 0, "exact": True, "unknown": 2}
    assert "unknown-rank" in {omission["id"] for omission in result["omissions"]}
    show_job(result)
    assert "ranks not named" in capsys.readouterr().out
    assert '<div id="strip"' not in job_page(result)


def test_documented_keys_are_there(tmp_path: Path) -> None:
    """Every key that docs/json.md names for a job is in its JSON."""
    docs = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    text = docs[docs.index("busfare.report-job/1") :]
    section = text[: text.index("\n## ")]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {key for row in rows for key in re.findall(r"[a-z_0-9]+", row)}
    (tmp_path / "bad.json").write_text("[")
    result = json.loads(msgspec.json.encode(result_of(write_job(tmp_path, 12))))

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {key for inner in value.values() for key in keys(inner)}
        return {key for inner in value for key in keys(inner)} if isinstance(value, list) else set()

    assert len(named) > 60
    assert named - keys(result) == set()
    assert set(result) - named == set()


@pytest.mark.browser
def test_the_page_draws_its_plots_without_a_complaint(tmp_path: Path) -> None:
    write_job(tmp_path / "job", 12)
    document, console = opened(job_page(result_of(tmp_path / "job")), tmp_path)
    assert console == []
    assert 'data-drawn="yes"' in document
    for plot in ("strip", "spread-makespan_seconds", "largest-exposed_seconds", "links", "histogram"):
        drawn = re.search(rf'<div id="{plot}" class="plot[^>]*>(.{{200}})', document, re.DOTALL)
        assert drawn, plot
        assert "svg" in drawn[1], plot


@pytest.mark.browser
def test_hostile_names_stay_text(tmp_path: Path) -> None:
    names = HOSTILE.replace("/", "\u2215")
    write_rank(tmp_path / "job" / f"{names}.json", None, HOSTILE)
    write_rank(tmp_path / "job" / f"2{names}.json", 3, HOSTILE)
    (tmp_path / "job" / f"bad{names}.json").write_text("{")
    document, console = opened(job_page(result_of(tmp_path / "job")), tmp_path)
    assert console == []
    assert 'data-drawn="yes"' in document
    assert "<title>busfare: 2 traces</title>" in document
    assert "<img" not in document
